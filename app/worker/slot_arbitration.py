"""What the arbiter of shared slots does in each cycle of `app.worker.shared_desk`: decide, and write what follows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

import structlog

from app.cluster.ports import Offer
from app.cluster.shared_slots import decide
from app.scheduler.slot_ledger import Entry
from app.store.slot_table import Ledger, SlotArbiter, SlotTable
from app.worker.doorbell import Bells

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Settled:
    """Of these records nothing follows, until ``review_ms`` of the database's clock."""

    entries: tuple[Entry, ...]
    offer: Offer
    review_ms: int | None


class Arbitration:
    """``review_soon``: asks for another cycle. ``outlasts``: as in `app.cluster.shared_slots`."""

    def __init__(
        self,
        table: SlotTable,
        bells: Bells,
        review_soon: Callable[[], None],
        *,
        holding_ms: int,
        outlasts: bool,
    ) -> None:
        self.table = table
        self._bells = bells
        self._review_soon = review_soon
        self._holding_ms = holding_ms
        self._outlasts = outlasts
        self._settled: _Settled | None = None
        self._due: asyncio.TimerHandle | None = None
        self._renew_at_s = 0.0
        self._closed = False

    async def turn(self, ledger: Ledger, offer: Callable[[Ledger], Offer]) -> Ledger:
        """Decide if this control plane is the arbiter, or nobody is; what is true then.

        Raises:
            StoreError: the database is away.
        """
        arbiter = ledger.arbiter
        if ledger.unreadable:
            # Not renewed either: the lease ends, and whoever can read them follows.
            return ledger
        if arbiter is None or arbiter.is_over:
            if _leaves_it_to_others(ledger, offer(ledger)):
                return ledger
            epoch = await self.table.become_arbiter()
            if epoch is None:
                return ledger
            log.info("decides about slots from now on", epoch=epoch)
            # What the one before has written last.
            ledger = await self.table.ledger()
            arbiter = ledger.arbiter
        if arbiter is None or arbiter.owner != self.table.store.owner:
            self._settled = None
            return ledger
        return await self._decide(ledger, arbiter, offer(ledger))

    async def _decide(self, ledger: Ledger, arbiter: SlotArbiter, offer: Offer) -> Ledger:
        loop = asyncio.get_running_loop()
        if offer.suspended != arbiter.is_blind:
            await self.table.tell_blind(arbiter.epoch, offer.suspended)
        if _leaves_it_to_others(ledger, offer):
            # The lease ends.
            self._settled = None
            return ledger
        decision = None
        if not self._is_settled(ledger, offer):
            decision = decide(
                ledger.entries,
                offer,
                now_ms=ledger.now_ms,
                holding_ms=self._holding_ms,
                outlasts=self._outlasts,
            )
            self._look_again_at(decision.next_review_ms, ledger.now_ms)
            self._settled = (
                None if decision.grants else _Settled(ledger.entries, offer, decision.next_review_ms)
            )
        grants = {grant.job_id: grant for grant in decision.grants} if decision is not None else {}
        if not (grants or ledger.ended or loop.time() >= self._renew_at_s):
            return ledger
        asked_s = loop.time()
        if not await self.table.put_grants(arbiter, grants.values(), drop=ledger.ended):
            log.warning(
                "slots were decided about by somebody else, or by a write that was given up",
                grants=len(grants),
            )
            self._settled = None
            self._review_soon()
            return ledger
        self._renew_at_s = asked_s + self.table.store.lease_ttl_ms / 3000
        if grants:
            me = self.table.store.owner
            self._bells.ring([seat for name, seat in ledger.seats if name != me])
        entries = tuple(
            replace(entry, grant=grants[entry.claim.job_id]) if entry.claim.job_id in grants else entry
            for entry in ledger.entries
        )
        return replace(ledger, entries=entries, ended=())

    def _is_settled(self, ledger: Ledger, offer: Offer) -> bool:
        known = self._settled
        if known is None or known.offer != offer or known.entries != ledger.entries:
            return False
        return known.review_ms is None or ledger.now_ms < known.review_ms

    def close(self) -> None:
        self._closed = True
        if self._due is not None:
            self._due.cancel()

    def _look_again_at(self, due_ms: int | None, now_ms: int) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
        if due_ms is not None and not self._closed:
            delay_s = max(0, due_ms - now_ms) / 1000
            self._due = asyncio.get_running_loop().call_later(delay_s, self._review_soon)


def _leaves_it_to_others(ledger: Ledger, offer: Offer) -> bool:
    """Whether somebody else may see the cluster, which this control plane does not."""
    return offer.suspended and len(ledger.seats) > 1
