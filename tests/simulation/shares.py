"""Weight, priority and cap in the simulated world: clients that declare them, and what must hold of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from app.model.slot_share import SlotShare
from app.scheduler.adaptive.state import Finished, JobState
from app.worker.requests.declared import SlotShareUpdate
from app.worker.slots.broker import OwnBroker
from tests.simulation.jobs import MOST_SLOTS_NEEDED
from tests.simulation.rules import bounds_now, least_slots

if TYPE_CHECKING:
    from tests.simulation.oracles import Oracles
    from tests.simulation.plane import Incarnation
    from tests.simulation.world import World

MOST_CAP = 8


@dataclass
class Shares:
    """What is known of the share of a job from outside. ``stored``: by version, as committed."""

    stored: dict[int, SlotShare] = field(default_factory=dict)
    promised: int = 0


class ShareOracles:
    """A share that was answered is durable, each version is one share, and at rest the cluster goes by the newest."""

    def __init__(self, oracles: Oracles) -> None:
        self._oracles = oracles
        self._jobs: dict[str, Shares] = {}

    def committed(self, job_id: str, state: JobState) -> None:
        truth = self._jobs.setdefault(job_id, Shares())
        share = state.share
        if share.version > 1 and share.version not in truth.stored:
            self._oracles.told.became_durable(
                share.reason or "", f"share {share.version} of job {job_id[-2:]}"
            )
        known = truth.stored.setdefault(share.version, share)
        self._oracles.check(known == share, "shares", f"version {share.version} was written twice")
        newest = max(truth.stored)
        self._oracles.check(
            share.version == newest, "shares", f"version {newest} was lost to {share.version}"
        )
        least = _least_slots(state)
        lives = not isinstance(state.phase, Finished)
        fits = share.cap is None or share.cap >= least
        self._oracles.check(fits or not lives, "shares", f"a cap of {share.cap} below {least}")

    def answered(self, job_id: str, version: int, update: SlotShareUpdate) -> None:
        self._oracles.count("slot share answered")
        truth = self._jobs.setdefault(job_id, Shares())
        stored = truth.stored.get(version)
        promised = stored is not None and stored.asks(update.weight, update.priority, update.cap)
        self._oracles.check(promised, "shares", f"version {version} of {job_id[-2:]} was answered: {stored}")
        truth.promised = max(truth.promised, version)

    def check_end(self, plane: Incarnation) -> None:
        """At rest: what is durable, and what the cluster goes by."""
        pool = plane.plane._keeper.broker._pool  # type: ignore[attr-defined]
        for job_id, truth in self._oracles.jobs.items():
            if truth.state is None:
                continue
            share, known = truth.state.share, self._jobs[job_id]
            self._oracles.check(share.version >= known.promised, "shares", f"{known.promised} was answered")
            if not isinstance(truth.state.phase, Finished):
                held = pool._holders[job_id]
                self._oracles.check(held.share == share, "shares", f"the cluster goes by {held.share}")
                least = _least_slots(truth.state)
                most = max(least, share.cap or len(held.held))
                self._oracles.check(len(held.held) <= most, "shares", f"{len(held.held)} held, cap {most}")


def _least_slots(state: JobState) -> int:
    return least_slots(state.graph, bounds_now(state.graph, state.requirements, None, state.policy))


def put_share(world: World, job_id: str, mark: str) -> Any:
    """A PUT of some share, as work for a control plane."""
    rng = world.rng
    cap = rng.choice((None, None, rng.randint(1, MOST_CAP)))
    known = world.oracles.truth(job_id).state
    if cap is not None and known is not None and known.graph.program is not None:
        # Vertices may come with lower bounds of their own. A job waits if its cap is below them (docs/slots.md).
        cap = max(cap, MOST_SLOTS_NEEDED)
    version = known.share.version if known is not None and rng.random() < 0.3 else None
    weight, priority = rng.choice((1, 2, 5)), rng.choice((-1, 0, 1))
    update = SlotShareUpdate(weight, priority, cap, if_match=version, requested_by="ann", reason=mark)

    async def put(plane: Incarnation) -> None:
        answer = await plane.plane.update_slot_share(job_id, update)
        world.tell(f"PUT of {update} answered {answer}")
        if not plane.dead:
            world.oracles.shares.answered(job_id, answer, update)

    return world.oracles.told.heard(mark, put)


@contextlib.contextmanager
def share_forgotten_by_a_restart() -> Iterator[None]:
    """A control plane that takes a job up does not tell the cluster its weight, priority and cap."""
    original = OwnBroker.restore

    def restore(self: OwnBroker, state: JobState) -> None:
        original(self, state)
        self._pool.set_share(state.job_id, SlotShare())

    OwnBroker.restore = restore  # type: ignore[method-assign]
    try:
        yield
    finally:
        OwnBroker.restore = original  # type: ignore[method-assign]


PLANTED = {"a slot share is forgotten by a restart": share_forgotten_by_a_restart}
