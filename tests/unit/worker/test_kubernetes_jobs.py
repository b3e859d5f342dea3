"""Jobs of a control plane whose cluster is the recorded Kubernetes: what is refused, what drivers are told, what is
deleted before the next one starts."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.cluster.kubernetes.api import KubernetesApi
from app.cluster.kubernetes.cluster import KubernetesCluster, PodSettings
from app.settings import load_settings
from app.store.store import Store
from app.worker.control_plane import ControlPlane
from app.worker.executor_clusters import beside_jobs, cluster_of, driver_java_options, shown_of
from app.worker.job import JobPlaces
from app.worker.views import InvalidRequest
from tests.kubernetes.replay import NAMESPACE, PODS, ReplayApi, recorded
from tests.unit.worker.fakes import Rig, graph

MASTER = "k8s://https://api.example:6443"


class OnKubernetes(Rig):
    """A control plane on the recorded API."""

    def __init__(self, store: Store, tmp_path: Path) -> None:
        self.api = ReplayApi()
        super().__init__(store, tmp_path)

    def use(self, places: JobPlaces) -> None:
        transport = httpx.MockTransport(self.api.respond)
        self.cluster = KubernetesCluster(
            MASTER,
            NAMESPACE,
            KubernetesApi("https://api.example:6443", NAMESPACE, transport=transport),
            slots=6,
            pods=PodSettings("registry.example/slotwise:1"),
            driver_host="10.0.0.5",
            patience_s=60.0,
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
            validate_states=True,
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
async def on_kubernetes(url: str, tmp_path: Path) -> AsyncIterator[OnKubernetes]:
    store = await Store.open(url, "owner-of-kubernetes", durable=False)
    rig = OnKubernetes(store, tmp_path)
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


# ---- from the settings


def settings(tmp_path: Path, **more: Any) -> Any:
    (tmp_path / "token").write_text("secret-token")
    return load_settings(
        cluster_kind="kubernetes",
        cluster_master="k8s://http://api.example:6443",
        cluster_namespace=NAMESPACE,
        cluster_image="i",
        cluster_slots=3,
        cluster_driver_host="10.0.0.5",
        cluster_token_file=tmp_path / "token",
        driver_java_options="-Da=b",
        **more,
    )


async def test_the_cluster_of_the_settings(tmp_path: Path) -> None:
    made = cluster_of(settings(tmp_path, cluster_pod_template="/a b.yaml"), lambda: 1)
    assert isinstance(made, KubernetesCluster)
    assert (made.slots, made.host, made.master) == (3, "api.example:6443", "k8s://http://api.example:6443")
    assert made.executor_conf("a", 1)["spark.kubernetes.executor.podTemplateFile"] == "/a b.yaml"
    await made.close()


def test_drivers_are_told_where_the_token_is(tmp_path: Path) -> None:
    options = driver_java_options(settings(tmp_path))
    assert f"-Dkubernetes.auth.serviceAccount.token={tmp_path}/token" in options
    assert options.endswith(" -Da=b") and "secret-token" not in options
    assert driver_java_options(load_settings(driver_java_options="-Da=b")) == "-Da=b"


def test_without_a_cluster_there_is_nothing_to_show_and_nothing_to_do() -> None:
    assert cluster_of(load_settings(), lambda: 1) is None
    assert shown_of(None) is None
    assert beside_jobs(None, None) == []  # type: ignore[arg-type]
