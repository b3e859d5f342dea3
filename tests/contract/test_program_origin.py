"""POST /jobs with `from`: a job that goes on from the checkpoint of another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from app.model.planned import Planned
from tests.contract.test_programs import PLANNED, PROGRAM, answers, form, post
from tests.contract.test_versions import outcome
from tests.contract.world import RESTART_AT_ONCE, World

CONFIG = {**PROGRAM["config"], **RESTART_AT_ONCE}


async def test_it_is_told_to_whoever_plans_and_runs_the_program(world: World) -> None:
    specs: list[dict[str, Any]] = []

    async def plan(spec: dict[str, Any]) -> int:
        specs.append(spec)
        return await answers(PLANNED)(spec)

    world.host.plan = plan
    answer = await post(world, {"from": "/data/counts", "config": CONFIG})
    assert answer.status_code == 202, answer.text
    job_id = answer.json()["jobid"]
    await world.completed(job_id, 1)
    assert specs[0]["graph"]["from"] == "/data/counts" and specs[0]["checkpoint_dir"] == ""
    assert world.driver().spec["graph"]["from"] == "/data/counts"
    assert (await world.get(f"/jobs/{job_id}/graph"))["from"] == "/data/counts"

    # A new version goes on from what the job has, or was to go on from if it never began.
    refused = await world.http.put(f"/jobs/{job_id}/graph", files=form({**PROGRAM, "from": "/data/others"}))
    assert refused.status_code == 400
    assert "from: a new version goes on from the checkpoints of its job" in refused.json()["errors"][0]
    replaced = await world.http.put(f"/jobs/{job_id}/graph", files=form({**PROGRAM, "config": CONFIG}))
    assert replaced.status_code == 202, replaced.text
    await outcome(world, job_id, 2, "IN_FORCE")
    assert specs[1]["checkpoint_dir"] == str(world.directory / "jobs" / job_id / "checkpoint")
    assert "from" not in specs[1]["graph"]
    assert world.driver().spec["graph"]["from"] == "/data/counts"


async def test_that_of_a_job_that_has_not_ended_is_refused(world: World) -> None:
    vertices = tuple(
        replace(vertex, checkpoint="/data/counts") if vertex.name == "store" else vertex
        for vertex in PLANNED.vertices
    )
    world.host.plan = answers(Planned(vertices))
    job_id = (await post(world)).json()["jobid"]
    await world.completed(job_id, 1)
    world.host.plan = answers(PLANNED)
    own = world.directory / "jobs" / job_id / "checkpoint"
    for origin in (str(own), str(own / "a"), "/data/counts", "/data"):
        refused = await post(world, {"name": "next", "from": origin}, "?dryRun=true")
        assert refused.status_code == 409, refused.text
        [sentence] = refused.json()["errors"]
        assert sentence.startswith(
            f"from: the checkpoint {origin} is that of job word-count ({job_id}), which"
        )
        assert "End that job first, or replace it" in sentence
    for origin in ("/data/other", "file:/data/%63ounts"):
        assert (await post(world, {"from": origin}, "?dryRun=true")).status_code == 200
    refused = await post(world, {"name": "next", "from": "file:///data/x/../counts/"}, "?dryRun=true")
    assert refused.status_code == 409
    assert (await world.http.patch(f"/jobs/{job_id}?mode=cancel")).status_code == 202
    await world.status(job_id, "CANCELED")
    assert (await post(world, {"name": "next", "from": "/data/counts"})).status_code == 202


async def test_what_the_driver_finds_is_answered(world: World) -> None:
    sentence = "job.py, line 3: from: /data/counts is no checkpoint."
    world.host.plan = answers(Planned(error=sentence))
    answer = await post(world, {"from": "/data/counts"})
    assert (answer.status_code, answer.json()["errors"]) == (400, [sentence])
    sentence = "job.py, line 3: The checkpoint /data/counts is still being written by another driver."
    world.host.plan = answers(Planned(error=sentence, conflict=True))
    answer = await post(world, {"from": "/data/counts"})
    assert (answer.status_code, answer.json()["errors"]) == (409, [sentence])
    answer = await post(world, {"from": "s3://bucket/counts"})
    assert answer.status_code == 400
    assert answer.json()["errors"][0].startswith("from: should be an absolute path on the host of the server")
