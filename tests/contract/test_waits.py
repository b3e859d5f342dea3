"""The waits of the command line against a real server: what ends them is an event, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from typing import Any

import pytest

from app.cli import events, waiting
from app.cli.client import Client
from app.cli.jobs import wait_until_ended
from app.cli.outcome import Outcome, wait_for_outcome
from app.cli.rescales import history, uuid_of_waiting
from app.cli.waiting import wait_until_under_way
from tests.contract.live import listening
from tests.contract.world import GRAPH, World, bounds, eventually

FOR_EVER_S = 3600.0
PATIENCE_S = 30.0


@pytest.fixture
async def url(world: World, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """The address of a server whose jobs are not looked at again without an event."""
    for module, name in ((events, "POLL_S"), (events, "LOOK_S"), (waiting, "_SHOWN_EVERY_S")):
        monkeypatch.setattr(module, name, FOR_EVER_S)
    async with listening(world) as port:
        yield f"http://127.0.0.1:{port}"
        await following(world, 0)


async def following(world: World, count: int) -> None:
    async def found() -> bool:
        return bool(world.app.state.streams.count == count)  # type: ignore[attr-defined]

    await eventually(found, f"{count} streams")


def begun(url: str, wait: Callable[[Client], Any]) -> asyncio.Task[Any]:
    def run() -> Any:
        with closing(Client(url)) as client:
            return wait(client)

    return asyncio.create_task(asyncio.to_thread(run))


def outcome_of(url: str, job_id: str, answer: Any) -> asyncio.Task[Outcome]:
    """`require --wait` after the PUT with this ``answer``."""
    version, rescale = int(answer.headers["ETag"].strip('"')), answer.headers["X-Slotwise-Rescale"]
    has_deadline = "X-Slotwise-Deadline" in answer.request.headers
    return begun(
        url, lambda client: wait_for_outcome(client, job_id, version, rescale, has_deadline=has_deadline)
    )


async def test_a_job_that_ends(world: World, url: str) -> None:
    job_id = await world.running()
    waits = begun(url, lambda client: wait_until_ended(client, job_id))
    await following(world, 1)
    await world.http.patch(f"/jobs/{job_id}", params={"mode": "cancel"})
    async with asyncio.timeout(PATIENCE_S):
        assert await waits == "CANCELED"


async def test_a_rescale_with_its_first_batch(world: World, url: str) -> None:
    job_id = await world.running()
    more = bounds(flights=(1, 3), delays=(1, 2), store=(1, 1))
    answer = await world.put(job_id, more)
    async with asyncio.timeout(PATIENCE_S):
        record, back, _ = await outcome_of(url, job_id, answer)
    assert (record["number"], record["terminalState"], back) == (2, "COMPLETED", None)
    assert record["rescaleUuid"] == answer.headers["X-Slotwise-Rescale"]
    assert "X-Slotwise-Rescale" not in (await world.put(job_id, more)).headers


async def test_bounds_of_others_are_not_the_outcome(world: World, url: str) -> None:
    job_id = await world.running()
    first, second = [
        await world.put(job_id, bounds(flights=(1, most), delays=(1, 2), store=(1, 1))) for most in (12, 3)
    ]
    async with asyncio.timeout(PATIENCE_S):
        record, _, successor = await outcome_of(url, job_id, first)
    assert (record["number"], record["terminatedReason"]) == (2, "RESOURCE_REQUIREMENTS_UPDATED")
    assert successor is not None and successor["number"] == 3
    async with asyncio.timeout(PATIENCE_S):
        record, _, none = await outcome_of(url, job_id, second)
    assert (record["number"], record["terminatedReason"], none) == (3, "SUCCEEDED", None)


async def test_bounds_whose_job_fails_while_they_wait_for_their_deadline(world: World, url: str) -> None:
    job_id = await world.running()
    many = bounds(flights=(1, 12), delays=(1, 2), store=(1, 1))
    waits = outcome_of(url, job_id, await world.put(job_id, many, **{"X-Slotwise-Deadline": "1 h"}))
    await following(world, 1)
    world.driver().die(1)
    await world.completed(job_id, 2)
    (record,) = await begun(url, lambda client: history(client, job_id, limit=1))
    assert (record["number"], record["terminalState"], waits.done()) == (3, "COMPLETED", False)
    found = await begun(url, lambda client: uuid_of_waiting(client, job_id))
    assert (await world.http.delete(f"/jobs/{job_id}/rescales/{found}")).status_code == 200
    async with asyncio.timeout(PATIENCE_S):
        ended, back, _ = await waits
    assert (ended["number"], ended["terminatedReason"]) == (2, "JOB_FAILOVER_RESTARTING")
    assert (back["number"], back["rollbackOf"]) == (4, 2)


async def test_bounds_that_wait_while_another_rescale_is_under_way(world: World, url: str) -> None:
    """Their record ends as it begins, and another one brings them into force."""
    other, job_id = await world.running(), await world.running()
    driver = world.driver()
    await world.put(other, bounds(flights=(1, 4), delays=(1, 4), store=(1, 1)))
    await world.completed(other, 2)
    driver.pause.clear()
    await world.put(job_id, bounds(flights=(1, 1), delays=(1, 1), store=(1, 1)))
    many = bounds(flights=(1, 7), delays=(1, 1), store=(1, 1))
    answer = await world.put(job_id, many, **{"X-Slotwise-Deadline": "1 h"})
    waits = outcome_of(url, job_id, answer)
    await following(world, 1)
    driver.pause.set()
    await world.completed(job_id, 2)
    await world.http.patch(f"/jobs/{other}", params={"mode": "cancel"})
    async with asyncio.timeout(PATIENCE_S):
        done, back, _ = await waits
    (told,) = [one for one in await world.get(f"/jobs/{job_id}/rescales/history") if one["number"] == 3]
    assert told["rescaleUuid"] == answer.headers["X-Slotwise-Rescale"]
    assert (told["terminalState"], told["startTimestampInMillis"]) == (
        "IGNORED",
        told["endTimestampInMillis"],
    )
    assert "wait for their deadline" in told["message"]
    assert (done["number"], done["terminalState"], back) == (4, "COMPLETED", None)
    assert "of version 3 wait no longer" in done["message"]


async def test_bounds_whose_slots_come_keep_their_record(world: World, url: str) -> None:
    other, job_id = await world.running(), await world.running()
    await world.put(other, bounds(flights=(1, 4), delays=(1, 4), store=(1, 1)))
    await world.completed(other, 2)
    many = bounds(flights=(1, 7), delays=(1, 2), store=(1, 1))
    waits = outcome_of(url, job_id, await world.put(job_id, many, **{"X-Slotwise-Deadline": "1 h"}))
    await following(world, 1)
    await world.http.patch(f"/jobs/{other}", params={"mode": "cancel"})
    async with asyncio.timeout(PATIENCE_S):
        done, back, _ = await waits
    assert (done["number"], done["terminalState"], back) == (2, "COMPLETED", None)


async def test_a_job_that_has_processed_something(world: World, url: str) -> None:
    job_id = await world.submit(GRAPH)
    told: list[str] = []
    waits = begun(url, lambda client: wait_until_under_way(client, job_id, tell=told.append))
    async with asyncio.timeout(PATIENCE_S):
        details = await waits
    assert details["underWay"] and details["state"] == "RUNNING"
