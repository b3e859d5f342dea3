"""Jobs of a control plane whose cluster is the recorded Kubernetes: what is refused, what drivers are told, what is
deleted before the next one starts."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from app.cluster.kubernetes.api import KubernetesApi
from app.cluster.kubernetes.cluster import KubernetesCluster
from app.cluster.kubernetes.pod_spec import PodSettings, TemplateError
from app.cluster.ports import Offer
from app.settings import load_settings
from app.store.store import Store
from app.worker.control_plane import ControlPlane
from app.worker.job.places import JobPlaces
from app.worker.refusals import InvalidRequest
from app.worker.slots.executor_clusters import beside_jobs, cluster_of, driver_java_options, shown_of
from tests.kubernetes.replay import NAMESPACE, PODS, ReplayApi, recorded
from tests.unit.worker.fakes import Rig, graph

MASTER = "k8s://https://api.example:6443"
EXAMPLE = Path(__file__).parents[4] / "examples/kubernetes/chart/executor.yaml"


class OnKubernetes(Rig):
    """A control plane on the recorded API."""

    def __init__(self, store: Store, tmp_path: Path, patience_s: float = 60.0) -> None:
        self.api = ReplayApi()
        self.patience_s = patience_s
        super().__init__(store, tmp_path)

    def use(self, places: JobPlaces, offer: Offer | None = None) -> None:
        transport = httpx.MockTransport(self.api.respond)
        self.cluster = KubernetesCluster(
            MASTER,
            NAMESPACE,
            KubernetesApi("https://api.example:6443", NAMESPACE, transport=transport),
            slots=6,
            pods=PodSettings("registry.example/slotwise:1"),
            driver_host="10.0.0.5",
            patience_s=self.patience_s,
            now_ms=self.clock.now_ms,
        )
        super().use(JobPlaces(places.jobs_dir, places.address_file, places.slots, cluster=self.cluster))
        self._shown = shown_of(self.cluster)
        self.plane = ControlPlane(
            self.store,
            host=self.host,
            places=self.places,
            clock=self.clock,
            new_id=iter([f"{number:032x}" for number in range(1, 99)]).__next__,
            shown=self._shown,
        )

    async def look(self) -> None:
        self.plane.take_offer(await self.cluster.look(self.plane.knows))

    def add_pod(self, job_id: str, number: int) -> str:
        """A running pod of the job."""
        pod: dict[str, Any] = copy.deepcopy(recorded("pods")["items"][0])
        name = f"slotwise-{job_id}-1-exec-{number}"
        pod["metadata"] |= {"name": name, "uid": f"uid-{number}"}
        pod["metadata"]["labels"]["slotwise/job"] = job_id
        self.api.add(pod)
        return name


@asynccontextmanager
async def on_kubernetes(url: str, tmp_path: Path, **more: float) -> AsyncIterator[OnKubernetes]:
    store = await Store.open(url, "owner-of-kubernetes", durable=False)
    rig = OnKubernetes(store, tmp_path, **more)
    try:
        await rig.look()
        await rig.plane.start()
        yield rig
    finally:
        await rig.plane.close()
        await rig.cluster.close()
        await store.close()


@pytest.mark.parametrize(
    "key", ["spark.kubernetes.container.image", "spark.executor.memoryOverhead", "spark.executor.instances"]
)
async def test_what_the_slots_rest_on_is_refused_at_submission(
    sqlite_url: str, tmp_path: Path, key: str
) -> None:
    async with on_kubernetes(sqlite_url, tmp_path) as rig:
        with pytest.raises(InvalidRequest) as error:
            await rig.plane.submit(graph(2, **{key: "1"}), {})
        (sentence,) = error.value.errors
        assert sentence.startswith(f"config: The config of the job may not change {key} on this cluster")
        assert rig.plane.jobs() == []


async def test_a_driver_is_told_its_cluster_and_its_name_in_it(sqlite_url: str, tmp_path: Path) -> None:
    async with on_kubernetes(sqlite_url, tmp_path) as rig:
        job_id = await rig.run(2)
        spec = rig.driver.spec
        assert spec is not None
        assert (spec["master"], spec["executors"], spec["job_name"]) == (MASTER, 2, "counts")
        assert spec["executor_conf"] == rig.cluster.executor_conf(job_id, 1)
        (shown,) = rig.plane.task_managers()
        assert (shown.id, shown.slots, shown.free_slots) == (f"kubernetes-{NAMESPACE}", 6, 4)
        assert (shown.cpu_cores, shown.memory_bytes >> 30, shown.free_memory_bytes >> 30) == (6, 6, 4)


async def test_the_next_driver_starts_when_the_pods_of_the_last_one_are_gone(
    sqlite_url: str, tmp_path: Path
) -> None:
    async with on_kubernetes(sqlite_url, tmp_path) as rig:
        job_id = await rig.run(2)
        names = [rig.add_pod(job_id, number) for number in (1, 2)]
        other = rig.add_pod("f" * 32, 3)
        ending: list[str] = []
        rig.api.on_delete = lambda pod, _grace_s: ending.append(pod["metadata"]["name"])
        rig.driver.die(-9)
        await rig.until(lambda: ending == names, "the pods are deleted")
        assert len(rig.host.drivers) == 1
        for name in names:
            rig.api.remove(name)
        await rig.assigned(2)
        assert rig.driver.spec is not None
        assert rig.driver.spec["executor_conf"]["spark.kubernetes.executor.label.slotwise/attempt"] == "2"
        assert list(rig.api.pods) == [other]


async def test_while_the_api_is_away_a_job_that_runs_keeps_its_slots(sqlite_url: str, tmp_path: Path) -> None:
    async with on_kubernetes(sqlite_url, tmp_path) as rig:
        job_id = await rig.run(2)
        rig.api.fail("GET", PODS, "503")
        await rig.look()
        assert len(rig.plane.job(job_id).state.slots) == 2
        (shown,) = rig.plane.task_managers()
        assert (shown.slots, shown.free_slots) == (6, 0)
        await rig.look()
        assert rig.plane.task_managers()[0].free_slots == 4


# ---- no room


async def test_a_job_that_waits_where_no_pod_starts_says_why_and_goes_on_when_one_would(
    sqlite_url: str, tmp_path: Path
) -> None:
    async with on_kubernetes(sqlite_url, tmp_path) as rig:
        # It is as if the patience were over.
        rig.cluster._patience_s = 0.0
        job_id = await rig.plane.submit(graph(2), {})
        await rig.assigned(1)
        for number in (1, 2):
            rig.api.stage(rig.add_pod(job_id, number), "image-pull-backoff")
        ask = rounds_of(rig)
        await ask()
        assert rig.api.sent("POST", PODS) == []
        await rig.look()
        rig.cluster._patience_s = 60.0
        rig.driver.die(-9)
        await rig.until_kind(job_id, "WaitingForResources")
        await ask()
        (asked,) = rig.api.sent("POST", PODS)
        why = (
            "0 of 6 slots are offered: pods do not start: the image registry.example/slotwise:1 cannot be pulled "
            '(ImagePullBackOff: Back-off pulling image "registry.example/slotwise:1").'
        )
        assert why in rig.plane.explanation(job_id).sentences
        rig.api.stage(asked.body["metadata"]["name"], "succeeded", "node-a")
        await rig.look()
        await ask()
        await rig.look()
        await rig.assigned(2)
        assert rig.plane.explanation(job_id).supply.why == ()


def rounds_of(rig: OnKubernetes) -> Callable[[], Awaitable[None]]:
    """One round of asking for room, as it goes on beside the jobs."""
    *others, asking = beside_jobs(rig.cluster, rig.plane)
    for each in others:
        each.close()
    found: list[Callable[[], Awaitable[None]]] = []

    async def go(_activity: str, once: Callable[[], Awaitable[None]], **_more: Any) -> None:
        found.append(once)

    rig.cluster.periodic.run = go  # type: ignore[assignment]
    with pytest.raises(StopIteration):
        asking.send(None)
    return found[0]


async def test_a_driver_has_as_much_longer_to_start_as_pods_have_to_find_a_node(
    sqlite_url: str, tmp_path: Path
) -> None:
    """Else the job would be started anew, and its pods with it, before it could settle for less."""
    async with on_kubernetes(sqlite_url, tmp_path) as rig:
        assert rig.cluster.first_executor_s == 90.0
        job_id = await rig.plane.submit(graph(2), {})
        await rig.assigned(1)
        state = rig.plane.job(job_id).state
        (timer,) = [one for one in state.timers if one.name == "start-timeout"]
        assert timer.at_ms - state.phase_since_ms == 120_000 + 30_000
        assert state.options.start_timeout_ms == 120_000
    # It is the cluster's of today, also for a job of before.
    async with on_kubernetes(sqlite_url, tmp_path, patience_s=300.0) as again:
        assert again.plane.job(job_id).state.options.cluster_start_ms == 270_000


# ---- from the settings


def settings(tmp_path: Path, **more: Any) -> Any:
    (tmp_path / "token").write_text("secret-token")
    given = {
        "cluster_kind": "kubernetes",
        "cluster_master": "k8s://http://api.example:6443",
        "cluster_namespace": NAMESPACE,
        "cluster_image": "i",
        "cluster_slots": 3,
        "cluster_driver_host": "10.0.0.5",
        "cluster_token_file": tmp_path / "token",
        "driver_java_options": "-Da=b",
    }
    return load_settings(**{**given, **more})


async def test_the_cluster_of_the_settings(tmp_path: Path) -> None:
    template = tmp_path / "a b.yaml"
    template.write_text(EXAMPLE.read_text())
    made = cluster_of(settings(tmp_path, cluster_pod_template=template, jobs_dir="/jobs/mine"), lambda: 1)
    assert isinstance(made, KubernetesCluster)
    assert (made.slots, made.host, made.master) == (3, "api.example:6443", "k8s://http://api.example:6443")
    assert made.executor_conf("a", 1)["spark.kubernetes.executor.podTemplateFile"] == str(template)
    await made.close()


async def test_what_jobs_would_fail_by_in_pods_is_in_the_log_of_a_start(tmp_path: Path) -> None:
    async def remarks(**more: Any) -> list[str]:
        with capture_logs() as logs:
            made = cluster_of(settings(tmp_path, **more), lambda: 1)
        assert made is not None
        await made.close()
        return [one["event"] for one in logs]

    assert await remarks(cluster_pod_template=EXAMPLE, jobs_dir="/jobs") == []
    assert await remarks(cluster_pod_template=EXAMPLE, jobs_dir="/other") == [
        "Executors do not see jobs_dir, /other: no volume is mounted there in the first container of "
        "cluster_pod_template."
    ]
    data_dir = {"data_dir": "/var/slotwise", "cluster_driver_host": "127.0.0.1"}
    first, second = await remarks(**data_dir)
    assert first.startswith(
        "Executors do not see jobs_dir (not set: in the data directory), /var/slotwise/jobs: "
    )
    assert second == (
        "Executors do not reach the drivers: cluster_driver_host, 127.0.0.1, is each pod's own loopback."
    )


def test_a_template_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TemplateError, match=r"^cluster_pod_template: the file /none\.yaml cannot be read"):
        cluster_of(settings(tmp_path, cluster_pod_template="/none.yaml"), lambda: 1)


def test_drivers_are_told_where_the_token_is(tmp_path: Path) -> None:
    options = driver_java_options(settings(tmp_path))
    assert f"-Dkubernetes.auth.serviceAccount.token={tmp_path}/token" in options
    assert options.endswith(" -Da=b") and "secret-token" not in options
    assert driver_java_options(load_settings(driver_java_options="-Da=b")) == "-Da=b"


def test_without_a_cluster_there_is_nothing_to_show_and_nothing_to_do() -> None:
    assert cluster_of(load_settings(), lambda: 1) is None
    assert shown_of(None) is None
    assert beside_jobs(None, None) == []  # type: ignore[arg-type]
