"""A program in an attempt of the simulated world: it starts queries while it runs, ends them, and starts them again.

Modelled after `app.driver.program`: the driver says when the program is about to run, and tells of each start and each
end. Before its first queries a program takes what time it wants, and it may end or fail without any. It starts a query
at what its plan says for the vertices, or at the largest number of the plan. What a later plan does not name keeps its
number, also when the query has ended and is started again, as far as that plan has one as large: the control plane
takes it for that, too, once it hears of the query.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Any, Final

from app.model.graphdoc import read_graph
from app.model.protocol import Orders
from tests.simulation.batch import Exit
from tests.simulation.programs import (
    PARTITIONS,
    ProgramQuery,
    first_started,
    queries_of,
    version_of,
)
from tests.simulation.queries import SideQuery

if TYPE_CHECKING:
    from tests.simulation.process import SimAttempt

    Redistribute = Callable[[SimAttempt, list[ProgramQuery]], Awaitable[str | None]]

_FOR_EVER_S: Final = 1e9
_LOOKS_EVERY_S: Final = 5.0


async def begin_queries(
    attempt: SimAttempt, tasks: list[asyncio.Task[Any]], redistribute: Redistribute
) -> bool | None:
    """What runs in ``attempt`` besides its main query begins. None as soon as that may commit batches; if the attempt
    ends before, as `SimAttempt.run`. ``redistribute``: the state of queries of a program, before they are started."""
    if "script" in attempt.spec["graph"]:
        return await Program(attempt).begin(tasks, redistribute)
    attempt.running, attempt.side = True, SideQuery.begin(attempt, tasks)
    attempt.report("running", plan_version=attempt.plan.plan_version)
    return None


def not_followed(attempt: SimAttempt, plan: Orders) -> list[str]:
    """The vertices that have other tasks than ``plan`` says: in some worlds now and then the first ones."""
    seed, side = attempt.world.seed, attempt.side
    if seed % 4 != 1 or (attempt.number + plan.plan_version) % 5 != 3:
        return []
    runs = side.numbers() if isinstance(side, Program) else plan.parallelism
    return list(runs)[: 1 if seed % 8 == 1 else attempt.number]


class Program:
    """See the module. ``running``: the parallelism by vertex id with which each query was started. ``waiting``: those
    whose state has to be redistributed before they can be started. ``awaits``: none has been started in this
    attempt. ``_former``: at what parallelism the vertices of queries ran that have ended in it."""

    is_down = False

    def __init__(self, attempt: SimAttempt) -> None:
        self.attempt = attempt
        self.running: dict[ProgramQuery, dict[str, int]] = {}
        self.waiting: list[ProgramQuery] = []
        self._former: dict[str, int] = {}
        self._batches = 0
        self._graph: dict[str, Any] = attempt.spec["graph"]
        self._job = self._graph["name"]
        self._known = {one.id: one for one in read_graph(self._graph).vertices}
        self.awaits, self._knows_none = True, not any(one.is_sink for one in self._known.values())
        self.on_version = version_of(self._graph["artifacts"])
        self._queries = queries_of(self._job, self.on_version)
        self._life = random.Random(f"life/{self._job}/{attempt.number}")
        self.task: asyncio.Task[None] | None = None

    async def begin(self, tasks: list[asyncio.Task[Any]], redistribute: Redistribute) -> bool | None:
        """As `begin_queries`. A program that runs on where it did has begun when its queries were started again."""
        attempt, rng = self.attempt, self.attempt.world.rng
        attempt.side = self
        first = first_started(self._graph, attempt.number, self._known)
        goes_on = attempt.process.was_parked and bool(first)
        if not goes_on:
            attempt.report("begun", plan_version=attempt.plan.plan_version)
            attempt.running = True
            if (ended := await self._think()) is not None:
                return ended
        if refused := await redistribute(attempt, first):
            return await attempt._fail(refused, repartition_failed=True)
        for query in first:
            self.start(query)
            if rng.random() < 0.3:
                await asyncio.sleep(rng.uniform(0, 2))
        if goes_on:
            attempt.report("begun", plan_version=attempt.plan.plan_version)
            attempt.running = True
        self.task = attempt.world.spawn(self.run())
        tasks.append(self.task)
        return None

    async def _think(self) -> bool | None:
        """What the program does before its first queries. Not None: it was stopped meanwhile."""
        attempt, world = self.attempt, self.attempt.world
        until_s, fate = world.now_s + self._thinks_s(), self._life.random()
        world.oracles.count("program without a query")
        while (left_s := until_s - world.now_s) > 0:
            if attempt.fenced:
                raise Exit(3)
            if attempt.stop is not None and (ended := await attempt._carry_out_stop()) is not None:
                return ended
            if attempt.plan.plan_version > attempt.spec["plan_version"]:
                # Nothing runs that would have to follow it.
                attempt._say_applied(attempt.plan, idle=True)
            if world.quiet and not self._may_wait_for_ever:
                until_s = min(until_s, world.now_s + 20)
            attempt.changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left_s, _LOOKS_EVERY_S)):
                    await attempt.changed.wait()
        if fate < 0.05 and self._knows_none:
            world.oracles.count("program ended without a query")
            return await attempt._last_word("finished")
        if fate < 0.15 and not world.quiet:
            world.oracles.count("program failed before its queries")
            return await attempt._fail("NameError: name 'spark' is not defined")
        if fate < 0.2 and not world.quiet:
            attempt.process.kill_python()
            await asyncio.sleep(60)
        return None

    def _thinks_s(self) -> float:
        """Sometimes longer than a driver may take to start."""
        dice = self._life.random()
        if dice < 0.08:
            return _FOR_EVER_S
        return self._life.uniform(0, 1 if dice < 0.5 else 8 if dice < 0.85 else 60)

    @property
    def _may_wait_for_ever(self) -> bool:
        """Also when the world is quiet. What is known of it has to be decided upon, such as another version."""
        return self._knows_none and not self.on_version

    def end(self) -> None:
        """It is stopped with its attempt."""
        if self.task is not None:
            self.task.cancel()

    def is_behind(self, _plan: Orders) -> bool:
        return False

    async def run(self) -> None:
        rng, world = self.attempt.world.rng, self.attempt.world
        hasty = random.Random(f"hasty/{self._job}/{self.attempt.number}").random() < 0.3
        while not self.attempt.fenced:
            await asyncio.sleep(rng.expovariate(1 / 2))
            if world.quiet:
                continue
            if hasty and rng.random() < 0.2:
                for query in rng.sample(self._queries[1:], 4):
                    self._change(query, rng)
            elif rng.random() < 0.3:
                self._commit(rng)
            else:
                self._change(rng.choice(self._queries), rng)

    def _change(self, query: ProgramQuery, rng: random.Random) -> None:
        if query not in self.running:
            self.start(query)
        elif query.number or rng.random() < 0.2:
            self._end(query)

    def start(self, query: ProgramQuery) -> None:
        """Start it, or as soon as its state is redistributed if that has to be."""
        if query.key in self.attempt.checkpoint.late:
            if query not in self.waiting:
                self.waiting.append(query)
            return
        attempt, (plan, most) = self.attempt, self._planned()
        partitions = None
        if query.is_stateful:
            # What its checkpoint has, if there is one.
            partitions = attempt.checkpoint.partitions.setdefault(query.key, PARTITIONS)
        uppers = query.uppers(partitions or 0)
        own = {
            one: plan.get(one, min(self._former.get(one, uppers[name]), most))
            for name, one in query.ids.items()
        }
        self.running[query] = own
        self.awaits = False
        attempt.world.oracles.count("query started")
        attempt.report(
            "query-started", query=query.key, planned=query.planned(partitions), parallelism=dict(own)
        )
        attempt.world.oracles.growth.told(attempt, query, started=True)

    def _end(self, query: ProgramQuery) -> None:
        numbers = self.numbers()
        self._former |= {one: numbers[one] for one in self.running.pop(query)}
        self.attempt.world.oracles.count("query ended")
        self.attempt.report("query-ended", query=query.key)
        self.attempt.world.oracles.growth.told(self.attempt, query, started=False)

    def _commit(self, rng: random.Random) -> None:
        """A batch of one of its queries, of which the main one has its own."""
        others = [query for query in self.running if query.number]
        if others:
            self._batches += 1
            version = self.attempt.plan.plan_version
            name = f"q{rng.choice(others).number}"
            self.attempt.report("batch", plan_version=version, query_id=name, batch_id=self._batches)

    def start_waiting(self, keys: Collection[str]) -> None:
        """The state of these has been redistributed."""
        queries = [query for query in self.waiting if query.key in keys]
        self.waiting = [query for query in self.waiting if query not in queries]
        for query in queries:
            self.start(query)

    def _planned(self) -> tuple[dict[str, int], int]:
        """The plan of now, without the number of what stands for a program without a query, which may have the id of a
        vertex that comes; and its largest number."""
        plan = self.attempt.plan.parallelism
        return plan if len(plan) > 1 else {}, max(plan.values(), default=1)

    def numbers(self) -> dict[str, int]:
        """At what parallelism each vertex of the queries that run does."""
        plan, most = self._planned()
        return {
            one: plan.get(one, min(own, most)) for each in self.running.values() for one, own in each.items()
        }
