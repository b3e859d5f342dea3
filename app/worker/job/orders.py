"""The effects that the state of a job asks for, which a control plane that takes over the job performs (ADR 4); and
the orders of its driver, which waits for new ones."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from app.model.batch import RegionOrder
from app.model.protocol import Orders, StopOrder
from app.scheduler.adaptive.effects import Effect, StartAttempt, StopAttempt, StopMode
from app.scheduler.adaptive.state import (
    Canceling,
    CreatingExecutionGraph,
    Executing,
    Failing,
    Finished,
    JobState,
    Rescaling,
    Restarting,
    StopWithSavepoint,
)
from app.scheduler.batch.orders import region_orders
from app.scheduler.batch.scheduling import is_complete

if TYPE_CHECKING:
    from app.worker.job.job import Job

_MAX_WAIT_MS = 60_000


def implied_effects(state: JobState) -> tuple[Effect, ...]:
    """What a state asks to be done about its attempt."""
    phase = state.phase
    kill = StopAttempt(state.attempt, StopMode.KILL)
    if isinstance(phase, CreatingExecutionGraph):
        return (StartAttempt(state.attempt, phase.plan),) if phase.failure is None else (kill,)
    if isinstance(phase, Restarting):
        if phase.stopped:
            return ()
        if phase.drain and not phase.kill:
            return (StopAttempt(state.attempt, StopMode.DRAIN),)
        kills = phase.target is None or phase.kill
        return (kill,) if kills else (StopAttempt(state.attempt, StopMode.BOUNDARY),)
    if isinstance(phase, Canceling | Failing):
        return (kill,)
    if isinstance(phase, Executing | Rescaling | StopWithSavepoint | Finished):
        return ()
    return (kill,) if state.driver.alive else ()


def orders_for(state: JobState, epoch: int) -> Orders:
    """What the driver of the current attempt should be doing, read off the durable state: a level, not a queue."""
    phase = state.phase
    plan = state.plan
    stop: StopOrder = "none"
    ends = isinstance(phase, Canceling | Failing)
    results = () if state.batch is None or ends else tuple(result.path for result in state.batch.results)
    match phase:
        case CreatingExecutionGraph():
            plan = phase.plan
        case Rescaling():
            plan = phase.target
        case StopWithSavepoint():
            stop = "drain"
        case Restarting() if not phase.stopped:
            kills = phase.kill or (phase.target is None and not phase.drain)
            stop = "kill" if kills else "drain" if phase.drain else "boundary"
        case Canceling() | Failing() | Finished():
            stop = "kill"
        case _:
            pass
    if plan is None:
        return Orders(0, {}, "kill" if stop == "none" else stop, epoch, results=results)
    regions: tuple[RegionOrder, ...] = ()
    if isinstance(phase, Executing) and state.batch is not None:
        regions = region_orders(state)
        if is_complete(state):
            stop = "drain"
    restarts = {one.query: one.number for one in state.recovery.local if one.ordered}
    slots = len(state.slots)
    return Orders(plan.version, dict(plan.parallelism), stop, epoch, regions, results, slots, restarts)


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
