"""The slot broker of a single control plane: its pool is reviewed soon after a change, and when a time has
come.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence

from app.cluster.ports import Offer
from app.cluster.slot_pool import SlotPool
from app.model.plan import Slot
from app.scheduler.adaptive.events import SlotsChanged
from app.scheduler.adaptive.slot_declaration import Releasable, releasable_of
from app.scheduler.adaptive.state import JobState
from app.scheduler.arbiter import Allotment
from app.worker.clock import Clock

_REVIEW_DELAY_PER_JOB_S = 0.0001
_FEW_JOBS = 100
"""Up to this number of jobs, a review follows a change at once. It takes about 20 us per job, so with thousands of jobs
many changes share one review."""


class SlotBroker(ABC):
    """Where the jobs of a control plane ask for slots: its own pool (`OwnBroker`), or one that it shares with others
    (`app.worker.slots.shared_broker`). It runs on the event loop."""

    @property
    @abstractmethod
    def pool(self) -> SlotPool:
        """All slots, as far as they are known here."""

    @property
    def cluster_unreachable(self) -> bool:
        """What the pool says."""
        return self.pool.cluster_unreachable

    @property
    def arbiter(self) -> str | None:
        """Which control plane decides about the slots, if that is not always this one."""
        return None

    async def refresh(self) -> None:
        """Read again what other control planes have changed."""
        return

    @abstractmethod
    def granted(self, job_id: str) -> SlotsChanged:
        """The slots of ``job_id``, and how many of them it may go on to use, as its scheduler is told."""

    def grants_differ(self, state: JobState) -> bool:
        """Whether the job is to be told that its slots are other than it knows."""
        granted = self.granted(state.job_id)
        known = (state.slots, state.supply.allowed, state.cluster_unreachable)
        return (granted.slots, granted.allowed, granted.cluster_unreachable) != known

    @abstractmethod
    def allotment(self, job_id: str) -> Allotment | None: ...

    @abstractmethod
    def take_offer(self, offer: Offer) -> None:
        """What a cluster offers from now on."""

    async def look_up(self, job_ids: Sequence[str]) -> set[str]:
        """To be called before these jobs are restored, once their leases are this process's. Those that cannot be, as
        it cannot be read which slots they hold."""
        return set()

    @abstractmethod
    def restore(self, state: JobState) -> None:
        """Take up a job with the slots that it held. The caller asks for a review when all jobs are there."""

    @abstractmethod
    def keep(self, job_id: str, slots: Iterable[Slot]) -> None:
        """A job that cannot be read uses these slots, as far as that is known: no other job gets them."""

    @abstractmethod
    def declare(self, state: JobState) -> None:
        """What the job wants now, and with which weight, priority and cap."""

    @abstractmethod
    def note_releasable(self, state: JobState) -> None:
        """Whether the job runs, and what it can give meanwhile."""

    @abstractmethod
    def note_held(self, state: JobState) -> None:
        """The slots of the job by its durable state: others are not its own any more, also after a restart."""

    @abstractmethod
    def release(self, job_id: str, slot_ids: Iterable[str]) -> None: ...

    @abstractmethod
    def forget(self, job_id: str) -> None:
        """The job has ended: it holds no slots any more."""

    @abstractmethod
    def let_go(self, job_id: str) -> None:
        """The job is not this control plane's any more."""

    @abstractmethod
    def review_soon(self) -> None:
        """Changes that come together share a review."""

    @abstractmethod
    def close(self) -> None: ...


class OwnBroker(SlotBroker):
    """The broker of a process that shares its slots with no other. ``tell`` is called with the jobs that hold other
    slots than before, or may go on to use another number of them."""

    def __init__(self, pool: SlotPool, clock: Clock, tell: Callable[[set[str]], None]) -> None:
        self._pool = pool
        self._clock = clock
        self._tell = tell
        self._soon: asyncio.TimerHandle | None = None
        self._due: asyncio.TimerHandle | None = None
        self._closed = False
        self._kept: set[str] = set()

    @property
    def pool(self) -> SlotPool:
        return self._pool

    def granted(self, job_id: str) -> SlotsChanged:
        pool, allotment = self._pool, self._pool.allotment(job_id)
        return SlotsChanged(
            pool.held_by(job_id),
            pool.allowed(job_id),
            pool.reason(job_id),
            cluster_unreachable=pool.cluster_unreachable,
            coming=0 if allotment is None else allotment.coming,
        )

    def allotment(self, job_id: str) -> Allotment | None:
        return self._pool.allotment(job_id)

    def take_offer(self, offer: Offer) -> None:
        self._pool.take_offer(offer)
        self.review_soon()

    def restore(self, state: JobState) -> None:
        if state.job_id in self._kept:
            self._kept.discard(state.job_id)
            self._pool.forget(state.job_id)
        self._pool.restore(
            state.job_id,
            state.slots,
            state.supply.declared,
            state.supply.minimal,
            allowed=state.supply.allowed,
            changed_ms=state.supply.changed_ms,
        )
        self._pool.set_share(state.job_id, state.share)
        self._pool.note_releasable(state.job_id, releasable_of(state))
        self._pool.note_held(state.job_id, state.slots)

    def keep(self, job_id: str, slots: Iterable[Slot]) -> None:
        held = tuple(slots)
        self._kept.add(job_id)
        self._pool.restore(job_id, held, len(held), len(held))
        self._pool.note_releasable(job_id, Releasable(running=True, can_give=False))

    def declare(self, state: JobState) -> None:
        self._pool.declare(state.job_id, state.supply.declared, state.supply.minimal)
        self._pool.set_share(state.job_id, state.share)
        self.review_soon()

    def note_releasable(self, state: JobState) -> None:
        if self._pool.note_releasable(state.job_id, releasable_of(state)):
            self.review_soon()

    def note_held(self, state: JobState) -> None:
        if self._pool.note_held(state.job_id, state.slots):
            self.review_soon()

    def release(self, job_id: str, slot_ids: Iterable[str]) -> None:
        self._pool.release(job_id, slot_ids)
        self.review_soon()

    def forget(self, job_id: str) -> None:
        self._pool.forget(job_id)
        self.review_soon()

    def let_go(self, job_id: str) -> None:
        self.forget(job_id)

    def review_soon(self) -> None:
        if self._soon is None and not self._closed:
            jobs = self._pool.jobs
            delay_s = 0.0 if jobs <= _FEW_JOBS else jobs * _REVIEW_DELAY_PER_JOB_S
            self._soon = asyncio.get_running_loop().call_later(delay_s, self._review)

    def close(self) -> None:
        self._closed = True
        self._cancel()

    def _cancel(self) -> None:
        for handle in (self._soon, self._due):
            if handle is not None:
                handle.cancel()
        self._soon = self._due = None

    def _review(self) -> None:
        if self._closed:
            return
        self._cancel()
        now_ms = self._clock.now_ms()
        changed = self._pool.review(now_ms)
        due_ms = self._pool.next_review_ms
        if due_ms is not None:
            delay_s = max(0, due_ms - now_ms) / 1000
            self._due = asyncio.get_running_loop().call_later(delay_s, self._review)
        self._tell(changed)
