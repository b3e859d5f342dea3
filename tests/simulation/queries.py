"""A second query of a job in the simulated world: it fails, is held, and is started again when that is ordered.

Modelled after `app.driver.failover`. A query that was started again may fail once more, or hang without ever committing
a batch; the main query runs on meanwhile. What must hold: an order comes when its backoff is over, not before; the main
query is not disturbed by it; and in a quiet world no query stays down.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from app.model.graphdoc import read_graph
from app.model.protocol import Orders, Report
from app.scheduler.adaptive.state import JobState
from tests.simulation.jobs import SIDE_SINK
from tests.simulation.world import CURRENT

if TYPE_CHECKING:
    from tests.simulation.oracles import Oracles
    from tests.simulation.plane import Incarnation
    from tests.simulation.process import SimAttempt

LATE = "was restarted alone and has not committed a batch within"
CALL_S = 0.1


def side_key(spec: dict[str, Any]) -> str | None:
    """The vertex id of the second sink of an assignment's job, None without one."""
    if not spec.get("local_failover"):
        return None
    vertices = read_graph(spec["graph"]).vertices
    return next((vertex.id for vertex in vertices if vertex.name == SIDE_SINK), None)


def are_known(known: Orders, orders: Orders) -> bool:
    """Whether ``orders`` say nothing new."""
    return (known.plan_version, known.stop, known.restarts) == (
        orders.plan_version,
        orders.stop,
        orders.restarts,
    )


def taken(known: Orders, orders: Orders) -> Orders:
    """What the driver goes by from now on: never an older plan."""
    if orders.plan_version >= known.plan_version:
        return orders
    return Orders(known.plan_version, known.parallelism, orders.stop, orders.epoch, restarts=orders.restarts)


def without_refused(known: Orders, sent: Sequence[Report], acknowledged: int) -> Orders:
    """What the driver goes by once its report is acknowledged that it cannot stop: the next order is a new one."""
    refused = any(one.type == "stopped" and one.error and one.seq <= acknowledged for one in sent)
    return replace(known, stop="none") if refused else known


def noted(
    attempt: SimAttempt, work: Callable[[Incarnation], Coroutine[Any, Any, Any]]
) -> Callable[[Incarnation], Coroutine[Any, Any, Any]]:
    """``work``, a call of a driver, which the oracles are told of when it arrives."""

    async def call(plane: Incarnation) -> Any:
        attempt.world.oracles.local.called(plane, attempt)
        return await work(plane)

    return call


class SideQuery:
    """That query in one attempt. ``held``: it failed, and waits for an order."""

    def __init__(self, attempt: SimAttempt, key: str) -> None:
        self.attempt = attempt
        self.key = key
        self.applied = 0
        self.failures = 0
        self.held = False
        self.hangs = False
        self.task: asyncio.Task[None]

    @classmethod
    def begin(cls, attempt: SimAttempt, tasks: list[asyncio.Task[Any]]) -> SideQuery | None:
        """The query of ``attempt``, running; None if its job has no second one."""
        key = side_key(attempt.spec)
        if key is None:
            return None
        query = cls(attempt, key)
        query.task = attempt.world.spawn(query.run())
        tasks.append(query.task)
        return query

    def end(self) -> None:
        """It is stopped with its attempt."""
        self.task.cancel()

    def is_behind(self, plan: Orders) -> bool:
        return self.applied < plan.plan_version

    @property
    def is_down(self) -> bool:
        return self.held or self.hangs

    async def run(self) -> None:
        attempt, world = self.attempt, self.attempt.world
        rng = world.rng
        unproven = False
        while not attempt.fenced:
            plan = attempt.plan
            await asyncio.sleep(rng.uniform(0.2, 2.5))
            if world.chance(world.knobs.query_fails):
                await self._fail()
                unproven = True
                if world.chance(0.35):
                    world.tell(f"{attempt}: its side query hangs")
                    self.hangs = True
                    await asyncio.Event().wait()
                continue
            attempt.checkpoint.side_batches += 1
            batch_id = attempt.checkpoint.side_batches
            self.applied = plan.plan_version
            attempt.report("batch", plan_version=plan.plan_version, query_id="side", batch_id=batch_id)
            if unproven:
                unproven = False
                world.oracles.count("query recovered")
                attempt.report("query-recovered", query=self.key, run=self.failures)

    async def _fail(self) -> None:
        attempt, world = self.attempt, self.attempt.world
        self.failures += 1
        self.held = True
        world.oracles.count("query failed")
        of_user = world.rng.random() < 0.3
        attempt.report(
            "query-failed",
            query=self.key,
            run=self.failures,
            plan_version=attempt.plan.plan_version,
            error="The side query failed.",
            recoverable=True,
            outside=not of_user,
            user_error="ValueError at code.py:1" if of_user else None,
            query_id="side",
            batch_id=attempt.checkpoint.side_batches + 1,
        )
        if of_user:
            # The third time in a row ends the job.
            world.oracles.truth(attempt.job_id).may_end_otherwise = True
        while attempt.plan.restarts.get(self.key, 0) < self.failures:
            attempt.changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await attempt.changed.wait()
        world.oracles.local.ordered(attempt, self.failures)
        self.held = False


class LocalFailovers:
    """What must hold of them."""

    def __init__(self, oracles: Oracles) -> None:
        self._oracles = oracles
        # By job, attempt and number of the failure: before when no order may come.
        self._not_before_ms: dict[tuple[str, int, int], int] = {}
        # When a control plane was called first by an attempt.
        self._called_s: dict[tuple[Incarnation, str, int], float] = {}
        self._escalated: set[tuple[str, int]] = set()

    def saved(self, job_id: str, state: JobState) -> None:
        """A state became durable."""
        self._check_escalation(job_id, state)
        for one in state.recovery.local:
            if not one.ordered and (next_ms := state.recovery.strategy.next_restart_ms) is not None:
                self._not_before_ms.setdefault((job_id, state.attempt, one.number), next_ms)

    def called(self, plane: Incarnation, attempt: SimAttempt) -> None:
        """A call of the driver has reached ``plane``."""
        self._called_s.setdefault((plane, attempt.job_id, attempt.number), self._oracles.world.now_s)

    def _check_escalation(self, job_id: str, state: JobState) -> None:
        """Nobody may say that a query is too late before he has listened to its driver for as long."""
        failure = state.recovery.failures[-1][0] if state.recovery.failures else None
        if failure is None or LATE not in failure.error or (job_id, failure.attempt) in self._escalated:
            return
        self._escalated.add((job_id, failure.attempt))
        self._oracles.count("query too late")
        plane = CURRENT.get()
        if plane is None:
            return
        now_s = self._oracles.world.now_s
        heard_s = now_s - self._called_s.get((plane, job_id, failure.attempt), now_s)
        least_s = state.options.local_timeout_ms / 1000 - CALL_S
        self._oracles.check(
            heard_s >= least_s,
            "local failover",
            f"job {job_id[-2:]}: attempt {failure.attempt} was heard for {heard_s:.1f} s and is too late",
        )

    def ordered(self, attempt: SimAttempt, number: int) -> None:
        oracles, world = self._oracles, self._oracles.world
        oracles.count("query restarted")
        if world.clocks_differ:
            return  # the clock that counted the backoff is not the world's
        key = (attempt.job_id, attempt.number, number)
        oracles.check(
            key in self._not_before_ms or _counts(oracles, attempt), "local failover", "from nowhere"
        )
        not_before_ms = self._not_before_ms.get(key, 0)
        oracles.check(
            world.wall_ms >= not_before_ms,
            "local failover",
            f"{attempt}: its side query is started {not_before_ms - world.wall_ms} ms before its backoff is over",
        )

    def complaint(self, job_id: str, driver: SimAttempt) -> str | None:
        """Of a job at rest."""
        if driver.side is not None and driver.side.is_down:
            return f"job {job_id[-2:]}: its side query stays down, and nobody restarts the job"
        return None


def _counts(oracles: Oracles, attempt: SimAttempt) -> bool:
    """Whether the restart strategy of the job knows no time of the next restart."""
    state = oracles.truth(attempt.job_id).state
    return state is not None and state.options.restart_strategy.type != "exponential-delay"
