"""Where jobs ask for slots that several control planes share: what they ask for goes into the database, and one control
plane, the arbiter, writes there who gets what (`app.scheduler.slot_ledger`).

Each control plane goes round the same cycle, when something has changed, when it is rung at, and twice a second: it
writes the claims of its jobs, reads all claims and grants, writes grants if it is the arbiter, and tells its jobs what
they are granted. If nobody is the arbiter it becomes the arbiter. Nothing is kept anywhere else, so one that is lost
takes nothing along.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import structlog

from app.cluster.ports import Offer
from app.cluster.shared_slots import decide
from app.model.plan import Slot
from app.scheduler.adaptive.events import SlotsChanged
from app.scheduler.adaptive.state import JobState
from app.scheduler.arbiter import Verdict
from app.scheduler.giving import giving_of
from app.scheduler.slot_ledger import Ask, Entry, Holding, SlotGrant
from app.store.errors import StoreError, StoreUnavailable
from app.store.slot_table import Ledger, OwnClaim, SlotTable
from app.worker.doorbell import Bells
from app.worker.job import Job
from app.worker.pool_view import PoolView
from app.worker.views import ControlPlaneError

log = structlog.get_logger()

LOOK_EVERY_S = 0.5
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
    is_told_blind: bool = False
    let_go_s: float | None = None


class SharedDesk(PoolView):
    """Implements `app.worker.slot_desk.Desk`. Everything here runs on the event loop.

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
        super().__init__(table, offer, holding_ms=holding_ms)
        self._jobs = jobs
        self._tell = tell
        self._spawn = spawn
        self._bells = bells
        self._own: dict[str, _Own] = {}
        self._found: dict[str, Entry] = {}
        self._wanted = asyncio.Event()
        self._due: asyncio.TimerHandle | None = None
        self._renew_at_s = 0.0
        self._closed = False

    async def run(self) -> None:
        """The cycle, until it is cancelled."""
        self._bells.listen(self.review_soon)
        while not self._closed:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), LOOK_EVERY_S)
            self._wanted.clear()
            try:
                await self._cycle()
            except StoreUnavailable as error:
                log.error("slots cannot be asked for, or given, now", error=str(error))
            except Exception:
                # Whatever it is, it must not keep all the other jobs from slots.
                log.exception("the pool of slots met a defect")

    # -- of the jobs of this control plane

    def granted(self, job_id: str) -> SlotsChanged:
        own = self._own.get(job_id)
        if own is None:
            return SlotsChanged((), away=self.is_blind)
        holding = own.holding
        return SlotsChanged(holding.slots, holding.allowed, holding.grant.reason, away=self.is_blind)

    def grants_otherwise(self, state: JobState) -> bool:
        granted = self.granted(state.job_id)
        known = (state.slots, state.allowed, state.is_blind)
        return (granted.slots, granted.allowed, granted.away) != known

    def verdict(self, job_id: str) -> Verdict | None:
        own = self._own.get(job_id)
        return None if own is None else own.holding.grant.verdict

    def take_offer(self, offer: Offer) -> None:
        """What the cluster offers from now on. The host's slots are those of the servers."""
        if self._is_of_cluster:
            self._offer, self._overview = offer, None
            self.review_soon()

    async def look_up(self, job_ids: Sequence[str]) -> None:
        """Read what there is of jobs that are to be taken up: after this process has got their leases, so that
        nobody else writes their claims any more.

        Raises:
            StoreError: the database is away.
        """
        loop = asyncio.get_running_loop()
        for job_id in job_ids:
            self._found.pop(job_id, None)
            if (own := self._own.get(job_id)) is not None and own.let_go_s is not None:
                own.let_go_s = loop.time()
        self._found.update(await self._table.entries_of(job_ids))

    def restore(self, state: JobState) -> None:
        """Take up a job that was looked up. Slots that it has, and is not granted, it is told to be without."""
        job_id, epoch = state.job_id, self._jobs[state.job_id].writer.epoch
        found = self._found.pop(job_id, None)
        held = {slot.id for slot in state.slots}
        own = self._own.get(job_id)
        if own is None or own.epoch != epoch:
            written = frozenset[str]() if found is None else found.claim.holds
            own = _Own(epoch, Holding.take_up(job_id, found, held), Ask(), written)
            self._own[job_id] = own
        own.let_go_s = None
        own.holding.fading |= held - _ids(own.holding.slots)
        own.ask = replace(_asked(state), giving=giving_of(state))
        self._has_news(own)

    def declare(self, state: JobState) -> None:
        own = self._own.get(state.job_id)
        if own is None or own.let_go_s is not None:
            holding = Holding(SlotGrant(state.job_id))
            own = _Own(self._jobs[state.job_id].writer.epoch, holding, Ask(), frozenset())
            self._own[state.job_id] = own
        self._ask(own, replace(_asked(state), giving=own.ask.giving))

    def note_giving(self, state: JobState) -> None:
        own = self._own.get(state.job_id)
        if own is not None:
            self._ask(own, replace(own.ask, giving=giving_of(state)))

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
        if self._due is not None:
            self._due.cancel()
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
        self._take_note(await self._arbitrate(ledger))

    async def _write_claims(self) -> None:
        now_s = asyncio.get_running_loop().time()
        for job_id, own in list(self._own.items()):
            if own.let_go_s is not None and now_s - own.let_go_s > _LET_GO_KEPT_S:
                del self._own[job_id]
        changed = [own for own in self._own.values() if own.is_dirty and own.let_go_s is None]
        if not changed:
            return
        written: list[tuple[_Own, OwnClaim]] = []
        for own in changed:
            own.is_dirty = False
            claim = own.holding.claim(own.ask)
            written.append((own, OwnClaim(claim, own.epoch, claim.holds != own.written)))
        try:
            lost = await self._table.put_claims([one for _, one in written])
        except StoreError:
            for own in changed:
                own.is_dirty = True
            raise
        for own, one in written:
            own.written = one.claim.holds
            if one.claim.job_id in lost and own.let_go_s is None:
                # Another control plane's; the leases will tell the same in a moment.
                own.let_go_s = now_s
        self._ring_arbiter()

    async def _arbitrate(self, ledger: Ledger) -> Ledger:
        """Decide if this is the arbiter, or nobody is; what is true then."""
        arbiter, loop = ledger.arbiter, asyncio.get_running_loop()
        if arbiter is None or arbiter.is_over:
            epoch = await self._table.become_arbiter()
            if epoch is None:
                return ledger
            log.info("decides about slots from now on", epoch=epoch)
            # What the one before has written last.
            ledger = await self._table.ledger()
        elif arbiter.owner == self._table.store.owner:
            epoch = arbiter.epoch
        else:
            return ledger
        offer = Offer(ledger.task_managers) if self._offer is None else self._offer
        if offer.suspended != (arbiter is not None and arbiter.is_blind):
            await self._table.tell_blind(epoch, offer.suspended)
        decision = decide(
            ledger.entries,
            offer,
            now_ms=ledger.now_ms,
            holding_ms=self._holding_ms,
            outlasts=not self._is_of_cluster,
        )
        self._look_again_at(decision.next_review_ms, ledger.now_ms)
        if not (decision.grants or ledger.ended or loop.time() >= self._renew_at_s):
            return ledger
        asked_s = loop.time()
        if not await self._table.put_grants(epoch, decision.grants, drop=ledger.ended):
            log.warning("another control plane decides about slots")
            return ledger
        self._renew_at_s = asked_s + self._table.store.lease_ttl_ms / 3000
        if decision.grants:
            me = self._table.store.owner
            self._bells.ring([seat for name, seat in ledger.seats if name != me])
        grants = {grant.job_id: grant for grant in decision.grants}
        entries = tuple(
            replace(entry, grant=grants.get(entry.claim.job_id, entry.grant)) for entry in ledger.entries
        )
        return replace(ledger, entries=entries, ended=())

    def _look_again_at(self, due_ms: int | None, now_ms: int) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
        if due_ms is not None and not self._closed:
            delay_s = max(0, due_ms - now_ms) / 1000
            self._due = asyncio.get_running_loop().call_later(delay_s, self.review_soon)

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
        for job_id, own in self._own.items():
            if own.is_told_blind != self.is_blind and own.let_go_s is None:
                own.is_told_blind = self.is_blind
                changed.add(job_id)
        self._tell(changed)
        for job_id, own in self._own.items():
            job = self._jobs.get(job_id)
            if own.holding.fading and not own.is_settling and own.let_go_s is None and job is not None:
                own.is_settling = True
                self._spawn(self._settle(job, own))

    async def _settle(self, job: Job, own: _Own) -> None:
        """Find out that the job does without the slots that were withdrawn, whatever it was told before."""
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
    return Ask(state.declared_slots, state.declared_minimal, share=share)


def _ids(slots: Iterable[Slot]) -> set[str]:
    return {slot.id for slot in slots}
