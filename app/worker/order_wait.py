"""The wait of a driver for orders that are other than those it has."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from app.model.protocol import Orders
from app.worker.job import Job

_MAX_WAIT_MS = 60_000


async def await_orders(
    find: Callable[[], Awaitable[Job]], attempt: int, known: Orders, *, any_slots: bool, wait_ms: int
) -> Orders:
    """The orders of the live attempt once they differ from what is ``known``, or after ``wait_ms``.

    ``find`` gives the job, and raises when the caller is no longer its driver. ``any_slots``: the driver does not know
    how many the job holds.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + min(wait_ms, _MAX_WAIT_MS) / 1000
    while True:
        job = await find()
        # One that waits for its next attempt has nothing to do, and must not be sent away.
        nothing = job.attempts.is_parked(attempt)
        orders = job.orders()
        left_ms = int((deadline - loop.time()) * 1000)
        same = (orders.plan_version, orders.stop) == (known.plan_version, known.stop)
        same = same and orders.restarts == known.restarts
        if not nothing and not (same and (any_slots or orders.slots == known.slots)):
            return orders
        if left_ms <= 0:
            if not nothing:
                return orders
            return replace(
                orders, plan_version=known.plan_version, stop="boundary", slots=known.slots, restarts={}
            )
        await job.bell.wait(left_ms)
