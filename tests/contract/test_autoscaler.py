"""The calls of Flink's standalone autoscaler, unmodified: each field that it cannot do without, in two of its loops.

As its Java client sends them: below /v1, with a body of two bytes also for GET. What it takes for a primitive must not
be null, and a metric that it requires must not be missing.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.contract.world import GRAPH, World, eventually

CONFIG = {
    "jobmanager.scheduler": "adaptive",
    "job.autoscaler.enabled": "true",
    "job.autoscaler.metrics.window": "3 min",
}
TASKS = (
    "total", "created", "scheduled", "deploying", "running", "finished", "canceling", "canceled", "failed",
    "reconciling", "initializing",
)  # fmt: skip
IO_METRICS = (
    "read-bytes", "read-bytes-complete", "write-bytes", "write-bytes-complete", "read-records", "read-records-complete",
    "write-records", "write-records-complete", "accumulated-backpressured-time", "accumulated-idle-time",
    "accumulated-busy-time",
)  # fmt: skip
HEAP = ("Status.JVM.Memory.Heap.Max", "Status.JVM.Memory.Heap.Used")
TASK_MANAGER = (*HEAP, "Status.Flink.Memory.Managed.Used", "Status.JVM.Memory.Metaspace.Used")
GC = "Status.JVM.GarbageCollector.All.TimeMsPerSecond"
# By what a metric's name has to begin and to end with, whether it is required, and which aggregation is read.
OF_EVERY_VERTEX = (("busyTimeMsPerSecond", "", True, "max"),)
OF_SOURCES = (
    *OF_EVERY_VERTEX,
    ("backPressuredTimeMsPerSecond", "", True, "avg"),
    ("Source__", ".numRecordsInPerSecond", True, "sum"),
    ("Source__", ".numRecordsIn", True, "sum"),
    ("", ".pendingRecords", True, "sum"),
    ("Source__", ".numRecordsOut", True, "sum"),
)
OF_OTHERS = (*OF_EVERY_VERTEX, ("numRecordsInPerSecond", "", True, "sum"))


class Autoscaler:
    """What one loop reads of a job."""

    def __init__(self, world: World, job_id: str) -> None:
        self.world = world
        self.base = f"/jobs/{job_id}"
        self.job_id = job_id

    async def call(self, path: str, method: str = "GET", json: Any = None) -> Any:
        content: dict[str, Any] = {"content": b"{}"} if json is None else {"json": json}
        answer = await self.world.http.request(
            method, f"/v1{path}", headers={"Connection": "close"}, **content
        )
        assert answer.status_code == 200, (path, answer.text)
        return answer.json()

    async def is_running(self) -> bool:
        """Call 1"""
        (job,) = [one for one in (await self.call("/jobs/overview"))["jobs"] if one["jid"] == self.job_id]
        numbers = [job[name] for name in ("start-time", "end-time", "duration", "last-modification")]
        numbers += [job["tasks"][name] for name in TASKS]
        assert all(type(value) is int for value in numbers)
        assert job["name"] == GRAPH["name"] and re.fullmatch("[0-9a-f]{32}", job["jid"])
        tasks = job["tasks"]
        return bool(job["state"] == "RUNNING" and tasks["running"] + tasks["finished"] == tasks["total"])

    async def settings(self) -> dict[str, str]:
        """Call 2"""
        return {one["key"]: one["value"] for one in await self.call(f"{self.base}/jobmanager/config")}

    async def details(self) -> Any:
        """Call 3"""
        details = await self.call(self.base)
        for name in ("start-time", "end-time", "duration", "maxParallelism", "now"):
            assert type(details[name]) is int
        assert type(details["isStoppable"]) is bool
        assert details["timestamps"]["RUNNING"] > 0
        assert {node["id"] for node in details["plan"]["nodes"]} == {one["id"] for one in details["vertices"]}
        for vertex in details["vertices"]:
            for name in ("maxParallelism", "parallelism", "start-time", "end-time", "duration"):
                assert type(vertex[name]) is int
            assert {type(value) for value in vertex["tasks"].values()} == {int}
            metrics = vertex["metrics"]
            assert set(metrics) == set(IO_METRICS)
            for name, value in metrics.items():
                kinds = (bool,) if name.endswith("-complete") else (int, float)
                assert type(value) in kinds, (name, value)
        for node in details["plan"]["nodes"]:
            assert all(edge["ship_strategy"] and edge["id"] for edge in node.get("inputs", ()))
        return details

    async def metrics(
        self, vertex_id: str, wanted: tuple[tuple[str, str, bool, str], ...]
    ) -> dict[str, float]:
        """Calls 4 and 5: the names, and the values of those that it looks for."""
        path = f"{self.base}/vertices/{vertex_id}/subtasks/metrics"
        known = [one["id"] for one in await self.call(path)]
        chosen: dict[str, tuple[str, str]] = {}
        for begins, ends, required, aggregation in wanted:
            fitting = [
                name
                for name in known
                if (name == begins if not ends else name.startswith(begins) and name.endswith(ends))
            ]
            assert len(fitting) <= 1 and (fitting or not required), (begins, ends, known)
            chosen |= {name: (ends or begins, aggregation) for name in fitting}
        values = {one["id"]: one for one in await self.call(f"{path}?get={','.join(chosen)}")}
        assert set(values) == set(chosen)
        return {key: float(values[name][aggregation]) for name, (key, aggregation) in chosen.items()}

    async def server_metrics(self) -> dict[str, int]:
        """Call 6"""
        found = await self.call("/jobmanager/metrics?get=taskSlotsTotal,taskSlotsAvailable")
        return {one["id"]: int(one["value"]) for one in found}

    async def task_manager_metrics(self) -> dict[str, Any]:
        """Call 7"""
        wanted = ",".join((*TASK_MANAGER, GC))
        found = await self.call(f"/taskmanagers/metrics?get={wanted}&agg=min,max,avg")
        assert {one["id"] for one in found} == {*TASK_MANAGER, GC}
        for one in found:
            assert set(one) == {"id", "min", "max", "avg"} and one["min"] <= one["avg"] <= one["max"]
        return {one["id"]: one for one in found}

    async def requirements(self) -> Any:
        """Call 8"""
        return await self.call(f"{self.base}/resource-requirements")

    async def require(self, upper: dict[str, int]) -> Any:
        """Call 9: it puts the lower bound to 1."""
        body = {
            vertex_id: {"parallelism": {"lowerBound": 1, "upperBound": parallelism}}
            for vertex_id, parallelism in upper.items()
        }
        return await self.call(f"{self.base}/resource-requirements", "PUT", body)


@pytest.fixture
async def autoscaler(world: World) -> Autoscaler:
    """Of a job that falls behind, whose driver tells everything."""
    job_id = await world.running({**GRAPH, "config": CONFIG})
    driver = world.driver()
    driver.load |= {"backlog_rows": 70, "executor_loads": [EXECUTOR]}
    driver.vertex_load |= {"bytes_in": 100, "bytes_out": 50, "longest_task_ms": 2, "median_task_ms": 1}
    found = Autoscaler(world, job_id)

    async def told() -> bool:
        return bool((await found.task_manager_metrics())[HEAP[0]]["max"])

    await eventually(told, "figures of executors")
    return found


EXECUTOR = {
    "executor_id": "driver", "host": "localhost", "heap_used_bytes": 200, "heap_max_bytes": 800, "gc_ms": 5,
    "disk_used_bytes": 0, "cores": 2, "tasks_done": 9, "tasks_failed": 0, "run_ms": 90,
}  # fmt: skip


async def test_the_nine_calls_of_a_loop(autoscaler: Autoscaler) -> None:
    assert await autoscaler.is_running()
    settings = await autoscaler.settings()
    assert settings["jobmanager.scheduler"] == "adaptive"
    assert {name: settings[name] for name in CONFIG} == CONFIG
    assert "data_dir" in settings
    details = await autoscaler.details()
    vertices = {one["name"]: one for one in details["vertices"]}
    source = await autoscaler.metrics(vertices["flights"]["id"], OF_SOURCES)
    assert source[".numRecordsIn"] > 0 and source[".numRecordsInPerSecond"] > 0
    assert source[".pendingRecords"] == 70
    for name in ("delays", "store"):
        found = await autoscaler.metrics(vertices[name]["id"], OF_OTHERS)
        assert 0 < found["busyTimeMsPerSecond"] <= 1000 and found["numRecordsInPerSecond"] > 0
        assert vertices[name]["metrics"]["read-records"] > 0
        assert vertices[name]["metrics"]["accumulated-busy-time"] > 0
    assert await autoscaler.server_metrics() == {"taskSlotsTotal": 8, "taskSlotsAvailable": 5}
    heap = await autoscaler.task_manager_metrics()
    assert [heap[name]["max"] for name in HEAP] == [800.0, 200.0]
    assert heap["Status.JVM.Memory.Metaspace.Used"]["max"] == 0
    requirements = await autoscaler.requirements()
    assert set(requirements) == {one["id"] for one in details["vertices"]}


async def test_what_it_puts_is_in_force_and_what_it_puts_again_changes_nothing(
    autoscaler: Autoscaler,
) -> None:
    world, before = autoscaler.world, await autoscaler.details()
    wanted = {one["id"]: 4 if one["name"] == "delays" else one["parallelism"] for one in before["vertices"]}
    assert await autoscaler.require(wanted) == {}
    await world.completed(autoscaler.job_id, 2)
    after = await autoscaler.details()
    assert {node["id"]: node["parallelism"] for node in after["plan"]["nodes"]} == wanted
    assert await autoscaler.is_running()
    # It measures anew from here.
    assert after["timestamps"]["RUNNING"] > before["timestamps"]["RUNNING"]
    assert after["start-time"] == before["start-time"]
    for _ in range(2):
        requirements = await autoscaler.requirements()
        found = {key: one["parallelism"] for key, one in requirements.items()}
        assert found == {key: {"lowerBound": 1, "upperBound": value} for key, value in wanted.items()}
        assert await autoscaler.require(wanted) == {}
    answer = await world.http.get(f"{autoscaler.base}/resource-requirements")
    assert answer.headers["etag"] == '"2"'


async def test_counters_never_fall_also_when_the_job_restarts(world: World) -> None:
    config = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "1 ms"}
    autoscaler = Autoscaler(world, await world.running({**GRAPH, "config": config}))
    source = (await autoscaler.details())["vertices"][0]["id"]
    before = await autoscaler.metrics(source, OF_SOURCES[:1] + OF_SOURCES[3:4])
    world.driver().die(1)
    await world.completed(autoscaler.job_id, 2)
    # The attempt goes on counting: what is to be less is asked first.
    details = await autoscaler.details()
    after = await autoscaler.metrics(source, OF_SOURCES[:1] + OF_SOURCES[3:4])
    assert after[".numRecordsIn"] > before[".numRecordsIn"]
    assert 0 < details["vertices"][0]["metrics"]["write-records"] < after[".numRecordsIn"]


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"job.autoscaler": "true"}, "Option job.autoscaler is unknown."),
        ({"jobs.autoscaler.enabled": "true"}, "Option jobs.autoscaler.enabled is unknown."),
        ({"jobmanager.scheduler": "default"}, "Option jobmanager.scheduler: one of Adaptive is expected"),
    ],
)
async def test_other_names_are_refused_still(world: World, config: dict[str, str], sentence: str) -> None:
    answer = await world.http.post("/jobs", json={**GRAPH, "config": config})
    assert answer.status_code == 400
    assert any(error.startswith(sentence) or sentence in error for error in answer.json()["errors"])


async def test_secrets_among_the_settings_of_a_job_are_hidden(world: World) -> None:
    config = {"job.autoscaler.password": "hunter2", "spark.sql.session.timeZone": "UTC"}
    autoscaler = Autoscaler(world, await world.submit({**GRAPH, "config": config}))
    settings = await autoscaler.settings()
    assert settings["job.autoscaler.password"] == "******"
    assert "spark.sql.session.timeZone" not in settings
