"""The server's own calls of the Kubernetes API, against the recorded one: what it sends and makes of the answers."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from app.cluster.kubernetes import cluster as module
from app.cluster.kubernetes.api import ApiError, KubernetesApi
from app.cluster.kubernetes.cluster import KubernetesCluster, PodSettings, java_options
from app.cluster.ports import Offer
from app.cluster.slot_pool import SlotPool
from tests.kubernetes.replay import ERRORS, NAMESPACE, PODS, QUOTAS, ReplayApi, recorded
from tests.unit.cluster.test_roster import running

JOB = "0123456789abcdef0123456789abcdef"
OTHER = "f" * 32
TASK_MANAGER = f"kubernetes-{NAMESPACE}"
SERVER = "https://api.example:6443"


class World:
    """The recorded API at its own time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.api = ReplayApi()
        self.now = 100.0
        self.slept: list[float] = []
        self.on_sleep: Callable[[], None] = lambda: None
        self.down = False
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(module.asyncio, "sleep", self.sleep)

    async def sleep(self, delay_s: float) -> None:
        self.slept.append(delay_s)
        self.now += delay_s
        self.on_sleep()

    def answer(self, request: httpx.Request) -> httpx.Response:
        if self.down:
            raise httpx.ConnectError("refused")
        return self.api.respond(request)

    def client(self, **more: Any) -> KubernetesApi:
        return KubernetesApi(SERVER, NAMESPACE, transport=httpx.MockTransport(self.answer), **more)

    def cluster(self, *, slots: int = 6, **more: Any) -> KubernetesCluster:
        return KubernetesCluster(
            f"k8s://{SERVER}",
            NAMESPACE,
            self.client(**more),
            slots=slots,
            pods=PodSettings("registry.example/slotwise:1"),
            driver_host="10.0.0.5",
            patience_s=60.0,
            now_ms=lambda: 1,
        )

    def with_recorded_pods(self) -> None:
        for pod in recorded("pods")["items"]:
            self.api.add(copy.deepcopy(pod))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


async def look(cluster: KubernetesCluster) -> Offer:
    return await cluster.look(lambda _job: True)


# ---- looking


def test_all_slots_are_of_one_task_manager(world: World) -> None:
    cluster = world.cluster()
    assert run(look(cluster)) == Offer(((TASK_MANAGER, 6),))
    assert (cluster.task_manager, cluster.slots, cluster.host) == (TASK_MANAGER, 6, "api.example:6443")
    assert "the jars of their image only" in run(cluster.runtime_fault("4.3.0"))
    (pods,) = world.api.sent("GET", PODS)
    assert pods.query == {"labelSelector": "slotwise/job", "limit": "500"}
    assert world.api.unexpected == []


def test_what_the_quotas_of_the_recording_leave_is_offered(world: World) -> None:
    world.api.quotas = recorded("resource-quotas")
    # 8 cores, and others use 2.5 of them.
    assert run(look(world.cluster(slots=9))) == Offer(
        ((TASK_MANAGER, 9),),
        withheld=4,
        why=("5 of 9 slots are offered: a ResourceQuota of the namespace lets no more pods in.",),
    )


def test_pods_of_another_servers_jobs_are_others(world: World) -> None:
    world.api.quotas = recorded("resource-quotas")
    world.with_recorded_pods()

    async def offered(is_ours: Callable[[str], bool]) -> int:
        return 9 - (await world.cluster(slots=9).look(is_ours)).withheld

    # The quota counts 2.5 cores of 8 as used, and five pods of ours are not over.
    assert run(offered(lambda _job: True)) == 8
    assert run(offered(lambda job: job == OTHER)) == 6
    assert run(offered(lambda _job: False)) == 5


def test_an_account_that_may_not_read_quotas_goes_without(world: World) -> None:
    world.api.fail("GET", QUOTAS, "403", times=2)
    with capture_logs() as logs:

        async def twice() -> list[Offer]:
            cluster = world.cluster()
            return [await look(cluster), await look(cluster)]

        assert run(twice()) == [Offer(((TASK_MANAGER, 6),))] * 2
    assert [each["event"] for each in logs] == ["resource quotas cannot be read, and are not minded"]


@pytest.mark.parametrize("error", ["401", "403", "404", "500", "503"])
def test_an_api_that_does_not_say_what_there_is_suspends_until_it_does(world: World, error: str) -> None:
    async def story() -> list[Offer]:
        cluster = world.cluster()
        offers = [await look(cluster)]
        world.api.fail("GET", PODS, error)
        return [*offers, await look(cluster), await look(cluster)]

    with capture_logs() as logs:
        first, second, third = run(story())
    assert (first.unreachable, second.unreachable, third.unreachable) == (False, True, False)
    assert second.task_managers == first.task_managers == third.task_managers
    message = ERRORS[error]["body"]["message"]
    (why,) = second.why
    assert why.startswith("The Kubernetes API cannot be asked since ") and message in why
    assert first.why == third.why == ()
    assert any(message in each["event"] and "is away" in each["event"] for each in logs)


def test_one_that_is_not_there_suspends_too_and_jobs_that_run_keep_their_slots(world: World) -> None:
    pool = SlotPool({})

    async def story() -> None:
        cluster = world.cluster()
        pool.take_offer(await look(cluster))
        running(pool, "runs", 2)
        world.down = True
        pool.take_offer(await look(cluster))

    run(story())
    assert (len(pool.held_by("runs")), pool.free) == (2, 0)


def test_one_that_asks_for_patience_is_there_for_a_while(world: World) -> None:
    async def story() -> list[bool]:
        cluster = world.cluster()
        found = [(await look(cluster)).unreachable]
        world.api.fail("GET", PODS, "429", times=3)
        for after_s in (2.0, 27.0, 2.0, 2.0):
            world.now += after_s
            found.append((await look(cluster)).unreachable)
        return found

    assert run(story()) == [False, False, False, True, False]


def test_a_document_of_another_kind_is_no_answer(world: World) -> None:
    world.api.quotas = {"kind": "Table", "rows": []}
    assert run(look(world.cluster())).unreachable


def test_long_lists_are_read_page_by_page_and_again_if_the_rest_is_forgotten(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.cluster.kubernetes.api._PAGE", 3)
    world.with_recorded_pods()
    world.api.fail("GET", PODS, "410")
    found = run(world.client().pods())
    assert [one["metadata"]["uid"] for one in found["items"]] == [
        one["metadata"]["uid"]
        for one in recorded("pods")["items"]
        if "slotwise/job" in one["metadata"]["labels"]
    ]
    assert [one.query.get("continue") for one in world.api.sent("GET", PODS)] == [None, None, "3", "6"]
    world.api.fail("GET", PODS, "410", times=3)
    with pytest.raises(ApiError, match="too old"):
        run(world.client().pods())


# ---- credentials


def test_the_token_is_read_again_for_each_request(world: World, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first")
    world.api.tokens = {"first"}

    async def story() -> list[bool]:
        cluster = world.cluster(token_file=file)
        found = [(await look(cluster)).unreachable]
        world.api.tokens = {"second"}
        found.append((await look(cluster)).unreachable)
        file.write_text("second")
        found.append((await look(cluster)).unreachable)
        file.unlink()
        found.append((await look(cluster)).unreachable)
        return found

    with capture_logs() as logs:
        assert run(story()) == [False, True, False, True]
    assert "first" not in str(logs) and "second" not in str(logs)


@pytest.mark.parametrize("content", ["", "token\n", " token", "to ken", "tok\u00e9n"])
def test_a_file_with_more_or_less_than_a_token_is_refused(world: World, tmp_path: Path, content: str) -> None:
    """Spark's client would show the token in the message of its failure."""
    file = tmp_path / "token"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(ApiError) as error:
        world.client(token_file=file)
    assert str(file) in str(error.value)
    assert not content.strip() or content.strip() not in str(error.value).replace(str(file), "").replace(
        "token file", ""
    ).replace("the token", "")


def test_a_file_of_authorities_that_is_none_is_refused(world: World, tmp_path: Path) -> None:
    file = tmp_path / "ca.crt"
    with pytest.raises(ApiError, match="cannot be used"):
        world.client(ca_file=file)
    file.write_text("no certificate")
    with pytest.raises(ApiError, match="cannot be used"):
        world.client(ca_file=file)


def test_spark_is_told_where_the_token_is_and_not_what_it_is() -> None:
    assert java_options(Path("/t"), Path("/c")) == (
        "-Dkubernetes.auth.tryKubeConfig=false",
        "-Dkubernetes.auth.serviceAccount.token=/t",
        "-Dkubernetes.certs.ca.file=/c",
    )
    assert java_options(None, None) == ("-Dkubernetes.auth.tryKubeConfig=false",)


# ---- what earlier drivers left


def test_the_pods_of_a_job_are_deleted_and_waited_for(world: World) -> None:
    world.with_recorded_pods()
    ending: list[str] = []
    world.api.on_delete = lambda pod, _grace_s: ending.append(pod["metadata"]["name"])

    def end() -> None:
        for name in ending:
            world.api.remove(name)

    world.on_sleep = end
    run(world.cluster().cleared(JOB))
    left = [pod["metadata"]["name"] for pod in world.api.pods.values()]
    assert left == [f"slotwise-{OTHER}-3-exec-1", "database-0"]
    deleted = world.api.sent("DELETE", f"{PODS}/[^/]+")
    assert len(deleted) == 6
    for one in deleted:
        number = one.path.rpartition("-exec-")[2]
        assert one.body == {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "gracePeriodSeconds": 1,
            "preconditions": {"uid": f"uid-0-{number}"},
        }
    assert {one.query["labelSelector"] for one in world.api.sent("GET", PODS)} == {f"slotwise/job={JOB}"}
    assert len(world.slept) == 1


def test_a_pod_that_does_not_end_is_not_waited_for_for_ever(world: World) -> None:
    """As on a node that is cut off."""
    world.with_recorded_pods()
    world.api.on_delete = lambda _pod, _grace_s: None
    with capture_logs() as logs:
        run(world.cluster().cleared(JOB))
    assert world.now == pytest.approx(130.0, abs=0.6)
    assert logs[-1]["event"] == "executors of a driver that is gone may live"
    assert f"slotwise-{JOB}-3-exec-1" in logs[-1]["reason"]
    # Each was asked once.
    names = [one.path for one in world.api.sent("DELETE", f"{PODS}/[^/]+")]
    assert len(names) == len(set(names)) == 6


@pytest.mark.parametrize("error", ["404", "409"])
def test_a_pod_that_is_gone_or_another_is_no_error(world: World, error: str) -> None:
    world.with_recorded_pods()
    fault = world.api.fail("DELETE", f"{PODS}/slotwise-{JOB}-3-exec-4", error)
    world.api.remove(f"slotwise-{JOB}-3-exec-6")
    world.api.remove(f"slotwise-{JOB}-3-exec-1")
    run(world.cluster().cleared(JOB))
    assert fault.done.is_set()
    assert f"slotwise-{JOB}-3-exec-2" not in world.api.pods


def test_while_the_api_is_away_it_is_asked_again(world: World) -> None:
    world.with_recorded_pods()
    world.api.fail("GET", PODS, "503", times=3)
    world.api.fail("DELETE", f"{PODS}/[^/]+", "500")
    run(world.cluster().cleared(JOB))
    assert not [name for name in world.api.pods if JOB in name]


def test_pods_of_jobs_that_are_over_are_deleted_and_no_others(world: World) -> None:
    world.with_recorded_pods()

    class Enough(Exception):
        pass

    def stop() -> None:
        raise Enough

    async def story() -> None:
        cluster = world.cluster()
        await look(cluster)
        world.on_sleep = stop
        await cluster.tidy(lambda job_id: job_id == OTHER)

    with pytest.raises(Enough):
        run(story())
    assert [one.path for one in world.api.sent("DELETE", f"{PODS}/[^/]+")] == [
        f"{PODS}/slotwise-{OTHER}-3-exec-1"
    ]


def test_while_the_api_is_away_nothing_is_deleted(world: World) -> None:
    world.with_recorded_pods()

    class Enough(Exception):
        pass

    def stop() -> None:
        raise Enough

    async def story() -> None:
        cluster = world.cluster()
        await look(cluster)
        world.down = True
        await look(cluster)
        world.down, world.on_sleep = False, stop
        await cluster.tidy(lambda _job: True)

    with pytest.raises(Enough):
        run(story())
    assert world.api.sent("DELETE", ".*") == []


# ---- the configuration of drivers


def test_the_configuration_of_a_driver(world: World) -> None:
    conf = world.cluster().executor_conf(JOB, 7)
    assert conf["spark.kubernetes.executor.label.slotwise/job"] == JOB
    assert conf["spark.kubernetes.executor.label.slotwise/attempt"] == "7"
    assert conf["spark.kubernetes.executor.podNamePrefix"] == f"slotwise-{JOB}-7"
    # With the number of an executor and of an attempt of six digits each a pod's name is still that of a host.
    assert len(f"slotwise-{JOB}-999999-exec-999999") <= 63
    assert (conf["spark.driver.host"], conf["spark.driver.bindAddress"]) == ("10.0.0.5", "10.0.0.5")
    for absent in ("limit.cores", "podTemplateFile"):
        assert f"spark.kubernetes.executor.{absent}" not in conf
    assert not any("oauthToken" in key or "caCertFile" in key for key in conf)


def test_what_is_not_asked_for_is_not_set(world: World) -> None:
    pods = PodSettings("i", "account", 1024, 600, "500m", "2", Path("/template.yaml"))
    cluster = KubernetesCluster(
        "k8s://api",
        NAMESPACE,
        world.client(),
        slots=1,
        pods=pods,
        driver_host="h",
        driver_pod="slotwise-0",
        patience_s=1,
        now_ms=lambda: 1,
    )
    conf = cluster.executor_conf(JOB, 1)
    assert conf["spark.kubernetes.authenticate.executor.serviceAccountName"] == "account"
    assert (conf["spark.executor.memory"], conf["spark.executor.memoryOverhead"]) == ("1024m", "600m")
    assert conf["spark.kubernetes.executor.request.cores"] == "500m"
    assert conf["spark.kubernetes.executor.limit.cores"] == "2"
    assert conf["spark.kubernetes.executor.podTemplateFile"] == "/template.yaml"
    assert conf["spark.kubernetes.driver.pod.name"] == "slotwise-0"
    assert cluster.demand.memory_bytes == 1624 << 20
