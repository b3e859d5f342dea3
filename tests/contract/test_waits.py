"""The waits of the command line against a real server: what ends them is an event, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from typing import Any

import pytest

from app.cli import events, waiting
from app.cli.client import Client
from app.cli.held import Held
from app.cli.jobs import wait_until_ended
from app.cli.require import newest_record, taken_back, wait_for_rescale
from app.cli.rescales import uuid_of_waiting
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


async def test_a_job_that_ends(world: World, url: str) -> None:
    job_id = await world.running()
    waits = begun(url, lambda client: wait_until_ended(client, job_id))
    await following(world, 1)
    await world.http.patch(f"/jobs/{job_id}", params={"mode": "cancel"})
    assert await asyncio.wait_for(waits, PATIENCE_S) == "CANCELED"


async def test_a_rescale_with_its_first_batch(world: World, url: str) -> None:
    job_id = await world.running()
    before = await begun(url, lambda client: newest_record(client, job_id))
    waits = begun(url, lambda client: wait_for_rescale(client, job_id, before))
    await following(world, 1)
    await world.put(job_id, bounds(flights=(1, 3), delays=(1, 2), store=(1, 1)))
    record = await asyncio.wait_for(waits, PATIENCE_S)
    assert (record["number"], record["terminalState"]) == (2, "COMPLETED")


async def test_bounds_whose_job_fails_while_they_wait_for_their_deadline(world: World, url: str) -> None:
    job_id = await world.running()
    before = await begun(url, lambda client: newest_record(client, job_id))
    many = bounds(flights=(1, 12), delays=(1, 2), store=(1, 1))
    await world.put(job_id, many, **{"X-Slotwise-Deadline": "1 h"})
    waits = begun(url, lambda client: wait_for_rescale(client, job_id, before, Held(client, job_id, 2)))
    await following(world, 1)
    world.driver().die(1)
    await world.completed(job_id, 2)
    record = await begun(url, lambda client: newest_record(client, job_id))
    assert (record["number"], record["terminalState"], waits.done()) == (3, "COMPLETED", False)
    found = await begun(url, lambda client: uuid_of_waiting(client, job_id))
    assert (await world.http.delete(f"/jobs/{job_id}/rescales/{found}")).status_code == 200
    ended = await asyncio.wait_for(waits, PATIENCE_S)
    assert (ended["number"], ended["terminatedReason"]) == (2, "JOB_FAILOVER_RESTARTING")
    back = await begun(url, lambda client: taken_back(client, job_id, ended))
    assert (back["number"], back["rollbackOf"]) == (4, 2)


async def test_a_job_that_has_processed_something(world: World, url: str) -> None:
    job_id = await world.submit(GRAPH)
    told: list[str] = []
    waits = begun(url, lambda client: wait_until_under_way(client, job_id, tell=told.append))
    details = await asyncio.wait_for(waits, PATIENCE_S)
    assert details["underWay"] and details["state"] == "RUNNING"
