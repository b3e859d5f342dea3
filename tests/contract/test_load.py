"""What the server tells of a job's load: names, values, steps, and a job that falls behind."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from app.model.measured import ExecutorLoad
from tests.contract.world import GRAPH, RESTART_AT_ONCE, World, bounds, eventually


async def test_the_subtasks_of_a_vertex_add_up_to_it(world: World) -> None:
    job_id = await world.running()
    by_task = {"busy_ms": [3, 0], "records_in": [5, 2], "records_out": [0, 9]}
    world.driver().vertex_load |= {"records_in": 7, "busy_ms": 3, "tasks": 2, "by_task": by_task}
    vertex = await world.vertex(job_id, "delays")

    async def told() -> bool:
        one = await world.get(f"/jobs/{job_id}/vertices/{vertex}")
        return bool(one["aggregated"]["metrics"]["read-records"]["sum"] % 2)

    await eventually(told, "an odd number of rows")
    world.host.hold()
    one = await world.get(f"/jobs/{job_id}/vertices/{vertex}")
    summary = next(each for each in (await world.get(f"/jobs/{job_id}"))["vertices"] if each["id"] == vertex)
    assert len(one["subtasks"]) == 2
    first, second = (subtask["metrics"] for subtask in one["subtasks"])
    assert first["read-records"] > second["read-records"] > 0
    assert (first["write-records"], second["accumulated-busy-time"]) == (0, 0)
    assert second["accumulated-idle-time"] > first["accumulated-idle-time"]
    for name, aggregate in one["aggregated"]["metrics"].items():
        shares = [subtask["metrics"][name] for subtask in one["subtasks"]]
        assert sum(shares) == aggregate["sum"]
        assert (aggregate["min"], aggregate["max"]) == (min(shares), max(shares))
        assert (aggregate["p25"], aggregate["p95"]) == (min(shares), max(shares))
        assert aggregate["sum"] <= summary["metrics"][name] or not name.startswith("accumulated")
    assert first["read-records-complete"] and not first["read-bytes-complete"]


async def test_figures_that_a_driver_does_not_tell_are_not_complete(world: World) -> None:
    job_id = await world.running()
    (metrics, *_) = [each["metrics"] for each in (await world.get(f"/jobs/{job_id}"))["vertices"]]
    assert metrics["write-records-complete"] is True and metrics["write-records"] > 0
    assert metrics["write-bytes-complete"] is False and metrics["write-bytes"] == 0


@pytest.mark.parametrize(("step", "step_ms"), [(None, 5_000), (5, 5_000), (60, 60_000)])
async def test_the_load_of_the_last_minutes(world: World, step: int | None, step_ms: int) -> None:
    job_id = await world.running()
    found = await world.get(f"/jobs/{job_id}/load", **({} if step is None else {"step": step}))
    assert found["stepInMillis"] == step_ms
    lists = [found[name] for name in ("startTimestampsInMillis", "numRecordsInPerSecond", "pendingRecords")]
    lists += [
        found["longestBatchInMillis"],
        found["batchTimeMsPerSecond"],
        *found["busyTimeMsPerSecond"].values(),
    ]
    assert len({len(one) for one in lists}) == 1 and lists[0]
    assert all(at_ms % step_ms == 0 for at_ms in lists[0])
    assert max(found["numRecordsInPerSecond"]) > 0
    assert set(found["busyTimeMsPerSecond"]) == {
        each["id"] for each in (await world.get(f"/jobs/{job_id}"))["vertices"]
    }


async def test_of_a_job_that_has_ended_the_counters_are_left(world: World) -> None:
    job_id = await world.running()
    await world.http.patch(f"/jobs/{job_id}", params={"mode": "cancel"})
    await world.status(job_id, "CANCELED")
    assert (await world.get(f"/jobs/{job_id}/load"))["startTimestampsInMillis"] == []
    (metrics, *_) = [each["metrics"] for each in (await world.get(f"/jobs/{job_id}"))["vertices"]]
    assert metrics["write-records"] > 0


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("/jobs/{job}/load?step=7", "The query parameter step should be 5 or 60, found '7'."),
        ("/jobs/{job}/load?step=", "The query parameter step should be 5 or 60"),
        ("/jobs/{job}/load?steps=5", "steps"),
        (
            "/taskmanagers/metrics?agg=mean",
            "The query parameter agg should be some of min, max, sum, avg, skew",
        ),
        ("/taskmanagers/metrics?taskmanagers=a", "taskmanagers"),
    ],
)
async def test_bad_parameters_are_named(world: World, path: str, sentence: str) -> None:
    answer = await world.http.get(path.format(job=await world.submit()))
    assert answer.status_code == 400
    (error,) = answer.json()["errors"]
    assert sentence in error


async def test_metrics_of_a_job_tell_how_far_it_is_behind(world: World) -> None:
    job_id = await world.running()
    world.driver().load |= {
        "watermark_ms": 1_000_000,
        "phases_ms": {"addBatch": 4, "commitOffsets": 1},
        "backlog_rows": 40,
    }
    wanted = "pendingRecords,watermarkLag,lastBatchDuration.addBatch,batchTimeMsPerSecond"

    async def told() -> Any:
        found = await world.get(f"/jobs/{job_id}/metrics", get=wanted)
        values = {one["id"]: float(one["value"]) for one in found}
        return values if set(values) == set(wanted.split(",")) else None

    values = await eventually(told, "the metrics")
    assert values["pendingRecords"] == 40 and values["lastBatchDuration.addBatch"] == 4
    assert values["watermarkLag"] > 10**12 and 0 < values["batchTimeMsPerSecond"] <= 1000


async def test_an_explanation_says_that_batches_fill_the_time_and_of_which_vertex(world: World) -> None:
    job_id = await world.running()
    driver = world.driver()
    driver.vertex_load |= {"busy_ms": 400, "longest_task_ms": 300, "median_task_ms": 100}
    driver.load["backlog_rows"] = None
    driver.batch_ms = 10_000

    async def told() -> Any:
        sentences = (await world.get(f"/jobs/{job_id}/explanation"))["sentences"]
        return next((one for one in sentences if " limits it: " in one), None)

    sentence = await eventually(told, "a bottleneck")
    assert sentence.endswith("It runs at its upper bound.")


async def test_the_executors_of_a_job_are_those_that_its_driver_reported_last(world: World) -> None:
    job_id = await world.running()
    path = f"/jobs/{job_id}/executors"
    assert await world.get(path) == {"reportedTimestampInMillis": None, "executors": []}
    figures = {field.name: number for number, field in enumerate(fields(ExecutorLoad))}
    told = [figures | {"executor_id": name, "host": "here"} for name in ("driver", "0")]
    world.driver().load["executor_loads"] = told
    found = await eventually(lambda: reported(world, path), "executors")
    assert [each["id"] for each in found["executors"]] == ["driver", "0"]
    assert found["executors"][1] == {
        "id": "0",
        "host": "here",
        "heapUsedInBytes": 2,
        "heapMaxInBytes": 3,
        "gcTimeInMillis": 4,
        "diskUsedInBytes": 5,
        "cores": 6,
        "tasksDone": 7,
        "tasksFailed": 8,
        "runTimeInMillis": 9,
    }
    await world.http.patch(f"/jobs/{job_id}", params={"mode": "cancel"})
    await world.status(job_id, "CANCELED")
    assert (await world.get(path))["executors"] == []


async def test_those_of_an_attempt_that_has_ended_are_not_told(world: World) -> None:
    backoff = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "1 h"}
    job_id = await world.running({**GRAPH, "config": backoff})
    figures = {field.name: 3 for field in fields(ExecutorLoad)}
    world.driver().load["executor_loads"] = [figures | {"executor_id": "0", "host": "here"}]
    path = f"/jobs/{job_id}/executors"
    await eventually(lambda: reported(world, path), "executors")
    heap = "Status.JVM.Memory.Heap.Used"
    assert (await world.get("/taskmanagers/metrics", get=heap))[0]["max"] == 3
    world.driver().die(1)
    await world.status(job_id, "RESTARTING")
    assert await world.get(path) == {"reportedTimestampInMillis": None, "executors": []}
    assert (await world.get("/taskmanagers/metrics", get=heap))[0]["max"] == 0


async def reported(world: World, path: str) -> Any:
    found = await world.get(path)
    return found if found["executors"] else None


async def test_tokens_and_head(world: World) -> None:
    job_id = await world.submit()
    for path in (f"/jobs/{job_id}/load", f"/jobs/{job_id}/executors", "/taskmanagers/metrics"):
        assert (await world.http.head(path)).status_code == 200
        assert (await world.http.post(path)).status_code == 405


async def test_a_batch_job_has_no_load_of_micro_batches(world: World) -> None:
    source = {"format": "csv", "path": "/data/in", "schema": "a INT"}
    graph = {
        "name": "nightly",
        "type": "BATCH",
        "vertices": [
            {"name": "rows", "source": source},
            {"name": "out", "inputs": ["rows"], "sink": {"format": "parquet", "path": "/data/out"}},
        ],
    }
    job_id = await world.submit(graph)
    assert (await world.get(f"/jobs/{job_id}/load"))["numRecordsInPerSecond"] == []
    vertex = await world.vertex(job_id, "rows")
    assert await world.get(f"/jobs/{job_id}/vertices/{vertex}/subtasks/metrics") == []


def batch_of(store: str, **fields: Any) -> dict[str, Any]:
    told = {"query": store, "query_id": "query", "run_id": "run", "batch_id": 10_000, "ran_ms": 70_000}
    return {**told, "plan_version": 1, "tasks_done": 40, "tasks_known": 96, "rows": 5_000, **fields}


async def test_a_batch_that_takes_long_is_shown_while_it_runs_with_what_waits_for_it(world: World) -> None:
    job_id = await world.running()
    world.host.hold()
    store, driver = await world.vertex(job_id, "store"), world.driver()
    await driver.tell(type="executors", long_batches=[batch_of(store)])
    (batch,) = (await world.get(f"/jobs/{job_id}/load"))["longBatches"]
    since_ms, seen_ms = batch.pop("startTimestampInMillis"), batch.pop("reportedTimestampInMillis")
    assert seen_ms - since_ms == 70_000
    assert batch == {
        "queryId": "query",
        "runId": "run",
        "vertexId": store,
        "vertexName": "store",
        "batchId": 10_000,
        "planVersion": 1,
        "tasksDone": 40,
        "tasksKnown": 96,
        "numRecords": 5_000,
        "waiting": None,
        "waitingInWords": None,
        "rescaleUuid": None,
        "waitingSinceTimestampInMillis": None,
        "interruptionTimestampInMillis": None,
    }
    answer = await world.put(job_id, bounds(flights=(1, 2), delays=(1, 4), store=(1, 1)))
    known = "The job has been in batch 10000, of 5,000 rows, for 70 s, with 40 of 96 tasks done"

    async def said() -> bool:
        sentences = (await world.get(f"/jobs/{job_id}/explanation"))["sentences"]
        return f"{known}; the rescale to 4 waits for its end." in sentences

    await eventually(said, "the rescale that waits")
    await driver.tell(type="executors", long_batches=[batch_of(store, waited_ms=4_000, tasks_known=0)])
    (batch,) = (await world.get(f"/jobs/{job_id}/load"))["longBatches"]
    assert (batch["waiting"], batch["waitingInWords"]) == ("RESCALE", "the rescale to 4")
    assert (batch["tasksDone"], batch["tasksKnown"]) == (None, None)
    assert batch["rescaleUuid"] == answer.headers["x-slotwise-rescale"]
    due_ms = batch["reportedTimestampInMillis"] + 26_000
    assert batch["interruptionTimestampInMillis"] == due_ms
    assert batch["waitingSinceTimestampInMillis"] == due_ms - 30_000
    # It ends, and the rescale with it.
    driver.batch_id = 9_999
    world.host.release()
    await world.completed(job_id, 2)
    assert (await world.get(f"/jobs/{job_id}/load"))["longBatches"] == []


async def test_it_is_gone_with_its_driver_and_its_job(world: World) -> None:
    job_id = await world.running({**GRAPH, "config": RESTART_AT_ONCE})
    world.host.hold()
    told = {"type": "executors", "long_batches": [batch_of(await world.vertex(job_id, "store"))]}
    await world.driver().tell(**told)

    async def shown() -> Any:
        return (await world.get(f"/jobs/{job_id}/load"))["longBatches"]

    assert len(await shown()) == 1
    world.driver().die(7)

    async def again() -> bool:
        found = await world.get(f"/jobs/{job_id}")
        return bool(found["attempt"] == 2 and found["state"] == "RUNNING")

    await eventually(again, "the next attempt")
    assert await shown() == []
    await world.driver().tell(**told)
    assert len(await shown()) == 1
    await world.http.patch(f"/jobs/{job_id}", params={"mode": "cancel"})
    await world.status(job_id, "CANCELED")
    assert await shown() == []
