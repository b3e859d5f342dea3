"""The regions of batch jobs in the simulated world: what a driver does with its orders.

Modelled after `app.driver.batch`: it starts what the orders name, ends what they do not, checks the results that a
region reads before it reads them, and removes what nobody needs. `tests.simulation.batch_oracles` says what must hold.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from app.model.batch import RegionOrder, Result
from tests.simulation.batch_oracles import check_removed, check_start
from tests.simulation.rules import Layout

if TYPE_CHECKING:
    from app.scheduler.adaptive.state import JobState
    from tests.simulation.process import SimAttempt

Run = tuple[str, int, int]
"""A job's id, the number of a region, and the number of its run."""


class Exit(BaseException):
    """Ends a driver process."""

    def __init__(self, status: int) -> None:
        self.status = status


@dataclass
class BatchDisk:
    """What really happened to the regions of all jobs.

    ``whole``: the results that are there, by path. ``deleted``: paths of those that somebody removed by hand.
    ``started``: per run the run of each dataset that it reads. ``ended`` and ``failed``: the runs that did so.
    """

    whole: dict[str, Result] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    started: dict[Run, dict[str, int]] = field(default_factory=dict)
    ended: set[Run] = field(default_factory=set)
    failed: set[Run] = field(default_factory=set)
    _layouts: dict[str, Layout] = field(default_factory=dict)

    def layout(self, state: JobState) -> Layout:
        found = self._layouts.get(state.job_id)
        if found is None:
            found = self._layouts[state.job_id] = Layout(state.graph)
        return found

    def lose_one(self, attempt: SimAttempt) -> None:
        """Somebody deletes a result by hand."""
        if self.whole:
            path = attempt.world.rng.choice(sorted(self.whole))
            del self.whole[path]
            self.deleted.add(path)
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
                check_removed(attempt, path)
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
        run = (attempt.job_id, order.region, order.run)
        try:
            check_start(attempt, order)
            self.disk.started[run] = {read.result.dataset: read.result.run for read in order.reads}
            await asyncio.sleep(world.rng.uniform(0.2, 4))
            if world.chance(world.knobs.result_lost):
                self.disk.lose_one(attempt)
            lost = tuple(
                read.result.dataset for read in order.reads if read.result.path not in self.disk.whole
            )
            if lost or world.chance(world.knobs.batch_fails * 3):
                self.disk.failed.add(run)
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
            self.disk.ended.add(run)
            self._report("region-finished", order, results=tuple(results))
        finally:
            del self._running[order.region]
            attempt.changed.set()

    def _report(self, kind: str, order: RegionOrder, **fields: object) -> None:
        self._done.add((order.region, order.run))
        self.attempt.report(kind, region=order.region, run=order.run, **fields)
