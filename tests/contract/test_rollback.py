"""Rescales that are taken back, and reactive mode, as the API shows them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.test_bad_requirements import GOOD, path_of
from tests.contract.world import GRAPH, World, bounds, eventually

BOOM = "Vertex store failed: ConnectionError: too many connections"
CONFLICT = 409


async def taken_back(world: World) -> str:
    """A job whose driver fails just after it was rescaled."""
    job_id = await world.running()
    assert (await world.put(job_id, GOOD)).status_code == 200
    await world.completed(job_id, 2)
    assert (await world.get(f"/jobs/{job_id}/explanation"))["onTrialUntilInMillis"] is not None
    world.driver().fail(BOOM)

    async def back() -> bool:
        records = await world.get(f"/jobs/{job_id}/rescales/history")
        return bool(records[0]["rollbackOf"] and records[0]["terminalState"] == "COMPLETED")

    await eventually(back, "the rescale is taken back")
    return job_id


async def parallelism(world: World, job_id: str) -> dict[str, int]:
    return {one["name"]: one["parallelism"] for one in (await world.get(f"/jobs/{job_id}"))["vertices"]}


async def test_the_history_and_the_explanation_say_it(any_world: World) -> None:
    world = any_world
    job_id = await taken_back(world)
    back, tried = (await world.get(f"/jobs/{job_id}/rescales/history"))[:2]
    assert (tried["terminalState"], tried["rollbackOf"]) == ("COMPLETED", None), "what ended stays"
    assert back["message"].startswith(f"Takes back rescale {tried['number']} (") and BOOM in back["message"]
    assert (back["triggerCause"], back["rollbackOf"]) == ("RECOVERABLE_FAILOVER", tried["number"])
    said = await world.get(f"/jobs/{job_id}/explanation")
    assert (said["rollback"]["rescale"], said["rollback"]["reason"]) == (tried["number"], BOOM)
    assert said["onTrialUntilInMillis"] is None and said["reactive"] is False
    assert any("was taken back" in one for one in said["sentences"])
    assert {one["inForce"] for one in said["vertices"].values()} == set(said["rollback"]["backAt"].values())
    shown = (await world.http.get(path_of(job_id))).json()
    assert max(one["parallelism"]["upperBound"] for one in shown.values()) == 4, "as declared"


async def test_the_same_bounds_change_nothing_unless_they_are_a_retry(any_world: World) -> None:
    world = any_world
    job_id = await taken_back(world)
    before = await parallelism(world, job_id)
    answer = await world.put(job_id, GOOD)
    assert answer.headers["etag"] == '"2"'
    dry = await world.http.put(path_of(job_id), params={"dryRun": "true"}, json=GOOD)
    assert "taken back" in " ".join(dry.json()["explanation"])
    assert set(dry.json()["parallelism"].values()) == set(before.values())
    dry = await world.http.put(path_of(job_id), params={"dryRun": "true", "retry": "true"}, json=GOOD)
    assert max(dry.json()["parallelism"].values()) == 4
    assert await parallelism(world, job_id) == before

    answer = await world.http.put(path_of(job_id), params={"retry": "true"}, json=GOOD)
    assert answer.headers["etag"] == '"3"'

    async def there() -> bool:
        return max((await parallelism(world, job_id)).values()) == 4

    await eventually(there, "it is tried again")
    said = await world.get(f"/jobs/{job_id}/explanation")
    assert said["rollback"] is None


@pytest.mark.parametrize("value", ["yes", ""])
async def test_retry_is_true_or_false(world: World, value: str) -> None:
    job_id = await world.running()
    answer = await world.http.put(path_of(job_id), params={"retry": value}, json=GOOD)
    assert answer.status_code == 400 and "retry" in answer.json()["errors"][0]


def reactive(**config: str) -> dict[str, Any]:
    return {**GRAPH, "config": {**GRAPH.get("config", {}), "scheduler-mode": "reactive", **config}}


async def test_a_reactive_job_takes_what_there_is(world: World) -> None:
    job_id = await world.running(reactive())
    shown = (await world.http.get(path_of(job_id))).json()
    vertices = (await world.get(f"/jobs/{job_id}"))["vertices"]
    assert {one["id"]: one["maxParallelism"] for one in vertices} == {
        vertex: entry["parallelism"]["upperBound"] for vertex, entry in shown.items()
    }
    said = await world.get(f"/jobs/{job_id}/explanation")
    assert said["reactive"] is True and "reactive mode" in said["sentences"][0]
    assert said["slots"]["used"] == said["slots"]["held"] > 2, "all the slots that there are"
    config = await world.get(f"/jobs/{job_id}/rescales/config")
    assert config["schedulerExecutionMode"] == "REACTIVE"
    assert config["submissionResourceWaitTimeoutInMillis"] == -1
    assert config["submissionResourceStabilizationTimeoutInMillis"] == 0


async def test_nobody_declares_bounds_for_a_reactive_job(world: World) -> None:
    job_id = await world.running(reactive())
    before = (await world.http.get(path_of(job_id))).json()
    answer = await world.put(job_id, bounds(flights=(1, 1), delays=(1, 1), store=(1, 1)))
    assert answer.status_code == CONFLICT and "reactive mode" in answer.json()["errors"][0]
    again = await world.http.put(path_of(job_id), params={"retry": "true"}, json=before)
    assert again.status_code == CONFLICT, "nothing was taken back"
    dry = await world.http.put(path_of(job_id), params={"dryRun": "true"}, json=before)
    assert "reactive mode" in dry.json()["refused"][0]
    assert (await world.http.get(path_of(job_id))).json() == before


async def test_a_batch_job_has_no_reactive_mode(world: World) -> None:
    batch = {
        "name": "nightly",
        "type": "BATCH",
        "config": {"scheduler-mode": "reactive"},
        "vertices": [
            {"name": "in", "source": {"format": "parquet", "path": "/data"}},
            {"name": "out", "inputs": ["in"], "sink": {"format": "noop"}},
        ],
    }
    answer = await world.http.post("/jobs", json=batch)
    assert answer.status_code == 400
    assert "scheduler-mode is for STREAMING jobs" in " ".join(answer.json()["errors"])
