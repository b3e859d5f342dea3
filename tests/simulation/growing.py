"""A program in an attempt of the simulated world: it starts queries while it runs, ends them, and starts them again.

Modelled after `app.driver.program`: the driver tells of each start and each end. It starts a query at what its plan
says for the vertices, or at the largest number of the plan. What a later plan does not name keeps its number, as far
as that plan has one as large: the control plane takes it for that, too, once it hears of the query.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from app.model.graphdoc import parse_document
from app.model.protocol import Orders
from tests.simulation.programs import PARTITIONS, ProgramQuery, first_started, queries_of
from tests.simulation.queries import SideQuery

if TYPE_CHECKING:
    from tests.simulation.process import SimAttempt


def begin_queries(attempt: SimAttempt, tasks: list[asyncio.Task[Any]]) -> SideQuery | Program | None:
    """What runs in ``attempt`` besides its main query; None if nothing does."""
    if "script" in attempt.spec["graph"]:
        return Program.begin(attempt, tasks)
    return SideQuery.begin(attempt, tasks)


class Program:
    """See the module. ``running``: the parallelism by vertex id with which each query was started. ``waiting``: those
    whose state has to be redistributed before they can be started."""

    is_down = False

    def __init__(self, attempt: SimAttempt) -> None:
        self.attempt = attempt
        self.running: dict[ProgramQuery, dict[str, int]] = {}
        self.waiting: list[ProgramQuery] = []
        self._batches = 0
        self._job = attempt.spec["graph"]["name"]
        self._queries = queries_of(self._job)
        self.task: asyncio.Task[None]

    @classmethod
    def begin(cls, attempt: SimAttempt, tasks: list[asyncio.Task[Any]]) -> Program:
        """The program of ``attempt``, some of whose queries run when the attempt does."""
        program = cls(attempt)
        known = {one.id: one for one in parse_document(attempt.spec["graph"], stored=True).vertices}
        for query in first_started(program._job, attempt.number, known):
            program.start(query)
        program.task = attempt.world.spawn(program.run())
        tasks.append(program.task)
        return program

    def end(self) -> None:
        """It is stopped with its attempt."""
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
        attempt, plan = self.attempt, self.attempt.plan.parallelism
        partitions = None
        if query.is_stateful:
            # What its checkpoint has, if there is one.
            partitions = attempt.checkpoint.partitions.setdefault(query.key, PARTITIONS)
        most = max(plan.values(), default=1)
        own = {one: plan.get(one, most) for one in query.ids.values()}
        self.running[query] = own
        attempt.world.oracles.count("query started")
        attempt.report(
            "query-started", query=query.key, planned=query.planned(partitions), parallelism=dict(own)
        )
        attempt.world.oracles.growth.told(attempt, query, started=True)

    def _end(self, query: ProgramQuery) -> None:
        del self.running[query]
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

    def numbers(self) -> dict[str, int]:
        """At what parallelism each vertex of the queries that run does."""
        plan = self.attempt.plan.parallelism
        most = max(plan.values(), default=1)
        return {
            one: plan.get(one, min(own, most)) for each in self.running.values() for one, own in each.items()
        }
