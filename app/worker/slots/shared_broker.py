"""The slot broker of several control planes: they write their claims to the database, and one of them, the
arbiter, writes the grants (`app.scheduler.slot_ledger`).

Each control plane runs a cycle after a change, when it is woken, and twice a second: it writes the claims of
its jobs, reads all claims and grants, writes grants if it is the arbiter, and tells its jobs their grants. If
there is no arbiter, it becomes the arbiter. All of this data is in the database, so the loss of a control plane
loses none of it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import structlog

from app.cluster.ports import Offer
from app.cluster.shared_slots import pool_of_all
from app.cluster.slot_pool import SlotPool
from app.model.plan import Slot
from app.scheduler.adaptive.events import SlotsChanged
from app.scheduler.adaptive.slot_declaration import releasable_of
from app.scheduler.adaptive.state import JobState
from app.scheduler.arbiter import Allotment
from app.scheduler.slot_ledger import Ask, Entry, Holding, SlotGrant
from app.store.errors import StoreUnavailable
from app.store.slot_table import Ledger, OwnClaim, SlotTable
from app.worker.job.job import Job
from app.worker.refusals import ControlPlaneError
from app.worker.slots.arbitration import Arbitration
from app.worker.slots.broker import SlotBroker
from app.worker.slots.doorbell import Bells

log = structlog.get_logger()

LOOK_EVERY_S = 0.5
FEW_JOBS = 100
PAUSE_PER_JOB_S = 0.0002
"""Beyond a few jobs there is so long a pause between two cycles: somewhat more than a cycle takes."""

_LET_GO_KEPT_S = 600.0


@dataclass(slots=True)
class _Own:
    """A job of this control plane at one epoch. ``written``: what the last claim in the database holds.

    ``let_go_s``: since when it is not served here. It is kept for a while: if the job is taken up again at the same
    epoch, what it has given back meanwhile may not be in the database yet, or may just be getting there.
    """

    epoch: int
    holding: Holding
    ask: Ask
    written: frozenset[str]
    is_dirty: bool = True
    is_settling: bool = False
    let_go_s: float | None = None


class SharedBroker(SlotBroker):
    """What it says of slots is as of its last look into the database.

    ``offer``: what a cluster offers; None where each server has slots of the host that all of them are on.
    """

    def __init__(
        self,
        table: SlotTable,
        jobs: Mapping[str, Job],
        tell: Callable[[set[str]], None],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        *,
        bells: Bells,
        offer: Offer | None,
        holding_ms: int,
    ) -> None:
        self._table = table
        self._offer = offer
        self._holding_ms = holding_ms
        self._ledger = Ledger()
        self._overview: SlotPool | None = None
        self._jobs = jobs
        self._tell = tell
        self._spawn = spawn
        self._bells = bells
        self._own: dict[str, _Own] = {}
        self._found: dict[str, Entry] = {}
        self._wanted = asyncio.Event()
        self._closed = False
        self._arbitration = Arbitration(table, bells, self.review_soon, holding_ms=holding_ms)

    async def run(self) -> None:
        """The cycle, until it is cancelled."""
        listens = False
        while not self._closed:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._wanted.wait()
            self._wanted.clear()
            try:
                if not listens:
                    listens = True
                    self._bells.listen(self.review_soon)
                await self._cycle()
            except StoreUnavailable as error:
                log.error("slots cannot be asked for, or given, now", error=str(error))
            except Exception:
                # Whatever it is, it must not keep all the other jobs from slots.
                log.exception("the pool of slots met a defect")
            jobs = len(self._ledger.entries)
            if jobs > FEW_JOBS:
                # Each cycle looks at all of them, so many changes are to share one.
                await asyncio.sleep(jobs * PAUSE_PER_JOB_S)

    # -- of all slots

    async def refresh(self) -> None:
        """
        Raises:
            StoreError: the database is away.
        """
        self._note(await self._table.ledger())

    @property
    def arbiter(self) -> str | None:
        arbiter = self._ledger.arbiter
        return None if arbiter is None or arbiter.is_over else arbiter.owner

    @property
    def cluster_unreachable(self) -> bool:
        # It is asked for each job, and a pool is put together for all of them.
        return self._offered.unreachable

    @property
    def _offered(self) -> Offer:
        """What there is for the jobs of this control plane: nothing new while it cannot reach the cluster, or the one
        that decides about its slots cannot."""
        offered, arbiter = self._offer_by(self._ledger), self._ledger.arbiter
        if (
            offered.unreachable
            or arbiter is None
            or arbiter.is_over
            or arbiter.owner == self._table.store.owner
            or not arbiter.cluster_unreachable
        ):
            return offered
        why = f"The server that decides about slots, {arbiter.owner}, cannot reach the cluster."
        return replace(offered, unreachable=True, why=(why, *offered.why))

    def _offer_by(self, ledger: Ledger) -> Offer:
        return Offer(ledger.task_managers, outlasts=True) if self._offer is None else self._offer

    @property
    def pool(self) -> SlotPool:
        if self._overview is None:
            self._overview = pool_of_all(self._ledger.entries, self._offered, holding_ms=self._holding_ms)
        return self._overview

    def _note(self, ledger: Ledger) -> None:
        self._ledger, self._overview = ledger, None

    # -- of the jobs of this control plane

    def granted(self, job_id: str) -> SlotsChanged:
        own = self._own.get(job_id)
        if own is None:
            return SlotsChanged((), cluster_unreachable=self.cluster_unreachable)
        holding, verdict = own.holding, own.holding.grant.verdict
        return SlotsChanged(
            holding.slots,
            holding.allowed,
            holding.grant.reason,
            cluster_unreachable=self.cluster_unreachable,
            coming=0 if verdict is None else verdict.coming,
        )

    def allotment(self, job_id: str) -> Allotment | None:
        own = self._own.get(job_id)
        return None if own is None else own.holding.grant.verdict

    def take_offer(self, offer: Offer) -> None:
        """The host's slots are those of the servers."""
        if self._offer is not None:
            self._offer, self._overview = offer, None
            self.review_soon()

    async def look_up(self, job_ids: Sequence[str]) -> set[str]:
        """Nobody else writes the claims of these jobs any more.

        Raises:
            StoreError: the database is away.
        """
        loop = asyncio.get_running_loop()
        for job_id in job_ids:
            self._found.pop(job_id, None)
            if (own := self._own.get(job_id)) is not None and own.let_go_s is not None:
                own.let_go_s = loop.time()
        found = await self._table.entries_of(job_ids)
        self._found.update((job_id, entry) for job_id, entry in found.items() if entry is not None)
        return {job_id for job_id, entry in found.items() if entry is None}

    def restore(self, state: JobState) -> None:
        """Take up a job that was looked up. Slots that it has, and is not granted, it is told to be without."""
        job_id, epoch = state.job_id, self._jobs[state.job_id].writer.epoch
        found = self._found.pop(job_id, None)
        held = state.slot_ids
        own = self._own.get(job_id)
        if own is None or own.epoch != epoch:
            written = frozenset[str]() if found is None else found.claim.holds
            own = _Own(epoch, Holding.take_up(job_id, found, held), Ask(), written)
            self._own[job_id] = own
        own.let_go_s = None
        own.holding.fading |= held - _ids(own.holding.slots)
        own.ask = replace(_asked(state), giving=releasable_of(state))
        self._has_news(own)

    def keep(self, job_id: str, slots: Iterable[Slot]) -> None:
        """The slots of a job are in the database, for the arbiter."""

    def declare(self, state: JobState) -> None:
        own = self._own.get(state.job_id)
        if own is None or own.let_go_s is not None:
            holding = Holding(SlotGrant(state.job_id))
            own = _Own(self._jobs[state.job_id].writer.epoch, holding, Ask(), frozenset())
            self._own[state.job_id] = own
        self._ask(own, replace(_asked(state), giving=own.ask.giving))

    def note_releasable(self, state: JobState) -> None:
        own = self._own.get(state.job_id)
        if own is not None:
            self._ask(own, replace(own.ask, giving=releasable_of(state)))

    def note_held(self, state: JobState) -> None:
        """The slots of a job are in the database, for the arbiter."""

    def release(self, job_id: str, slot_ids: Iterable[str]) -> None:
        own = self._own.get(job_id)
        if own is not None and own.holding.give_back(slot_ids):
            self._has_news(own)

    def forget(self, job_id: str) -> None:
        """The job has ended, as everybody can read."""
        if self._own.pop(job_id, None) is not None:
            self._ring_arbiter()
            self.review_soon()

    def let_go(self, job_id: str) -> None:
        own = self._own.get(job_id)
        if own is not None:
            own.let_go_s = asyncio.get_running_loop().time()

    def review_soon(self) -> None:
        self._wanted.set()

    def close(self) -> None:
        self._closed = True
        self._arbitration.close()
        self._bells.close()

    def _ask(self, own: _Own, ask: Ask) -> None:
        if ask != own.ask:
            own.ask = ask
            self._has_news(own)

    def _has_news(self, own: _Own) -> None:
        own.is_dirty = True
        self.review_soon()

    # -- the cycle

    async def _cycle(self) -> None:
        await self._write_claims()
        ledger = await self._table.ledger()
        self._take_note(await self._arbitration.turn(ledger, self._offer_by))

    async def _write_claims(self) -> None:
        now_s = asyncio.get_running_loop().time()
        for job_id, own in list(self._own.items()):
            if own.let_go_s is not None and now_s - own.let_go_s > _LET_GO_KEPT_S:
                del self._own[job_id]
        changed = [own for own in self._own.values() if own.is_dirty and own.let_go_s is None]
        if not changed:
            return
        written: list[tuple[_Own, OwnClaim]] = []
        try:
            for own in changed:
                own.is_dirty = False
                claim = own.holding.claim(own.ask)
                written.append((own, OwnClaim(claim, own.epoch, claim.holds != own.written)))
            lost = await self._table.put_claims([one for _, one in written])
        except BaseException:
            for own in changed:
                own.is_dirty = True
            raise
        for own, one in written:
            own.written = one.claim.holds
            if one.claim.job_id in lost and own.let_go_s is None:
                # Another control plane's; the leases will tell the same in a moment.
                own.let_go_s = now_s
        self._ring_arbiter()

    def _take_note(self, ledger: Ledger) -> None:
        """Tell the jobs of this control plane what they are granted."""
        self._note(ledger)
        changed = set()
        for entry in ledger.entries:
            job_id, grant = entry.claim.job_id, entry.grant
            own = self._own.get(job_id)
            if own is None or own.let_go_s is not None or grant is None:
                continue
            is_newer = grant.version > own.holding.grant.version
            if own.holding.learn(grant):
                changed.add(job_id)
            if is_newer:
                self._has_news(own)
        unreachable = self.cluster_unreachable
        for job_id, own in self._own.items():
            job = self._jobs.get(job_id)
            if job is not None and own.let_go_s is None and job.state.cluster_unreachable != unreachable:
                changed.add(job_id)
        self._tell(changed)
        for job_id, own in self._own.items():
            job = self._jobs.get(job_id)
            if own.holding.fading and not own.is_settling and own.let_go_s is None and job is not None:
                own.is_settling = True
                self._spawn(self._settle(job, own))

    async def _settle(self, job: Job, own: _Own) -> None:
        """Note that the job does without the slots that were withdrawn."""
        fading = set(own.holding.fading)
        try:
            job.slots_changed()
            await job.worker.settle()
            without = fading - _ids(job.state.slots)
            if without:
                own.holding.is_without(without)
                self._has_news(own)
        except ControlPlaneError:
            log.debug("whether slots are given back is asked again", job=job.job_id)
        finally:
            own.is_settling = False

    def _ring_arbiter(self) -> None:
        arbiter = self.arbiter
        if arbiter is not None and arbiter != self._table.store.owner:
            self._bells.ring([seat for name, seat in self._ledger.seats if name == arbiter])


def _asked(state: JobState) -> Ask:
    # Who asked for a share, and why, is told elsewhere.
    share = replace(state.share, requested_by=None, reason=None)
    return Ask(state.supply.declared, state.supply.minimal, share=share)


def _ids(slots: Iterable[Slot]) -> set[str]:
    return {slot.id for slot in slots}
