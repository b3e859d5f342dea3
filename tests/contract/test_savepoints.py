"""Flink's savepoint of a job that runs on: the checkpoint that it has, since each committed batch is a complete one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.world import GRAPH, World

# What `flink savepoint JOB` of Flink 2.3 sends.
BODY = {"target-directory": None, "cancel-job": False, "formatType": "CANONICAL", "triggerId": None}


async def test_the_place_of_a_savepoint_is_told_and_the_job_runs_on(any_world: World) -> None:
    world = any_world
    job_id = await world.running()
    for body in (BODY, {}, None):
        more: dict[str, Any] = {} if body is None else {"json": body}
        answer = await world.http.post(f"/jobs/{job_id}/savepoints", **more)
        assert answer.status_code == 202, answer.text
    status = await world.get(f"/jobs/{job_id}/savepoints/{answer.json()['request-id']}")
    assert status["status"] == {"id": "COMPLETED"}
    place = status["operation"]["location"]
    assert job_id in place and place.endswith("/checkpoint")
    assert (await world.get(f"/jobs/{job_id}"))["state"] == "RUNNING"


async def test_it_is_refused_as_long_as_no_batch_is_committed_and_when_the_job_is_over(world: World) -> None:
    job_id = await world.submit()
    answer = await world.http.post(f"/jobs/{job_id}/savepoints", json=BODY)
    assert answer.status_code == 409
    assert "has no savepoint now: it is" in answer.json()["errors"][0]
    await world.http.patch(f"/jobs/{job_id}?mode=cancel")
    await world.status(job_id, "CANCELED")
    answer = await world.http.post(f"/jobs/{job_id}/savepoints", json=BODY)
    assert (answer.status_code, "CANCELED" in answer.text) == (409, True)
    assert (await world.http.post(f"/jobs/{'f' * 32}/savepoints", json=BODY)).status_code == 404


async def test_a_batch_job_has_none(world: World) -> None:
    vertices = [
        {"name": "in", "source": {"format": "parquet", "path": "/data"}},
        {"name": "out", "inputs": ["in"], "sink": {"format": "noop"}},
    ]
    job_id = await world.submit({"name": "batch", "type": "BATCH", "vertices": vertices})
    answer = await world.http.post(f"/jobs/{job_id}/savepoints", json=BODY)
    assert (answer.status_code, answer.json()["errors"]) == (
        409,
        [f"Job {job_id} is a BATCH job, which has no checkpoint."],
    )


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"target-directory": "/tmp/s"},
            "The field target-directory should be left out: a savepoint is the job's own",
        ),
        (
            {"cancel-job": True},
            "The field cancel-job should be false: POST to /stop to end a job, found true.",
        ),
        *(({"cancel-job": zero}, "The field cancel-job should be false") for zero in (0, 0.0)),
        ({"formatType": "ODD"}, "The field formatType should be CANONICAL or NATIVE"),
        ({"triggerId": "x"}, "The field triggerId should be 32 hexadecimal digits"),
        ({"nope": 1}, "The field 'nope' is not known"),
    ],
)
async def test_what_cannot_be_is_refused(world: World, change: dict[str, Any], sentence: str) -> None:
    job_id = await world.submit(GRAPH)
    answer = await world.http.post(f"/jobs/{job_id}/savepoints", json={**BODY, **change})
    assert answer.status_code == 400
    assert sentence in answer.json()["errors"][0], answer.text
