"""The regions of batch jobs in the simulated world: what a driver does with its orders, and what must hold.

Modelled after `app.driver.batch`: it starts what the orders name, ends what they do not, checks the results that a
region reads before it reads them, and removes what nobody needs.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from app.model.batch import RegionOrder, RegionStatus, Result
from app.scheduler.batch.regions import regions_of

if TYPE_CHECKING:
    from app.scheduler.adaptive.state import JobState
    from tests.simulation.process import SimAttempt
    from tests.simulation.world import World


class Exit(BaseException):
    """Ends a driver process."""

    def __init__(self, status: int) -> None:
        self.status = status


@dataclass
class BatchDisk:
    """The results of all jobs by path, how often each region ended well, and how many results were lost."""

    whole: dict[str, Result] = field(default_factory=dict)
    ended: dict[tuple[str, int], int] = field(default_factory=dict)
    lost: int = 0

    def lose_one(self, attempt: SimAttempt) -> None:
        """Somebody deletes a result by hand."""
        if self.whole:
            path = attempt.world.rng.choice(sorted(self.whole))
            del self.whole[path]
            self.lost += 1
            attempt.world.tell(f"the result {path} is lost")


class RegionsOf:
    """The regions that an attempt runs."""

    def __init__(self, attempt: SimAttempt) -> None:
        self.attempt = attempt
        self.world = attempt.world
        self.disk = attempt.world.disk
        self._running: dict[int, tuple[int, asyncio.Task[None]]] = {}
        self._done: set[tuple[int, int]] = set()
        self._must_end = False

    async def run(self) -> bool:
        """Until the orders say that all is done. Raises what ends the process."""
        attempt = self.attempt
        while True:
            attempt.changed.clear()
            if attempt.fenced or self._must_end:
                raise Exit(3)
            self._follow()
            if attempt.stop == "drain" and not self._running:
                return await attempt._last_word("finished")
            await attempt.changed.wait()

    def _follow(self) -> None:
        attempt = self.attempt
        if attempt.plan.plan_version == attempt.spec["plan_version"] and attempt.plan.stop == "none":
            # Nothing was heard since the start, not even which results count.
            return
        wanted = {(order.region, order.run): order for order in attempt.plan.regions}
        for region, (run, task) in list(self._running.items()):
            if (region, run) not in wanted:
                task.cancel()
        for key, order in wanted.items():
            if order.region not in self._running and key not in self._done:
                task = self.world.spawn(self._run(order))
                self._running[order.region] = (order.run, task)
                attempt._tasks.append(task)
        self._done &= set(wanted)
        kept = set(attempt.plan.results) | {self._path(key, "") for key in [*self._done, *self._keys()]}
        for path in [one for one in self.disk.whole if one.startswith(f"{attempt.job_id}/")]:
            if path not in kept and self._path_of(path) not in kept:
                del self.disk.whole[path]

    def _keys(self) -> list[tuple[int, int]]:
        return [(region, run) for region, (run, _) in self._running.items()]

    def _path(self, key: tuple[int, int], dataset: str) -> str:
        return f"{self.attempt.job_id}/{key[0]}/{key[1]}/{dataset}"

    def _path_of(self, path: str) -> str:
        """The directory of the run that wrote ``path``."""
        return path.rpartition("/")[0] + "/"

    async def _run(self, order: RegionOrder) -> None:
        attempt, world = self.attempt, self.world
        try:
            check_start(attempt, order)
            await asyncio.sleep(world.rng.uniform(0.2, 4))
            if world.chance(0.02):
                self.disk.lose_one(attempt)
            lost = tuple(
                read.result.dataset for read in order.reads if read.result.path not in self.disk.whole
            )
            if lost or world.chance(world.knobs.batch_fails * 3):
                self._report("region-failed", order, error="A task failed.", lost=lost)
                return
            if not attempt._is_owner() and world.knobs.fence:
                self._must_end = True
                return
            results = []
            for output in order.outputs:
                parts = tuple(
                    world.rng.choice((0, 1 << 20, 64 << 20)) for _ in range(output.subpartitions or 2)
                )
                path = self._path((order.region, order.run), output.dataset)
                result = Result(output.dataset, order.run, path, "0" * 64, parts, (1,) * len(parts))
                self.disk.whole[path] = result
                results.append(result)
            key = (attempt.job_id, order.region)
            self.disk.ended[key] = self.disk.ended.get(key, 0) + 1
            self._report("region-finished", order, results=tuple(results))
        finally:
            del self._running[order.region]
            attempt.changed.set()

    def _report(self, kind: str, order: RegionOrder, **fields: object) -> None:
        self._done.add((order.region, order.run))
        self.attempt.report(kind, region=order.region, run=order.run, **fields)


def check_start(attempt: SimAttempt, order: RegionOrder) -> None:
    """A region never starts before its inputs are complete, never partly, nor before that is written down."""
    oracles = attempt.world.oracles
    oracles.count("region")
    state = oracles.truth(attempt.job_id).state
    assert state is not None
    # Orders may be old when they arrive, so the region may be over by now; but it was started once.
    known = state.batch is not None and state.batch.regions[order.region].run >= order.run
    oracles.check(
        known, "effects after the commit", f"run {order.run} of region {order.region} is not durable"
    )
    regions = regions_of(state.graph)
    region = regions.all[order.region]
    oracles.check(
        tuple(order.parallelism) == region.vertices,
        "regions",
        f"region {order.region} starts partly: {order}",
    )
    for read in order.reads:
        producer = regions.by_vertex[read.producer].number
        oracles.check(
            attempt.world.disk.ended.get((attempt.job_id, producer), 0) > 0,
            "regions",
            f"region {order.region} starts before region {producer}, which it reads, has ended",
        )
    bounds = {vertex.id: vertex.max_parallelism for vertex in state.graph.vertices}
    oracles.check(
        all(1 <= count <= bounds[vertex] for vertex, count in order.parallelism.items()),
        "regions",
        f"region {order.region} runs at {order.parallelism}",
    )


def check_progress(world: World, before: JobState | None, after: JobState) -> None:
    """A region that is finished runs again only for a result that was lost."""
    if before is None or before.batch is None or after.batch is None:
        return
    for number, (was, now) in enumerate(zip(before.batch.regions, after.batch.regions, strict=True)):
        if was.status is RegionStatus.FINISHED and now.status is not RegionStatus.FINISHED:
            world.oracles.count("region again")
            world.oracles.check(world.disk.lost > 0, "regions", f"region {number}, finished, is run again")
