"""A checkpoint that a program has chosen is that of one job at a time."""

from __future__ import annotations

from dataclasses import replace

from app.model.planned import Planned
from tests.contract.test_programs import PLANNED, answers, post
from tests.contract.world import World


def planned(place: str) -> Planned:
    vertices = tuple(
        replace(vertex, checkpoint=place) if vertex.name == "store" else vertex for vertex in PLANNED.vertices
    )
    return replace(PLANNED, vertices=vertices)


async def test_a_checkpoint_belongs_to_one_job_that_lives(world: World) -> None:
    world.host.plan = answers(planned("/data/counts"))
    job_id = (await post(world)).json()["jobid"]
    await world.completed(job_id, 1)
    for query in ("", "?dryRun=true"):
        refused = await post(world, {"name": "another"}, query)
        assert refused.status_code == 409
        [sentence] = refused.json()["errors"]
        assert sentence.startswith(
            f"The checkpoint /data/counts of store is that of job word-count ({job_id}), which"
        )
        assert "give the query another checkpointLocation" in sentence
    assert len((await world.get("/jobs"))["jobs"]) == 1
    for same in ("file:///data/counts/", "////data//counts", "file:/data/x/../counts"):
        world.host.plan = answers(planned(same))
        assert (await post(world, {"name": "another"}, "?dryRun=true")).status_code == 409, same
    # Spark decodes nothing, and of a relative one only the driver knows where it is.
    for other in (
        "/data/others",
        "file:/data/%63ounts",
        "/data/counts#1",
        "s3a://data/counts",
        "data/counts",
    ):
        world.host.plan = answers(planned(other))
        assert (await post(world, {"name": "others"})).status_code == 202, other
        assert (await post(world, {"name": "more"}, "?dryRun=true")).status_code == (
            200 if other == "data/counts" else 409
        ), other
    # Once the first has ended, another job may go on with it.
    assert (await world.http.patch(f"/jobs/{job_id}?mode=cancel")).status_code == 202
    await world.status(job_id, "CANCELED")
    world.host.plan = answers(planned("/data/counts"))
    assert (await post(world, {"name": "another"})).status_code == 202


async def test_a_relative_path_is_another_checkpoint_for_each_job(world: World) -> None:
    world.host.plan = answers(planned("counts"))
    job_id = (await post(world)).json()["jobid"]
    await world.completed(job_id, 1)
    home = (await world.get(f"/jobs/{job_id}"))["workingDirectory"]
    assert home.endswith(f"/jobs/{job_id}/home")
    assert (await post(world, {"name": "another"}, "?dryRun=true")).status_code == 200
    world.host.plan = answers(planned(f"{home}/counts"))
    refused = await post(world, {"name": "another"}, "?dryRun=true")
    assert refused.status_code == 409 and f"{home}/counts" in refused.json()["errors"][0]
