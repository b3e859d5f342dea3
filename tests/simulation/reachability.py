"""Worlds whose cluster cannot be asked what it has, for more than an hour: it is unreachable in the time of faults,
and is reachable again when that is long over. What must hold meanwhile.

An attempt that is started then gets no executors.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from app.model.status import JobStatus
from app.scheduler.adaptive.effects import Effect, ReleaseSlots
from app.scheduler.adaptive.events import SlotsChanged
from app.scheduler.adaptive.state import Finished, JobState
from app.store.writes import UnitOfWork
from app.worker.slots.broker import OwnBroker
from tests.simulation.planted_batch_bugs import instead

if TYPE_CHECKING:
    from tests.simulation.plane import Incarnation
    from tests.simulation.process import SimProcess
    from tests.simulation.world import World

NO_EXECUTOR_AFTER_S = 60.0
_SETTLES_S = 400.0
"""What was decided before is carried out by then, and what was begun has ended."""


class Reachability:
    """``goes_after_s``: when the cluster becomes unreachable, None if it never does; it is for ``lasts_s`` then.
    ``slowness``: batches take so much longer; of the hour in which nothing happens there is little to see."""

    def __init__(self, world: World, seed: int) -> None:
        # A source of its own: other worlds stay as they are.
        rng = random.Random(f"sight/{seed}")
        self._world = world
        # By job: the control plane that stored that slots are gone, and those that it has not given back since.
        self._taken: dict[str, tuple[Incarnation | None, set[str]]] = {}
        self._unknown: set[str] = set()
        self.is_lost = False
        self.slowness = 1.0
        self.goes_after_s = rng.uniform(0, world.knobs.chaos_s) if rng.random() < 0.07 else None
        self.lasts_s = rng.uniform(4_000, 6_000)
        self.kills_drivers = rng.random() < 0.7
        self._quiet_since_s = float("inf")
        self._has_executors: dict[tuple[SimProcess, str], None] = {}

    async def go(self, after_s: float) -> None:
        """Unreachable; and the executors that there are may go along with it."""
        world = self._world
        await asyncio.sleep(after_s)
        self.is_lost = True
        world.tell("the cluster is unreachable")
        if world.plane is not None:
            world.loop.call_soon(world.plane.look, context=world.plane.context)
        if self.kills_drivers:
            for process in [one for one in world.processes if one.python]:
                process.kill_python()

    async def last(
        self,
        watch: Callable[[float], Coroutine[Any, Any, None]],
        revive: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        """Nobody does anything from now on, and it lasts. `Scenario.rest` then shows what there is."""
        world = self._world
        world.oracles.count("unreachable")
        if world.zombie is not None:
            world.zombie.cut_now()
            world.zombie = None
        if world.plane is None:
            await revive()
        assert world.plane is not None
        world.plane.commits_left = world.plane.effects_left = None
        self.slowness, self._quiet_since_s = 30.0, world.now_s
        await watch(self.lasts_s)
        world.oracles.trials.unreachable(self.lasts_s)
        world.tell("the cluster is reachable again")
        self.is_lost, self.slowness, self._quiet_since_s = False, 1.0, float("inf")

    async def no_executors(self, process: SimProcess, job_id: str) -> str | None:
        """Why an attempt gets none. The driver of the attempt before has them already."""
        if self.is_lost and (process, job_id) not in self._has_executors:
            await asyncio.sleep(NO_EXECUTOR_AFTER_S)
            if self.is_lost:
                return "No executor has come."
        self._has_executors[process, job_id] = None
        return None

    # -- what must hold

    def assigned(self, process: SimProcess, job_id: str) -> None:
        """Nothing starts in slots that nobody can see, but what goes on in its own executors."""
        settled = self._world.now_s > self._quiet_since_s + _SETTLES_S
        self._world.oracles.check(
            not settled or (process, job_id) in self._has_executors,
            "unreachable",
            f"{process} gets job {job_id[-2:]}, and nobody knows what slots there are",
        )

    def performed(self, plane: Incarnation, job_id: str, effect: Effect) -> None:
        """What a job gives back itself is not taken from it."""
        by, taken = self._taken.get(job_id, (None, set[str]()))
        if by is plane and isinstance(effect, ReleaseSlots):
            taken.difference_update(effect.slot_ids)

    def committed(
        self, plane: Incarnation | None, unit: UnitOfWork, before: JobState | None, after: JobState | None
    ) -> None:
        by, taken = self._taken.pop(unit.job_id, (None, set[str]()))
        later = taken if unit.job_id in self._unknown else set[str]()
        self._unknown.discard(unit.job_id)
        # What a control plane that is dead would have given back is not known.
        lost = taken - later if by is plane else set()
        self._world.oracles.check(not lost, "unreachable", f"{lost} were taken from job {unit.job_id[-2:]}")
        if not self.is_lost or before is None or after is None:
            return
        phase, oracles = after.phase, self._world.oracles
        failed = isinstance(phase, Finished) and phase.status is JobStatus.FAILED
        oracles.check(
            not failed or "No further start is tried" not in str(getattr(phase, "cause", "")),
            "unreachable",
            f"job {unit.job_id[-2:]} is FAILED, as if it could have started: {phase}",
        )
        if before.cluster_unreachable and after.cluster_unreachable and not isinstance(phase, Finished):
            taken = {slot.id for slot in before.slots} - {slot.id for slot in after.slots}
            self._taken[unit.job_id] = plane, taken | later

    def outcome_unknown(self, job_id: str) -> None:
        """What was written of the job is read again, and only then does the job give slots back."""
        self._unknown.add(job_id)


def jobs_are_not_told() -> contextlib.AbstractContextManager[None]:
    """Jobs do not know that the cluster is unreachable."""
    original = OwnBroker.granted

    def granted(self: OwnBroker, job_id: str) -> SlotsChanged:
        return replace(original(self, job_id), cluster_unreachable=False)

    return instead(OwnBroker, "granted", granted)


@contextlib.contextmanager
def slots_are_taken() -> Iterator[None]:
    """Jobs that do not run by what the pool knows lose their slots while the cluster is unreachable."""
    original = OwnBroker.take_offer

    def take_offer(self: OwnBroker, offer: Any) -> None:
        original(self, offer)
        for job_id, holder in self._pool._holders.items():
            if offer.unreachable and not holder.releasable.running and holder.held:
                self._pool.release(job_id, list(holder.held))
                self._pool._lost.add(job_id)

    with instead(OwnBroker, "take_offer", take_offer):
        yield


PLANTED = {
    "jobs are not told that the cluster is unreachable": jobs_are_not_told,
    "slots are taken while the cluster is unreachable": slots_are_taken,
}
