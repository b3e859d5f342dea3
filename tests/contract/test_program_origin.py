"""POST /jobs with `from`: a job that goes on from the checkpoint of another."""

from __future__ import annotations

from tests.contract.test_program_checkpoints import at
from tests.contract.test_programs import PROGRAM, form, post, running
from tests.contract.test_versions import outcome
from tests.contract.world import RESTART_AT_ONCE, World

CONFIG = {**PROGRAM["config"], **RESTART_AT_ONCE}


async def test_it_is_told_to_whoever_runs_the_program(world: World) -> None:
    job_id = await running(world, {"from": "/data/counts", "config": CONFIG})
    assert world.driver().spec["graph"]["from"] == "/data/counts"
    assert (await world.get(f"/jobs/{job_id}/graph"))["from"] == "/data/counts"

    # A new version goes on from what the job has, or was to go on from if it never began.
    refused = await world.http.put(f"/jobs/{job_id}/graph", files=form({**PROGRAM, "from": "/data/others"}))
    assert refused.status_code == 400
    assert "from: a new version goes on from the checkpoints of its job" in refused.json()["errors"][0]
    replaced = await world.http.put(f"/jobs/{job_id}/graph", files=form({**PROGRAM, "config": CONFIG}))
    assert replaced.status_code == 202, replaced.text
    await outcome(world, job_id, 2, "IN_FORCE")
    assert world.driver().spec["graph"]["from"] == "/data/counts"


async def test_that_of_a_job_that_has_not_ended_is_refused(world: World) -> None:
    world.host.queries = (at("/data/counts"),)
    job_id = (await post(world)).json()["jobid"]
    await world.completed(job_id, 1)
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


async def test_what_is_no_place_on_the_host_is_refused(world: World) -> None:
    answer = await post(world, {"from": "s3://bucket/counts"})
    assert answer.status_code == 400
    assert answer.json()["errors"][0].startswith("from: should be an absolute path on the host of the server")
