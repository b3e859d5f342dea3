"""Who waits for a change of a job can be canceled at any time."""

from __future__ import annotations

import asyncio

import pytest

from app.worker.job.bell import Bell


@pytest.mark.parametrize("turns", range(5))
async def test_a_task_that_is_canceled_just_after_it_rang_ends(turns: int) -> None:
    """``turns``: of the event loop, between the two."""
    bell = Bell()
    rang: list[bool] = []

    async def listen() -> None:
        while True:
            rang.append(await bell.wait(60_000))

    task = asyncio.create_task(listen())
    await asyncio.sleep(0)
    bell.ring()
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=5)
    assert done and task.cancelled()
    assert rang in ([], [True])


async def test_whether_it_rang() -> None:
    bell = Bell()
    assert not await bell.wait(0)
    assert not await bell.wait(1)
    waiting = [asyncio.create_task(bell.wait(60_000)) for _ in range(2)]
    await asyncio.sleep(0)
    bell.ring()
    assert await asyncio.gather(*waiting) == [True, True]
    assert not await bell.wait(1), "it rang before"
