"""While no executor has room and a job waits, one pod asks for it: against the recorded API, on its own time."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from app.cluster.kubernetes import cluster as module
from app.cluster.kubernetes.cluster import KubernetesCluster
from app.cluster.kubernetes.pod_spec import PodSettings
from app.cluster.ports import Offer
from tests.kubernetes.replay import NAMESPACE, PODS, recorded
from tests.unit.cluster.test_kubernetes_cluster import JOB, SERVER, World, look

HOME = "0123456789abcdef"
NAME = f"slotwise-probe-{HOME}"
EXAMPLE = Path(__file__).parents[3] / "examples/kubernetes/chart/executor.yaml"


class Enough(Exception):
    pass


class Asking(World):
    """A cluster that is looked at, and whose server asks for room when somebody waits, every two seconds. What its
    nodes do with a pod that asks is ``stage``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch)
        monkeypatch.setattr(module.asyncio, "sleep", self.sleep)
        self.waits = True
        self.stage: tuple[str, str | None] = ("unschedulable", None)
        self.offers: list[tuple[float, Offer]] = []
        self.until: Callable[[], bool] = lambda: False
        self.pods = PodSettings("registry.example/slotwise:1", template=EXAMPLE, service_account="executor")

    def made(self) -> KubernetesCluster:
        return KubernetesCluster(
            f"k8s://{SERVER}",
            NAMESPACE,
            self.client(),
            slots=4,
            pods=self.pods,
            driver_host="10.0.0.5",
            patience_s=60.0,
            now_ms=lambda: 1,
            home=HOME,
        )

    async def full(self, cluster: KubernetesCluster, stage: str = "unschedulable") -> None:
        """One executor's pod has waited in vain, and there are no slots."""
        pod: dict[str, Any] = copy.deepcopy(recorded("pods")["items"][0])
        pod["metadata"] |= {"name": f"slotwise-{JOB}-1-exec-1", "uid": "uid-1"}
        pod["spec"].pop("nodeName", None)
        self.api.add(pod)
        self.api.stage(pod["metadata"]["name"], stage, None if stage == "unschedulable" else "node-a")
        await look(cluster)
        self.now += 60.0
        offer = await look(cluster)
        assert offer.task_managers[0][1] == 0
        self.api.remove(pod["metadata"]["name"])

    async def go_on(self, cluster: KubernetesCluster, seconds: float) -> None:
        """Look and ask in turn, for some time, or ``until``."""
        end = self.now + seconds

        async def pause(delay_s: float) -> None:
            self.now += delay_s
            for name in list(self.api.pods):
                if name == NAME and self.api.pods[name]["status"]["phase"] == "Pending":
                    self.api.stage(name, *self.stage)
            offer = await look(cluster)
            self.offers.append((self.now, offer))
            if self.now >= end or self.until():
                raise Enough

        cluster.periodic._sleep = pause
        with pytest.raises(Enough):
            await cluster.ask_for_room(lambda: self.waits)

    def asked(self) -> list[Any]:
        return self.api.sent("POST", PODS)

    @property
    def slots(self) -> int:
        return self.offers[-1][1].task_managers[0][1]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Asking:
    return Asking(monkeypatch)


def test_a_node_that_comes_after_forty_minutes_is_found_within_seconds(world: Asking) -> None:
    """The job that waits is given up after some fifty."""

    async def story() -> None:
        cluster = world.made()
        await world.full(cluster)
        # The tries of before are at five, fifteen and thirty-five minutes, in vain.
        while world.now < 2500.0:
            await world.go_on(cluster, 240.0)
            if world.slots:
                await world.full(cluster)
        asked_at = len(world.asked())
        assert asked_at >= 30, "at least once a minute"
        came_at, world.stage = world.now, ("succeeded", "node-a")
        world.until = lambda: world.slots == 4
        await world.go_on(cluster, 60.0)
        assert world.now - came_at <= 10.0
        await world.go_on(cluster, 60.0)
        assert world.api.pods == {}, "it is not needed any more"

    asyncio.run(story())
    assert world.api.unexpected == []


def test_the_pod_that_asks_is_like_an_executors_and_runs_nothing(world: Asking) -> None:
    async def story() -> None:
        cluster = world.made()
        await world.full(cluster)
        await world.go_on(cluster, 10.0)

    asyncio.run(story())
    (one,) = world.asked()
    body = one.body
    assert body["metadata"]["name"] == NAME
    assert body["metadata"]["labels"] == {"spark-role": "executor", "slotwise/job": f"probe-{HOME}"}
    (container,) = body["spec"]["containers"]
    assert (container["image"], container["command"]) == ("registry.example/slotwise:1", ["true"])
    assert "args" not in container
    assert container["resources"] == {
        "requests": {"cpu": "1", "memory": "1024Mi"},
        "limits": {"memory": "1024Mi"},
    }
    # Of the template: the volumes and rights of executors decide about nodes too.
    assert container["volumeMounts"] == [{"name": "jobs", "mountPath": "/jobs"}]
    assert body["spec"]["volumes"][0]["persistentVolumeClaim"] == {"claimName": "slotwise-jobs"}
    assert body["spec"]["securityContext"]["runAsUser"] == 10001
    assert (body["spec"]["restartPolicy"], body["spec"]["serviceAccountName"]) == ("Never", "executor")


def test_nobody_asks_while_nobody_waits(world: Asking) -> None:
    async def story() -> None:
        cluster = world.made()
        # There is room, for all that is known.
        await world.go_on(cluster, 30.0)
        assert world.asked() == []
        world.waits = False
        await world.full(cluster)
        await world.go_on(cluster, 120.0)
        assert world.asked() == []
        world.waits = True
        await world.go_on(cluster, 20.0)
        assert NAME in world.api.pods
        world.waits = False
        await world.go_on(cluster, 10.0)
        assert world.api.pods == {}

    asyncio.run(story())


def test_nor_where_some_have_room(world: Asking) -> None:
    async def story() -> None:
        cluster = world.made()
        for name, stage, node in (("a", "running", "node-a"), ("b", "unschedulable", None)):
            pod: dict[str, Any] = copy.deepcopy(recorded("pods")["items"][0])
            pod["metadata"] |= {"name": name, "uid": f"uid-{name}"}
            pod["spec"].pop("nodeName", None)
            world.api.add(pod)
            world.api.stage(name, stage, node)
        await world.go_on(cluster, 120.0)
        assert world.slots == 1 and world.asked() == []

    asyncio.run(story())


def test_the_image_has_to_be_there_and_not_only_a_node(world: Asking) -> None:
    async def story() -> None:
        cluster = world.made()
        await world.full(cluster, "image-pull-backoff")
        (why,) = (await look(cluster)).why
        assert why == (
            "0 of 4 slots are offered: pods do not start: the image registry.example/slotwise:1 cannot be pulled "
            '(ImagePullBackOff: Back-off pulling image "registry.example/slotwise:1").'
        )
        world.stage = ("err-image-pull", "node-a")
        await world.go_on(cluster, 200.0)
        assert world.slots == 0
        assert len(world.asked()) in (3, 4), "once a minute"
        # It has been pushed.
        world.stage = ("succeeded", "node-a")
        world.until = lambda: world.slots == 4
        await world.go_on(cluster, 70.0)
        assert world.slots == 4

    with capture_logs() as logs:
        asyncio.run(story())
    assert any("the image registry.example/slotwise:1 cannot be pulled" in one["event"] for one in logs)


def test_an_image_that_is_being_pulled_is_waited_for(world: Asking) -> None:
    async def story() -> None:
        cluster = world.made()
        await world.full(cluster)
        world.stage = ("scheduled", "node-a")
        await world.go_on(cluster, 280.0)
        assert (world.slots, len(world.asked())) == (0, 1)
        world.stage = ("running", "node-a")
        world.until = lambda: world.slots == 4
        await world.go_on(cluster, 10.0)
        assert world.slots == 4

    asyncio.run(story())


def test_what_the_server_before_left_is_taken_up_or_away(world: Asking) -> None:
    async def story() -> None:
        first = world.made()
        await world.full(first)
        await world.go_on(first, 10.0)
        assert NAME in world.api.pods
        after = world.made()
        await look(after)
        await world.go_on(after, 10.0)
        assert world.api.pods == {}, "for all that it knows there is room"
        # Of another server, it is not touched.
        world.api.add({**copy.deepcopy(recorded("pods")["items"][0]), "metadata": _of_another_server()})
        await world.go_on(after, 10.0)
        assert list(world.api.pods) == ["slotwise-probe-other"]

    asyncio.run(story())


def _of_another_server() -> dict[str, Any]:
    return {"name": "slotwise-probe-other", "uid": "o", "labels": {"slotwise/job": "probe-other"}}


def test_a_server_that_ends_leaves_no_pod_that_asks(world: Asking) -> None:
    async def check() -> None:
        cluster = world.made()
        await world.full(cluster)
        await world.go_on(cluster, 30.0)
        assert list(world.api.pods) == [NAME]
        await cluster.close()
        assert world.api.pods == {}

    asyncio.run(check())


def test_an_account_that_may_make_no_pods_says_so_once_and_it_is_tried_as_before(world: Asking) -> None:
    async def story() -> None:
        cluster = world.made()
        await world.full(cluster)
        world.api.fail("POST", PODS, "403", times=1000)
        world.until = lambda: world.slots == 4
        began = world.now
        await world.go_on(cluster, 400.0)
        assert 280.0 < world.now - began < 310.0

    with capture_logs() as logs:
        asyncio.run(story())
    assert [one["event"] for one in logs].count("no pod can ask for room") == 1


@pytest.mark.parametrize("error", ["500", "409"])
def test_it_asks_again_after_an_error(world: Asking, error: str) -> None:
    async def story() -> None:
        cluster = world.made()
        await world.full(cluster)
        world.api.fail("POST", PODS, error)
        await world.go_on(cluster, 20.0)
        assert NAME in world.api.pods

    asyncio.run(story())


def test_while_the_api_is_away_nothing_is_asked(world: Asking) -> None:
    async def story() -> None:
        cluster = world.made()
        await world.full(cluster)
        world.down = True
        await look(cluster)
        before = len(world.api.requests)
        await world.go_on(cluster, 60.0)
        assert len(world.api.requests) == before

    asyncio.run(story())
