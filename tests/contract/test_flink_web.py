"""Flink's own web page, pointed at Slotwise: every call that it makes for a job that runs is answered, in its form.

The calls are those in the scripts of flink-dist-2.3.0.jar (web/*.js, each `${this.configService.BASE_URL}/...`). They
stand here as they stand there, with names for what is put in.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.world import World, bounds, eventually

OF_SERVER = (
    "/config", "/overview", "/jobs/overview", "/applications/overview", "/taskmanagers", "/jobmanager/config",
    "/jobmanager/environment", "/jobmanager/metrics", "/jobmanager/logs", "/jobmanager/thread-dump",
    "/jobmanager/profiler",
)  # fmt: skip
OF_TASK_MANAGER = ("", "/metrics", "/logs", "/thread-dump", "/profiler")
TEXTS = ("/jobmanager/log", "/jobmanager/stdout", "/taskmanagers/host/log", "/taskmanagers/host/stdout")
OF_JOB = (
    "", "/config", "/exceptions?maxExceptions=10", "/checkpoints", "/checkpoints/config", "/rescales/overview",
    "/rescales/history", "/rescales/summary", "/rescales/config", "/resource-requirements", "/jobmanager/config",
    "/jobmanager/environment",
)  # fmt: skip
OF_VERTEX = (
    "", "/metrics", "/watermarks", "/subtasks/metrics", "/taskmanagers", "/subtasktimes", "/subtasks/accumulators",
    "/accumulators", "/backpressure", "/flamegraph?type=FULL", "/flamegraph?type=on_cpu&subtaskindex=0",
)  # fmt: skip
NOT_CALLED = {
    "/jars": "config says web-submit: false",
    "/jobs/{job}/yarn-cancel": "config says web-cancel: false: a GET that ends a job can be made by any link",
    "/jobs/{job}/jobmanager/log-url": "config says web-history: false",
    "/jobs/{job}/taskmanagers/{tm}/log-url": "config says web-history: false",
    "/applications/{application}": "there is none",
    "/jobs/{job}/checkpoints/details/{checkpoint}": "the history of checkpoints is empty",
    "/jobmanager/logs/{log}": "the list of logs is empty",
    "/taskmanagers/{tm}/logs/{log}": "the list of logs is empty",
    "/jobmanager/profiler/{profile}": "the list of profiles is empty",
    "/taskmanagers/{tm}/profiler/{profile}": "the list of profiles is empty",
}


async def paths(world: World, job_id: str) -> list[str]:
    details = await world.get(f"/jobs/{job_id}")
    record = (await world.get(f"/jobs/{job_id}/rescales/history"))[0]
    found = [*OF_SERVER, *(f"/taskmanagers/host{rest}" for rest in OF_TASK_MANAGER)]
    found += [f"/jobs/{job_id}{rest}" for rest in (*OF_JOB, f"/rescales/details/{record['rescaleUuid']}")]
    found += [
        f"/jobs/{job_id}/vertices/{one['id']}{rest}" for one in details["vertices"] for rest in OF_VERTEX
    ]
    return found


async def read(world: World, path: str) -> Any:
    answer = await world.http.get(path)
    assert answer.status_code == 200, (path, answer.text)
    assert answer.headers["content-type"] == "application/json", path
    return answer.json()


@pytest.mark.parametrize("prefix", ["", "/v1"])
async def test_no_call_of_the_page_is_an_error(world: World, prefix: str) -> None:
    """Nor is one of those that it makes for what other answers listed."""
    job_id = await world.running()
    for path in await paths(world, job_id):
        await read(world, prefix + path)
    for path in TEXTS:
        answer = await world.http.get(prefix + path)
        assert (answer.status_code, answer.text) == (200, ""), path
    metrics = f"/jobs/{job_id}/vertices/{await world.vertex(job_id, 'delays')}/metrics"
    wanted = ",".join(one["id"] for one in await read(world, metrics))
    assert {"id", "value"} == {name for one in await read(world, f"{metrics}?get={wanted}") for name in one}


async def test_what_the_page_does_not_call_is_what_the_answers_keep_it_from(world: World) -> None:
    job_id = await world.running()
    features = (await world.get("/config"))["features"]
    assert features == {"web-submit": False, "web-cancel": False, "web-rescale": True, "web-history": False}
    assert await world.get("/applications/overview") == {"applications": []}
    assert (await world.get(f"/jobs/{job_id}/checkpoints"))["history"] == []
    for what in ("jobmanager", "taskmanagers/host"):
        assert await world.get(f"/{what}/logs") == {"logs": []}
        assert await world.get(f"/{what}/profiler") == {"profilingList": []}
    assert len(NOT_CALLED) == 10


async def test_a_vertex_shows_its_subtasks_where_they_run_and_how_busy_they_are(world: World) -> None:
    job_id = await world.running()
    await world.put(job_id, bounds(flights=(1, 2), delays=(2, 2), store=(1, 1)))
    vertex = await world.vertex(job_id, "delays")
    base = f"/jobs/{job_id}/vertices/{vertex}"

    async def measured() -> bool:
        return bool(await world.get(f"{base}/metrics"))

    await eventually(measured, "a batch is measured")
    details = await world.get(base)
    count = details["parallelism"]
    times = await world.get(f"{base}/subtasktimes")
    assert [one["subtask"] for one in times["subtasks"]] == list(range(count))
    assert set(times["subtasks"][0]) == {"subtask", "endpoint", "duration", "timestamps"}
    managers = (await world.get(f"{base}/taskmanagers"))["taskmanagers"]
    assert sum(sum(one["status-counts"].values()) for one in managers) == count
    assert {one["taskmanager-id"] for one in managers} == {"host"}
    assert managers[0]["metrics"]["read-records"] == sum(
        one["metrics"]["read-records"] for one in details["subtasks"]
    )
    pressure = await world.get(f"{base}/backpressure")
    assert pressure["status"] == "ok" and pressure["backpressureLevel"] in ("ok", "low", "high")
    assert len(pressure["subtasks"]) == count
    for one in pressure["subtasks"]:
        assert one["ratio"] + one["idleRatio"] + one["busyRatio"] == pytest.approx(1.0, abs=0.01)
    assert pressure["subtasks"][0]["busyRatio"] > pressure["subtasks"][1]["busyRatio"] == 0
    (of_all,) = await world.get(f"{base}/subtasks/metrics?get=numRecordsInPerSecond")
    each = await world.get(
        f"{base}/metrics", get=",".join(f"{n}.numRecordsInPerSecond" for n in range(count))
    )
    values = [float(one["value"]) for one in each]
    assert values[0] > 0 and values[1:] == [0.0] * (count - 1)
    assert (of_all["min"], of_all["sum"]) == pytest.approx((0.0, values[0]), rel=0.5)
    # Nobody knows a part of it.
    assert await world.get(f"{base}/metrics", get="0.stateRows,0.numTasksObserved") == []


async def test_before_anything_is_measured_the_answers_are_empty(world: World) -> None:
    job_id = await world.submit()
    vertex = await world.vertex(job_id, "delays")
    base = f"/jobs/{job_id}/vertices/{vertex}"
    assert await world.get(f"{base}/watermarks") == []
    pressure = await world.get(f"{base}/backpressure")
    assert (pressure["status"], pressure["backpressureLevel"], pressure["subtasks"]) == (
        "deprecated",
        None,
        [],
    )
    metrics = {one["id"]: one["value"] for one in await world.get("/taskmanagers/host/metrics?get=tasksDone")}
    assert float(metrics["tasksDone"]) == 0.0


@pytest.mark.parametrize(
    "path",
    [
        "/taskmanagers/nope/metrics",
        "/taskmanagers/nope/log",
        "/jobs/{job}/vertices/" + "f" * 32 + "/watermarks",
    ],
)
async def test_what_is_not_there_is_404_with_a_sentence(world: World, path: str) -> None:
    answer = await world.http.get(path.format(job=await world.submit()))
    assert answer.status_code == 404
    assert answer.json()["errors"][0].endswith(".")


async def test_a_flame_graph_of_nothing_that_there_is_is_refused(world: World) -> None:
    job_id = await world.submit()
    base = f"/jobs/{job_id}/vertices/{await world.vertex(job_id, 'delays')}"
    for query in ("type=NOPE", "subtaskindex=-1", "subtaskindex=x"):
        assert (await world.http.get(f"{base}/flamegraph?{query}")).status_code == 400
