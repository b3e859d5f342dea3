"""POST /jobs with a BATCH program: what can be seen without running it is refused."""

from __future__ import annotations

from typing import Any

from tests.contract.test_programs import PROGRAM, form, nothing_is_left
from tests.contract.world import World

BATCH: dict[str, Any] = {**PROGRAM, "type": "BATCH", "config": {}}


async def test_a_batch_program_is_accepted_with_its_one_vertex(any_world: World) -> None:
    world = any_world
    answer = await world.http.post("/jobs?dryRun=true", files=form(BATCH))
    assert answer.status_code == 200, answer.text
    (vertex,) = answer.json()["vertices"]
    assert (vertex["name"], vertex["planned"]) == ("word_count", {"role": "PROGRAM", "operator": "batch"})
    assert (vertex["lowerBound"], vertex["parallelism"]) == (1, 32)
    await nothing_is_left(world)

    bounds = {"word_count": {"lowerBound": 1, "upperBound": 2}}
    answer = await world.http.post("/jobs", files=form({**BATCH, "bounds": bounds}))
    assert answer.status_code == 202, answer.text
    job_id = answer.json()["jobid"]
    graph = await world.get(f"/jobs/{job_id}/graph")
    assert (graph["type"], graph["script"]) == ("BATCH", "word_count.py")
    job = await world.get(f"/jobs/{job_id}")
    assert [one["name"] for one in job["vertices"]] == ["word_count"]
    stopped = await world.http.post(f"/jobs/{job_id}/stop", json={})
    assert stopped.status_code == 409, stopped.text


async def test_what_can_be_seen_without_running_it_is_refused(world: World) -> None:
    refused = [
        (
            form(BATCH, word_count__py=b"def f(:\n    pass\n"),
            "word_count.py, line 1: SyntaxError: invalid syntax",
        ),
        (
            form(BATCH, word_count__py=b"x = 1\n\x00"),
            "word_count.py, line 1: SyntaxError: source code string cannot contain null",
        ),
        (form({**BATCH, "script": "other.py"}), "other.py"),
        (form({**BATCH, "bounds": {"count": {"upperBound": 2}}}), "Its only vertex is word_count."),
        (form({**BATCH, "config": {"spark.task.cpus": "2"}}), "spark.task.cpus is not allowed"),
    ]
    for files, sentence in refused:
        answer = await world.http.post("/jobs", files=files)
        assert answer.status_code == 400 and sentence in answer.text, answer.text
        await nothing_is_left(world)
