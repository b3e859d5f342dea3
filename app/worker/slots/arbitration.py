"""The work of the arbiter of shared slots in each cycle of `shared_broker`: it decides, and writes its
decision.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial as bind

import structlog

from app.cluster.ports import Offer
from app.cluster.shared_slots import decide, pool_of_all
from app.scheduler.slot_ledger import Entry
from app.store.slot_table import Ledger, SlotArbiter, SlotTable
from app.worker.slots.doorbell import Bells

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Settled:
    """Of these records nothing follows, until ``review_ms`` of the database's clock."""

    entries: tuple[Entry, ...]
    offer: Offer
    beyond: frozenset[str]
    review_ms: int | None


class _Beyond:
    """Slots that may be those of jobs whose records cannot be read.

    Where not even their ids can, they are among those that were nobody's when this control plane first decided: nothing
    is given to such a job meanwhile, and what another one gives back was never its own.
    """

    def __init__(self) -> None:
        self._epoch = 0
        self._at_first: dict[str, frozenset[str]] = {}

    def slots(self, ledger: Ledger, epoch: int, nobodys: Callable[[], frozenset[str]]) -> frozenset[str]:
        if epoch != self._epoch:
            self._epoch, self._at_first = epoch, {}
        found: dict[str, frozenset[str]] = {}
        for job_id, named in ledger.unread:
            known = named if named is not None else self._at_first.get(job_id)
            if known is None:
                known = nobodys()
                said = "the slots of a job cannot be read: those that nobody has are kept for it"
                log.warning(said, job=job_id, slots=sorted(known))
            found[job_id] = known
        self._at_first = found
        return frozenset().union(*found.values())


class Arbitration:
    """``review_soon``: asks for another cycle."""

    def __init__(
        self,
        table: SlotTable,
        bells: Bells,
        review_soon: Callable[[], None],
        *,
        holding_ms: int,
    ) -> None:
        self.table, self._bells, self._review_soon = table, bells, review_soon
        self._holding_ms = holding_ms
        self._settled: _Settled | None = None
        self._beyond = _Beyond()
        self._due: asyncio.TimerHandle | None = None
        self._renew_at_s = 0.0
        self._closed = False

    async def turn(self, ledger: Ledger, offer: Callable[[Ledger], Offer]) -> Ledger:
        """Decide if this control plane is the arbiter, or nobody is; what is true then.

        Raises:
            StoreError: the database is away.
        """
        arbiter, partial = ledger.arbiter, bool(ledger.unread)
        if (
            arbiter is None
            or arbiter.is_over
            or (arbiter.is_partial and not partial and not self._is_me(arbiter))
        ):
            if _leaves_it_to_others(ledger, offer(ledger)):
                return ledger
            epoch = await self.table.become_arbiter(partial=partial)
            if epoch is None:
                return ledger
            log.info("decides about slots from now on", epoch=epoch, unreadable=list(ledger.unreadable))
            # What the one before has written last.
            ledger = await self.table.ledger()
            arbiter = ledger.arbiter
        if arbiter is None or not self._is_me(arbiter):
            self._settled = None
            return ledger
        return await self._decide(ledger, arbiter, offer(ledger))

    async def _decide(self, ledger: Ledger, arbiter: SlotArbiter, offer: Offer) -> Ledger:
        loop = asyncio.get_running_loop()
        if offer.unreachable != arbiter.cluster_unreachable:
            await self.table.tell_unreachable(arbiter.epoch, offer.unreachable)
        if bool(ledger.unread) != arbiter.is_partial:
            await self.table.tell_partial(arbiter.epoch, bool(ledger.unread))
        if _leaves_it_to_others(ledger, offer):
            # The lease ends.
            self._settled = None
            return ledger
        decision, beyond = None, self._kept_for_unread(ledger, arbiter, offer)
        if not self._is_settled(ledger, offer, beyond):
            decision = decide(
                ledger.entries,
                offer,
                now_ms=ledger.now_ms,
                holding_ms=self._holding_ms,
                beyond=beyond,
            )
            self._look_again_at(decision.next_review_ms, ledger.now_ms)
            self._settled = (
                None if decision.grants else _Settled(ledger.entries, offer, beyond, decision.next_review_ms)
            )
        grants = {grant.job_id: grant for grant in decision.grants} if decision is not None else {}
        if not (grants or ledger.ended or loop.time() >= self._renew_at_s):
            return ledger
        asked_s = loop.time()
        if not await self.table.put_grants(arbiter, grants.values(), drop=ledger.ended):
            log.warning(
                "another arbiter, or a write that was given up, has written grants", grants=len(grants)
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

    def _kept_for_unread(self, ledger: Ledger, arbiter: SlotArbiter, offer: Offer) -> frozenset[str]:
        if offer.unreachable:
            return frozenset()
        pool = bind(pool_of_all, ledger.entries, offer, holding_ms=self._holding_ms)
        return self._beyond.slots(ledger, arbiter.epoch, lambda: pool().free_ids)

    def _is_me(self, arbiter: SlotArbiter) -> bool:
        return arbiter.owner == self.table.store.owner

    def _is_settled(self, ledger: Ledger, offer: Offer, beyond: frozenset[str]) -> bool:
        known = self._settled
        if known is None or (known.offer, known.beyond) != (offer, beyond) or known.entries != ledger.entries:
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
    """Whether another control plane may reach the cluster, which this one does not."""
    return offer.unreachable and len(ledger.seats) > 1
