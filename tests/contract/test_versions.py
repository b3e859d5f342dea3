"""PUT /jobs/:jobid/graph: a new version of a running job, on trial, and taken back. The drivers keep the protocol.
Those of programs: test_program_versions.py; of both, with environments: test_version_environments.py."""

from __future__ import annotations

import copy
from typing import Any

import httpx

from tests.contract.world import GRAPH, RESTART_AT_ONCE, World, bounds, eventually

AT_ONCE = {
    **RESTART_AT_ONCE,
    "jobmanager.adaptive-scheduler.submission.resource-stabilization-timeout": "0 ms",
}


def graph(**change: Any) -> dict[str, Any]:
    made = copy.deepcopy({**GRAPH, "config": AT_ONCE, **change})
    return made


def next_graph() -> dict[str, Any]:
    """The same with a vertex more and other SQL."""
    made = graph(name="another name")
    flights, delays, store = made["vertices"]
    late = {"name": "late", "inputs": ["flights"], "sql": "SELECT * FROM flights WHERE value > 1"}
    delays = {**delays, "inputs": ["late"], "sql": delays["sql"].replace("flights", "late")}
    made["vertices"] = [flights, late, delays, store]
    return made


async def replace(world: World, job_id: str, document: Any, query: str = "") -> httpx.Response:
    return await world.http.put(f"/jobs/{job_id}/graph{query}", json=document)


async def outcome(world: World, job_id: str, number: int, wanted: str) -> dict[str, Any]:
    async def there() -> Any:
        versions = (await world.get(f"/jobs/{job_id}/versions"))["versions"]
        found = [one for one in versions if one["version"] == number and one["outcome"] == wanted]
        return found and found[0]

    return dict(await eventually(there, f"version {number} is {wanted}"))


async def names(world: World, job_id: str) -> list[str]:
    return [one["name"] for one in (await world.get(f"/jobs/{job_id}/graph"))["vertices"]]


async def test_a_new_version_goes_on_under_the_same_id(any_world: World) -> None:
    world = any_world
    job_id = await world.running(graph())
    assert (await world.put(job_id, bounds(flights=(1, 2), delays=(1, 3), store=(1, 1)))).status_code == 200
    before = world.driver()
    assert (await world.get(f"/jobs/{job_id}/versions"))["versions"][0]["outcome"] == "IN_FORCE"
    answer = await replace(world, job_id, next_graph())
    assert answer.status_code == 202, answer.text
    assert answer.json() == {"version": 2, "versionsUrl": f"/jobs/{job_id}/versions"}
    await outcome(world, job_id, 2, "IN_FORCE")
    assert (await outcome(world, job_id, 1, "REPLACED"))["why"] == "By version 2."
    driver = world.driver()
    assert driver is not before and not before.alive
    assert [one["name"] for one in driver.spec["graph"]["vertices"]] == ["flights", "late", "delays", "store"]
    assert driver.spec["checkpoint_dir"] == before.spec["checkpoint_dir"]
    stored = await world.get(f"/jobs/{job_id}/graph")
    assert stored["name"] == GRAPH["name"] and await names(world, job_id) == [
        "flights",
        "late",
        "delays",
        "store",
    ]
    wanted = await world.get(f"/jobs/{job_id}/resource-requirements")
    delays = wanted[await world.vertex(job_id, "delays")]
    assert delays["parallelism"] == {"lowerBound": 1, "upperBound": 3}, "what was declared is kept"
    history = await world.get(f"/jobs/{job_id}/rescales/history")
    assert any("Version 2 of the job" in (one.get("message") or "") for one in history)
    assert (await world.get(f"/jobs/{job_id}"))["name"] == GRAPH["name"]


async def test_a_dry_run_changes_nothing(world: World) -> None:
    job_id = await world.running(graph())
    answer = await replace(world, job_id, next_graph(), "?dryRun=true")
    assert answer.status_code == 200
    assert [one["name"] for one in answer.json()["vertices"]] == ["flights", "late", "delays", "store"]
    assert await names(world, job_id) == ["flights", "delays", "store"]
    assert (await world.get(f"/jobs/{job_id}/versions"))["current"] == 1


async def test_what_does_not_fit_the_checkpoints_is_found_before_anything_stops(world: World) -> None:
    job_id = await world.running(graph())
    driver = world.driver()

    async def refused(change: Any, sentence: str, status: int = 400) -> None:
        made = graph()
        change(made["vertices"])
        answer = await replace(world, job_id, made)
        assert answer.status_code == status, answer.text
        assert any(sentence in error for error in answer.json()["errors"]), answer.text

    def another_source(vertices: list[dict[str, Any]]) -> None:
        vertices[0]["source"] = {"format": "rate-micro-batch", "options": {"rowsPerBatch": "10"}}

    def another_sink(vertices: list[dict[str, Any]]) -> None:
        vertices[2]["name"] = "stores"

    def more_state(vertices: list[dict[str, Any]]) -> None:
        vertices[1]["maxParallelism"] = 24

    await refused(another_source, "reads rate-micro-batch as 'flights' now, and its checkpoint is of rate")
    await refused(another_sink, "The query of 'store' is not there any more")
    await refused(more_state, "has 24 state partitions now, and its state has 12: leave maxParallelism")
    assert world.driver() is driver and driver.alive
    batch = {**graph(), "type": "BATCH"}
    assert (await replace(world, job_id, batch)).status_code == 400
    assert (await replace(world, "0" * 32, graph())).status_code == 404


async def test_a_version_that_fails_is_taken_back(any_world: World) -> None:
    world = any_world
    job_id = await world.running(graph())
    world.host.fail_next = "KeyError: 'k'"
    assert (await replace(world, job_id, next_graph())).status_code == 202
    taken = await outcome(world, job_id, 2, "TAKEN_BACK")
    assert "KeyError" in taken["why"]
    await outcome(world, job_id, 1, "IN_FORCE")
    assert await names(world, job_id) == ["flights", "delays", "store"]
    await world.status(job_id, "RUNNING")
    assert [one["name"] for one in world.driver().spec["graph"]["vertices"]] == ["flights", "delays", "store"]
    # The next one has a number of its own.
    assert (await replace(world, job_id, next_graph())).json()["version"] == 3
    await outcome(world, job_id, 3, "IN_FORCE")


async def test_a_second_one_meanwhile_is_refused(world: World) -> None:
    job_id = await world.running(graph())
    world.host.hold()
    assert (await replace(world, job_id, next_graph())).status_code == 202
    answer = await replace(world, job_id, next_graph())
    assert answer.status_code == 409
    assert "is being replaced already. Version 2 is" in answer.json()["errors"][0]
    world.host.release()
    await outcome(world, job_id, 2, "IN_FORCE")


async def test_jobs_that_cannot_be_replaced(world: World) -> None:
    job_id = await world.running(graph())
    await world.http.patch(f"/jobs/{job_id}?mode=cancel")
    await world.status(job_id, "CANCELED")
    answer = await replace(world, job_id, graph())
    assert answer.status_code == 409
    assert "has reached the terminal state CANCELED: it cannot be replaced" in answer.json()["errors"][0]
