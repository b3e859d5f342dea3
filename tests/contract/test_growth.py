"""The job graph grows while a program runs: what its driver tells of the queries that it starts and ends."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from typing import Any

from app.model.ids import vertex_id
from app.model.jobgraph import Role
from app.model.planned import PlannedVertex
from tests.contract.test_events import stored
from tests.contract.test_programs import COPY, NAMES, PROGRAM, STORE, requirements
from tests.contract.test_programs import running as running_program
from tests.contract.world import RESTART_AT_ONCE, World, bounds, eventually

GOLD = (
    PlannedVertex("events", Role.SOURCE, "parquet"),
    PlannedVertex("per-hour", Role.OPERATOR, "Aggregate", ("events",), True, 6),
    PlannedVertex("gold", Role.SINK, "parquet", ("per-hour",), checkpoint="/checkpoints/gold"),
)
KEY = vertex_id("word-count", "gold")


async def running(world: World, **change: Any) -> str:
    return await running_program(world, {"config": {**PROGRAM["config"], **RESTART_AT_ONCE}, **change})


async def start(world: World, vertices: tuple[PlannedVertex, ...] = GOLD, parallelism: int = 2) -> None:
    await world.driver().tell(
        type="query-started",
        query=vertex_id("word-count", vertices[-1].name),
        planned=[asdict(vertex) for vertex in vertices],
        parallelism={vertex_id("word-count", vertex.name): parallelism for vertex in vertices},
    )


async def vertices_of(world: World, job_id: str) -> dict[str, Any]:
    return {each["name"]: each for each in (await world.get(f"/jobs/{job_id}"))["vertices"]}


async def test_a_query_that_is_started_is_durable_when_its_driver_has_the_answer(any_world: World) -> None:
    world = any_world
    job_id = await running(world)
    before = (await requirements(world, job_id)).headers["ETag"]
    await start(world)
    kept = await world.store.load_job(job_id)
    assert kept is not None
    assert [each["name"] for each in json.loads(kept.document)["vertices"]] == [
        *NAMES,
        *(each.name for each in GOLD),
    ]
    found = await vertices_of(world, job_id)
    assert [found[each.name]["status"] for each in GOLD] == ["RUNNING"] * 3
    # It was started with two, and gets the slots that are there.
    await eventually(lambda: _is_at(world, job_id, "gold", 6), "gold at its upper bound")
    answer = await requirements(world, job_id)
    assert answer.headers["ETag"] != before
    assert answer.json()[KEY] == {"parallelism": {"lowerBound": 1, "upperBound": 6}}


async def _is_at(world: World, job_id: str, name: str, parallelism: int) -> bool:
    return bool((await vertices_of(world, job_id))[name]["parallelism"] == parallelism)


async def test_bounds_that_were_read_before_the_graph_has_grown_are_stale(world: World) -> None:
    job_id = await running(world)
    etag = (await requirements(world, job_id)).headers["ETag"]
    await start(world)
    old = bounds(**dict.fromkeys(NAMES, (1, 2)))
    assert (await world.put(job_id, old, **{"If-Match": etag})).status_code == 412
    answer = await world.put(job_id, old)
    assert answer.status_code == 400
    assert "bounds are missing for job vertices" in answer.text and "gold" in answer.text
    assert (
        await world.put(job_id, {**old, **bounds(events=(1, 2), gold=(1, 2), **{"per-hour": (1, 2)})})
    ).is_success


async def test_the_history_and_the_events_tell_of_it(world: World) -> None:
    job_id = await running(world)
    await start(world)
    records = await world.get(f"/jobs/{job_id}/rescales/history")
    grown = [one for one in records if one["triggerCause"] == "INITIAL_SCHEDULE"]
    # The first query is of the start of the job; the second, and this one, have records of their own.
    assert [one["terminalState"] for one in grown] == ["COMPLETED"] * 3
    told = await stored(world, f"/jobs/{job_id}/events")
    added = [one["added"] for one in told if one["type"] == "graph"]
    assert [sorted(one.values()) for one in added] == [
        ["counts", "store", "words"],
        ["copy", "raw"],
        ["events", "gold", "per-hour"],
    ]


async def test_the_next_attempt_has_the_bounds_that_were_declared_for_it(world: World) -> None:
    job_id = await running(world)
    await start(world)
    every = [*NAMES, *(each.name for each in GOLD)]
    assert (await world.put(job_id, bounds(**dict.fromkeys(every, (1, 3))))).is_success
    first = world.driver()
    first.die(-9)

    async def again() -> bool:
        return world.driver() is not first and world.driver().parallelism != {}

    await eventually(again, "another attempt")
    spec = world.driver().spec
    assert [each["name"] for each in spec["graph"]["vertices"]] == every
    assert spec["parallelism"][KEY] == 3
    # Its program has not started it yet, but the two others: the job is RUNNING with the first one.
    await world.status(job_id, "RUNNING")

    async def others() -> bool:
        return (await vertices_of(world, job_id))["copy"]["status"] == "RUNNING"

    await eventually(others, "the query before it")
    assert (await vertices_of(world, job_id))["gold"]["status"] == "CREATED"
    explained = await world.get(f"/jobs/{job_id}/explanation")
    assert "not started in this attempt: gold." in " ".join(explained["sentences"])
    await start(world, parallelism=3)
    assert (await vertices_of(world, job_id))["gold"]["status"] == "RUNNING"
    assert (await requirements(world, job_id)).json()[KEY]["parallelism"]["upperBound"] == 3


async def test_a_query_that_has_ended_is_finished_and_may_be_left_out_of_a_put(world: World) -> None:
    job_id = await running(world)
    await start(world)
    await world.driver().tell(type="query-ended", query=KEY)
    found = await vertices_of(world, job_id)
    assert {each.name: found[each.name]["status"] for each in GOLD} == {
        each.name: "FINISHED" for each in GOLD
    }
    assert found["store"]["status"] == "RUNNING"
    assert (await world.put(job_id, bounds(**dict.fromkeys(NAMES, (1, 2))))).is_success
    kept = (await requirements(world, job_id)).json()[KEY]
    assert kept == {"parallelism": {"lowerBound": 1, "upperBound": 6}}
    await start(world)
    assert (await vertices_of(world, job_id))["gold"]["status"] == "RUNNING"


async def test_bounds_of_a_vertex_that_comes_later_wait_for_it(any_world: World) -> None:
    world = any_world
    said = {
        "gold": {"lowerBound": 2, "upperBound": 3},
        "per-hours": {"upperBound": 9},
        "per-hour": {"upperBound": 99},
    }
    job_id = await running(world, bounds=said)
    told = " ".join((await world.get(f"/jobs/{job_id}/explanation"))["sentences"])
    assert "The bounds of 'gold' wait for a vertex of this name." in told
    await start(world, parallelism=1)
    found = (await requirements(world, job_id)).json()
    assert found[KEY] == {"parallelism": {"lowerBound": 2, "upperBound": 3}}
    # Its state allows no more.
    assert found[vertex_id("word-count", "per-hour")]["parallelism"]["upperBound"] == 6
    told = " ".join((await world.get(f"/jobs/{job_id}/explanation"))["sentences"])
    assert "'gold'" not in told
    assert "The bounds of 'per-hours' wait for a vertex of this name. Did you mean 'per-hour'?" in told


async def test_vertices_that_are_no_graph_end_the_job_with_a_sentence(world: World) -> None:
    job_id = await running(world)
    wrong = (PlannedVertex("gold", Role.SINK, "parquet", ("nowhere",)),)
    telling = asyncio.create_task(start(world, wrong))
    await world.status(job_id, "FAILED")
    telling.cancel()
    (entry,) = (await world.get(f"/jobs/{job_id}/exceptions"))["exceptionHistory"]["entries"]
    told = entry["message"]
    assert "The driver told of a query that cannot be part of the job" in told and "nowhere" in told


async def test_known_queries_are_started_in_what_time_the_program_wants(world: World) -> None:
    job_id = await running(world)
    world.host.queries = ()
    first = world.driver()
    first.die(-9)

    async def begun() -> bool:
        driver = world.driver()
        return driver is not first and driver.has_begun

    await eventually(begun, "another attempt")
    details = await world.get(f"/jobs/{job_id}")
    assert (details["state"], details["schedulerState"]) == ("CREATED", "Executing")
    assert [(each["name"], each["status"]) for each in details["vertices"]] == [
        (name, "CREATED") for name in NAMES
    ]
    await world.driver().start(STORE)
    await world.driver().start(COPY)
    await world.status(job_id, "RUNNING")


async def test_a_document_does_not_grow(world: World) -> None:
    job_id = await world.running()
    before = await world.get(f"/jobs/{job_id}/graph")
    await start(world)
    assert await world.get(f"/jobs/{job_id}/graph") == before
