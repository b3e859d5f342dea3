"""The shared pool of slots, as its arbiter computes it from the records of all jobs
(`app.scheduler.slot_ledger`) for each decision. So a new arbiter needs no other data.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from app.cluster.ports import Offer
from app.cluster.slot_pool import SlotPool
from app.scheduler.slot_ledger import Entry, SlotGrant, may_hold, next_grant, usable


@dataclass(frozen=True, slots=True)
class Decision:
    """``grants``: those that are to be written. ``next_review_ms``: when time alone is a reason for another look."""

    grants: tuple[SlotGrant, ...]
    next_review_ms: int | None


def pool_of_all(entries: Sequence[Entry], offer: Offer, *, holding_ms: int) -> SlotPool:
    """The slots that ``offer`` has, and which job holds which, for ``entries`` in the order in which the jobs came."""
    pool = SlotPool(dict(offer.task_managers), holding_ms=holding_ms)
    pool.take_offer(offer)
    kept = offer.outlasts or offer.unreachable
    for entry in entries:
        claim, grant = entry.claim, entry.grant
        own = usable(entry)
        changed_ms = claim.changed_ms if grant is None else max(claim.changed_ms, grant.changed_ms)
        pool.restore(
            claim.job_id,
            own,
            claim.ask.desired,
            claim.ask.minimal,
            allowed=None if grant is None else grant.allowed,
            changed_ms=changed_ms,
            guests=kept,
        )
        pool.set_share(claim.job_id, claim.ask.share)
        pool.keep_off(may_hold(entry) - {slot.id for slot in own})
        pool.note_releasable(claim.job_id, claim.ask.giving)
    return pool


def decide(
    entries: Sequence[Entry],
    offer: Offer,
    *,
    now_ms: int,
    holding_ms: int,
    beyond: Iterable[str] = (),
) -> Decision:
    """What each job is to hold from now on. ``now_ms``: by the clock of the records. While the cluster is unreachable
    that is what it holds. ``beyond``: slots that may be those of jobs that are not among ``entries``."""
    if offer.unreachable:
        return Decision((), None)
    pool = pool_of_all(entries, offer, holding_ms=holding_ms)
    pool.keep_off(beyond)
    pool.review(now_ms)
    grants = []
    for entry in entries:
        job_id = entry.claim.job_id
        grant = next_grant(
            entry,
            pool.held_by(job_id),
            pool.allowed(job_id),
            now_ms=now_ms,
            verdict=pool.allotment(job_id),
            reason=pool.reason(job_id),
            total=pool.total,
        )
        if grant is not None:
            grants.append(grant)
    return Decision(tuple(grants), pool.next_review_ms)
