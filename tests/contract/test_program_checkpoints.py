"""A checkpoint that a program has chosen is that of one job at a time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.contract.drivers import Query
from tests.contract.test_programs import STORE, post
from tests.contract.world import World


def at(place: str) -> Query:
    """A query with its checkpoint there."""
    *others, sink = STORE
    return *others, replace(sink, checkpoint=place)


async def submit(world: World, name: str, place: str) -> str:
    world.host.queries = (at(place),)
    answer = await post(
        world, {"name": name, "bounds": {key: {"upperBound": 1} for key in ("words", "counts", "store")}}
    )
    assert answer.status_code == 202, answer.text
    return str(answer.json()["jobid"])


async def failed(world: World, job_id: str) -> str:
    """The sentence with which the job has failed."""
    await world.status(job_id, "FAILED")
    (entry,) = (await world.get(f"/jobs/{job_id}/exceptions"))["exceptionHistory"]["entries"]
    return str(entry["message"])


async def test_the_job_that_comes_second_fails_with_the_sentence(any_world: World) -> None:
    world = any_world
    job_id = await submit(world, "word-count", "/data/counts")
    await world.completed(job_id, 1)
    another = await submit(world, "another", "/data/counts")
    sentence = await failed(world, another)
    assert sentence == (
        f"The checkpoint /data/counts of store is that of job word-count ({job_id}), which is RUNNING. End that job "
        "first, or give the query another checkpointLocation."
    )
    assert (await world.get(f"/jobs/{job_id}"))["state"] == "RUNNING"
    # Once the first has ended, another job may go on with it.
    assert (await world.http.patch(f"/jobs/{job_id}?mode=cancel")).status_code == 202
    await world.status(job_id, "CANCELED")
    await world.completed(await submit(world, "another", "/data/counts"), 1)


@pytest.mark.parametrize("same", ["file:///data/counts/", "////data//counts", "file:/data/x/../counts"])
async def test_one_place_has_many_names(world: World, same: str) -> None:
    await world.completed(await submit(world, "word-count", "/data/counts"), 1)
    assert "is that of job word-count" in await failed(world, await submit(world, "another", same))


@pytest.mark.parametrize(
    "other", ["/data/others", "file:/data/%63ounts", "/data/counts#1", "s3a://data/counts", "data/counts"]
)
async def test_spark_decodes_nothing_in_the_name_of_a_place(world: World, other: str) -> None:
    await world.completed(await submit(world, "word-count", "/data/counts"), 1)
    job_id = await submit(world, "others", other)
    await world.completed(job_id, 1)
    assert (await world.get(f"/jobs/{job_id}"))["state"] == "RUNNING"


async def test_a_relative_path_is_another_checkpoint_for_each_job(world: World) -> None:
    job_id = await submit(world, "word-count", "counts")
    await world.completed(job_id, 1)
    home = (await world.get(f"/jobs/{job_id}"))["workingDirectory"]
    assert home.endswith(f"/jobs/{job_id}/home")
    await world.completed(await submit(world, "another", "counts"), 1)
    assert f"{home}/counts" in await failed(world, await submit(world, "third", f"{home}/counts"))
