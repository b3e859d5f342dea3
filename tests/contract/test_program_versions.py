"""PUT /jobs/:jobid/graph of a program: it begins with the vertices of the version before, and a wrong version is taken
back. The drivers keep the protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from app.model.ids import vertex_id
from app.model.jobgraph import Role
from app.model.planned import PlannedVertex
from tests.contract.test_programs import (
    COPY,
    NAMES,
    PROGRAM,
    SCRIPT,
    STORE,
    begun,
    form,
    has_vertices,
    post,
    requirements,
)
from tests.contract.test_programs import running as running_program
from tests.contract.test_versions import graph, outcome
from tests.contract.world import RESTART_AT_ONCE, World, bounds, eventually

CONFIG = {**PROGRAM["config"], **RESTART_AT_ONCE}
NEXT = {**PROGRAM, "config": CONFIG, "name": "word_count_2", "args": ["--topic", "more"]}


async def running(world: World, **change: Any) -> str:
    return await running_program(world, {"config": CONFIG, **change})


async def put(
    world: World, job_id: str, script: bytes = SCRIPT, query: str = "", **change: Any
) -> httpx.Response:
    files = form({**NEXT, **change}, word_count__py=script)
    return await world.http.put(f"/jobs/{job_id}/graph{query}", files=files)


async def upper_bounds(world: World, job_id: str) -> dict[str, int]:
    declared = (await requirements(world, job_id)).json()
    ids = {name: vertex_id("word-count", name) for name in NAMES}
    return {name: declared[key]["parallelism"]["upperBound"] for name, key in ids.items()}


async def test_a_new_version_has_its_own_files_and_begins_with_the_vertices_of_the_one_before(
    any_world: World,
) -> None:
    world = any_world
    job_id = await running(world, bounds={"counts": {"upperBound": 3}})
    before = world.driver()
    assert before.spec["on_trial"] is False
    shown = await put(world, job_id, b"print(2)\n", "?dryRun=true")
    assert (shown.status_code, [one["name"] for one in shown.json()["vertices"]]) == (200, NAMES)
    assert world.driver() is before and before.alive
    answer = await put(world, job_id, b"print(2)\n")
    assert answer.status_code == 202, answer.text
    await outcome(world, job_id, 2, "IN_FORCE")
    spec = world.driver().spec
    job_dir = world.directory / "jobs" / job_id
    assert spec["on_trial"] is True
    assert spec["artifacts_dir"] == str(job_dir / "artifacts-2")
    assert (Path(spec["artifacts_dir"]) / "word_count.py").read_bytes() == b"print(2)\n"
    assert spec["graph"]["args"] == ["--topic", "more"] and spec["graph"]["name"] == "word-count"
    assert [one["name"] for one in spec["graph"]["vertices"]] == NAMES
    assert (await upper_bounds(world, job_id))["counts"] == 3, (
        "of what it does not say is kept what was before"
    )
    assert await world.store.artifacts(job_id, 2) == {"word_count.py": b"print(2)\n"}
    assert (await world.store.artifacts(job_id))["word_count.py"] == SCRIPT

    # Once there is a third one, nobody needs the first.
    assert (await put(world, job_id)).status_code == 202
    await outcome(world, job_id, 3, "IN_FORCE")
    assert sorted(path.name for path in job_dir.glob("artifacts*")) == ["artifacts-2", "artifacts-3"]
    assert await world.store.artifacts(job_id) == {}
    assert (await world.get(f"/jobs/{job_id}/versions"))["current"] == 3


async def test_its_document_changes_the_bounds_that_it_names_and_those_that_were_put_stay(
    world: World,
) -> None:
    job_id = await running(world, bounds={"counts": {"upperBound": 3}})
    declared = bounds(words=(1, 2), counts=(1, 3), store=(1, 4), raw=(1, 5), copy=(1, 6))
    assert (await world.put(job_id, declared)).status_code == 200
    said = {"counts": {"upperBound": 7}, "copied": {"upperBound": 2}}
    assert (await put(world, job_id, bounds=said)).status_code == 202
    await outcome(world, job_id, 2, "IN_FORCE")
    assert await upper_bounds(world, job_id) == {"words": 2, "counts": 7, "store": 4, "raw": 5, "copy": 6}
    told = " ".join((await world.get(f"/jobs/{job_id}/explanation"))["sentences"])
    assert "The bounds of 'copied' wait for a vertex of this name. Did you mean 'copy'?" in told


async def test_a_query_that_is_new_comes_behind_those_before_and_one_that_is_gone_is_said(
    world: World,
) -> None:
    job_id = await running(world)
    late = PlannedVertex("late", Role.SINK, "parquet", ("events",))
    world.host.queries = (STORE, (PlannedVertex("events", Role.SOURCE, "rate"), late))
    assert (await put(world, job_id)).status_code == 202
    await outcome(world, job_id, 2, "IN_FORCE")
    await eventually(lambda: has_vertices(world, job_id, [*NAMES, "events", "late"]), "the new vertices")
    told = " ".join((await world.get(f"/jobs/{job_id}/explanation"))["sentences"])
    assert "Queries that the program has not started in this attempt: copy." in told


async def test_a_version_that_the_driver_refuses_is_taken_back_with_its_sentence(any_world: World) -> None:
    world = any_world
    job_id = await running(world)
    sentence = (
        "word_count.py, line 9: the query of store has its checkpoint in '/c' now, and had it with the job."
    )
    world.host.fail_next = sentence
    assert (await put(world, job_id)).status_code == 202
    taken = await outcome(world, job_id, 2, "TAKEN_BACK")
    assert sentence in taken["why"]
    await outcome(world, job_id, 1, "IN_FORCE")
    await world.status(job_id, "RUNNING")
    assert world.driver().spec["artifacts_dir"] == str(world.directory / "jobs" / job_id / "artifacts")
    assert world.driver().spec["on_trial"] is False
    assert [one["name"] for one in (await world.get(f"/jobs/{job_id}/graph"))["vertices"]] == NAMES


async def test_what_can_be_said_without_running_it_stops_nothing(world: World) -> None:
    job_id = await running(world)
    driver = world.driver()
    for answer, sentence in (
        (await put(world, job_id, b"def f(:\n"), "word_count.py, line 1: SyntaxError"),
        (await put(world, job_id, bounds={"a": {"lowerBound": 2, "upperBound": 1}}), "bounds.a.lowerBound"),
        (await put(world, job_id, type="BATCH", config={}), "a new version of a STREAMING job is STREAMING"),
        (
            await world.http.put(f"/jobs/{job_id}/graph", json=graph()),
            "The job is a program and its new version a graph",
        ),
        (
            await put(world, await world.running(graph(name="numbers"))),
            "The job is a graph and its new version a program",
        ),
    ):
        assert answer.status_code == 400 and sentence in answer.text, answer.text
    assert driver.alive
    assert (await world.get(f"/jobs/{job_id}/versions"))["current"] == 1


async def test_a_program_that_has_not_started_a_query_yet_may_be_replaced(world: World) -> None:
    job_id = (await post(world, {"config": CONFIG, "bounds": {"counts": {"upperBound": 3}}})).json()["jobid"]
    await begun(world, job_id)
    first = world.driver()
    assert (await put(world, job_id, bounds={"store": {"upperBound": 2}})).status_code == 202

    async def again() -> bool:
        return world.driver() is not first and world.driver().has_begun

    await eventually(again, "the driver of the new version")
    await world.driver().start(STORE)
    await world.driver().start(COPY)
    await outcome(world, job_id, 2, "IN_FORCE")
    assert await upper_bounds(world, job_id) == {"words": 12, "counts": 3, "store": 2, "raw": 12, "copy": 12}
