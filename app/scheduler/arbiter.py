"""Slots among jobs: who may hold how many, and why. Flink has no such thing: there the first job to ask gets all.

Three rules, in this order:

1. **Lower bounds.** A job that runs keeps the slots without which it cannot run. Jobs that wait are admitted by
   priority, then in the order in which they came, each if its whole minimum still fits. So no two jobs can each hold
   half of what the other needs. One that does not fit keeps those of lower priority from being admitted, or they could
   keep it waiting for ever; it keeps nobody back if there are too few slots for it altogether.
2. **Fair shares.** What is left is dealt slot by slot, each to the job that has the fewest for its weight with it, up
   to its upper bounds and its cap (the highest averages method of D'Hondt, from the lower bounds upwards).
3. **Stability.** Who holds a slot wins a tie. What a job cannot use, or has beyond its cap, it gives back at once. Else
   a slot is taken away at once only if an admitted job is below its lower bound, and no more than it needs; and to even
   out shares, only from a job whose slots have not changed for a while, and never so many that it would have to
   restart. Jobs that can give slots in place do so before a job restarts.

What is taken away is given back in place: the job runs on with fewer tasks. The slots arrive when it has done so.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from enum import Enum

from app.model.slot_share import WEIGHT_MAX
from app.model.value import value


@value
class Claim:
    """What a job asks for, and what it has.

    Args:
        minimal: slots without which it cannot run.
        desired: slots with which every vertex runs at its upper bound; at least ``minimal``. Both are 0 for a job that
            asks for nothing any more and ends.
        held: slots that it holds.
        running: whether it runs with them, even if its lower bounds have been raised beyond them since.
        can_give: whether it can give slots back while it runs. A BATCH job in one process cannot.
        in_place_floor: how many slots it has to keep so as to run on without a restart.
        weight: 1 to `WEIGHT_MAX`. A job of weight 2 has twice the share of one of weight 1.
        priority: who is admitted first; higher before lower.
        cap: the most that it may have. A job that runs keeps its minimum all the same.
        changed_ms: when it last got or lost a slot.

    Raises:
        ValueError: the numbers are none of a job.
    """

    job_id: str
    minimal: int
    desired: int
    held: int = 0
    running: bool = False
    can_give: bool = True
    weight: int = 1
    priority: int = 0
    cap: int | None = None
    changed_ms: int = 0
    in_place_floor: int = 0

    def __post_init__(self) -> None:
        asks_nothing = self.minimal == self.desired == 0
        if not (asks_nothing or 1 <= self.minimal <= self.desired) or self.held < 0:
            raise ValueError(f"{self.minimal} to {self.desired} slots, {self.held} held: no claim of a job")
        if not 1 <= self.weight <= WEIGHT_MAX:
            raise ValueError(f"a weight is from 1 to {WEIGHT_MAX}, and not {self.weight}")

    @property
    def floor(self) -> int:
        """The slots that no other job may take from it."""
        if self.desired == 0 or (self.running and not self.can_give):
            return self.held
        if self.running:
            return min(self.held, self.minimal)
        may_start = self.cap is None or self.cap >= self.minimal
        return self.minimal if may_start and self.held >= self.minimal else 0

    @property
    def most(self) -> int:
        """What it has a use for and its cap allows; less than ``minimal`` if its cap keeps it from running as it is
        asked to."""
        return self.desired if self.cap is None else min(self.desired, self.cap)

    @property
    def limit(self) -> int:
        """The most that it may have: ``most``, or what no other job may take from it."""
        return max(self.most, self.floor)

    @property
    def surplus(self) -> int:
        """What it has beyond its cap."""
        return 0 if self.cap is None else max(self.held - max(self.cap, self.floor), 0)


class Why(Enum):
    """Why a job may hold what it may hold. The first that applies."""

    NOTHING_ASKED = "nothing-asked"
    NO_ROOM = "no-room"
    """Its minimum does not fit beside what jobs that run, or come first, cannot do without."""
    AFTER_OTHERS = "after-others"
    """A job of higher priority waits for room, so it is not admitted."""
    CAP_TOO_LOW = "cap-too-low"
    ARRIVING = "arriving"
    """It is admitted, and other jobs are giving back what it needs."""
    OVER_CAP = "over-cap"
    """It gives back what it has beyond its cap."""
    GIVES = "gives"
    """It gives slots back: another job is below its lower bound."""
    EVENS_OUT = "evens-out"
    """It gives slots back: another job has had too small a share for long enough."""
    HOLDS = "holds"
    """It has more than its share, which may be taken from it later."""
    KEEPS = "keeps"
    """It has more than its share and could give more only by a restart, which is not done to even out shares."""
    GROWING = "growing"
    """Others have what belongs to its share."""
    FULL = "full"
    """It may have all that it asks for."""
    CAPPED = "capped"
    """It may have as much as its cap allows."""
    SHARE = "share"
    """It may have its share, which is less than it asks for."""


@value
class Allotment:
    """The slots that a job may hold now, and those that it will hold.

    ``allowed`` is less than it holds if it has to give slots back, and more if free slots are to be given to it.
    ``missing`` is what keeps a job with `Why.NO_ROOM` from running. ``due_ms``: when more may be taken from it, because
    somebody wants it; None if not by time alone. ``coming``: how many more it gets of what others are giving back.
    ``rank``: of a job that is not admitted, its place among the ``waiting`` ones; 0 if it is.
    """

    allowed: int
    share: int
    why: Why
    missing: int = 0
    due_ms: int | None = None
    coming: int = 0
    rank: int = 0
    waiting: int = 0


def arbitrate(claims: Sequence[Claim], total: int, *, now_ms: int, holding_ms: int) -> dict[str, Allotment]:
    """The allotment of every job, for ``claims`` in the order in which the jobs came.

    The jobs together hold at most ``total`` slots, and are allowed at most as many: a free slot is given once.

    Args:
        total: the slots that there are.
        holding_ms: for how long a job keeps what it got before shares are evened out.
    """
    bases, waiting = _bases(claims, total)
    # A job that cannot run as it is asked to has no use for more than its base.
    able = [claim for claim in claims if claim.minimal <= bases[claim.job_id]]
    free = total - sum(bases.values())
    shares = _dealt(able, bases, lambda claim: claim.limit, free)
    starving = [claim for claim in claims if claim.held < bases[claim.job_id]]
    growing = [claim for claim in claims if bases[claim.job_id] <= claim.held < shares[claim.job_id]]

    # First what is of no use where it is, then what jobs below their lower bounds need, then what evens out shares.
    # Of no use are slots with which a job cannot run and is not to run, and those beyond its cap.
    allowed = {
        claim.job_id: 0 if bases[claim.job_id] == 0 else claim.held - claim.surplus for claim in claims
    }
    needed = sum(bases[claim.job_id] - claim.held for claim in starving)
    kept = _kept_in_place(claims, shares)
    short = needed - _left(total, allowed)
    short -= _take(short, claims, kept, allowed)
    _take(short, claims, shares, allowed)
    gives = {claim.job_id for claim in claims if allowed[claim.job_id] < claim.held}
    wanted = sum(shares[claim.job_id] - claim.held for claim in [*starving, *growing])
    patient = [claim for claim in claims if now_ms - claim.changed_ms >= holding_ms]
    _take(wanted - _left(total, allowed), patient, kept, allowed)
    is_short = wanted > _left(total, allowed)

    # What is taken is not there yet: only what is free now can be given.
    now_free, takers = total - sum(claim.held for claim in claims), [*starving, *growing]
    back = _left(total, allowed)
    later = _given(takers, bases, shares, allowed, back) if back > now_free else None
    allowed = _given(takers, bases, shares, allowed, now_free)
    allotments = {}
    for claim in claims:
        may, share = allowed[claim.job_id], shares[claim.job_id]
        why, missing, rank = waiting.get(claim.job_id) or (
            _why(claim, may, share, kept[claim.job_id], evens=claim.job_id not in gives),
            0,
            0,
        )
        # From whom slots may be taken already, they have been: others follow when their time has come.
        due_ms = claim.changed_ms + holding_ms if is_short and may > kept[claim.job_id] else None
        coming = 0 if later is None else max(0, later[claim.job_id] - may)
        queue = len(waiting) if rank else 0
        allotments[claim.job_id] = Allotment(may, share, why, missing, due_ms, coming, rank, queue)
    return allotments


def _bases(claims: Sequence[Claim], total: int) -> tuple[dict[str, int], dict[str, tuple[Why, int, int]]]:
    """What each job has for sure, by rule 1; and why a job is not admitted, with the slots that it is short of and its
    rank among those that are not."""
    bases = {claim.job_id: claim.floor for claim in claims}
    left = total - sum(bases.values())
    waiting: dict[str, tuple[Why, int, int]] = {}
    blocked_below: int | None = None
    candidates = [claim for claim in claims if bases[claim.job_id] < claim.minimal <= claim.most]
    # A stable sort: jobs of one priority stay in the order in which they came.
    for claim in sorted(candidates, key=lambda one: -one.priority):
        more = claim.minimal - bases[claim.job_id]
        if blocked_below is not None and claim.priority < blocked_below:
            waiting[claim.job_id] = (Why.AFTER_OTHERS, 0, len(waiting) + 1)
        elif more <= left:
            bases[claim.job_id] = claim.minimal
            left -= more
        else:
            waiting[claim.job_id] = (Why.NO_ROOM, more - left, len(waiting) + 1)
            if claim.minimal <= total and blocked_below is None:
                blocked_below = claim.priority
    return bases, waiting


def _left(total: int, allowed: Mapping[str, int]) -> int:
    """The slots that are free, or will be when everybody has given back what is to be given back."""
    return total - sum(allowed.values())


def _dealt(
    claims: Sequence[Claim], counts: Mapping[str, int], most: Callable[[Claim], int], left: int
) -> dict[str, int]:
    """``counts`` with ``left`` more slots dealt to ``claims`` by rule 2, to each up to its ``most``."""
    dealt = dict(counts)
    if left <= 0:
        # Nearly always, while nothing changes: a heap of all jobs would be made for nothing.
        return dealt
    heap = [
        _turn(claim, order, dealt[claim.job_id])
        for order, claim in enumerate(claims)
        if dealt[claim.job_id] < most(claim)
    ]
    heapq.heapify(heap)
    while left > 0 and heap:
        order = heap[0][-1]
        claim = claims[order]
        count = dealt[claim.job_id] = dealt[claim.job_id] + 1
        left -= 1
        if count < most(claim):
            heapq.heapreplace(heap, _turn(claim, order, count))
        else:
            heapq.heappop(heap)
    return dealt


def _turn(claim: Claim, order: int, count: int) -> tuple[float, bool, int, int]:
    """When it is the turn of a job that has ``count`` slots to get another one: lowest first.

    A tie goes to the one that holds the slot already, then to the higher priority, then to the earlier one.
    """
    return (count + 1) / claim.weight, count >= claim.held, -claim.priority, order


def _kept_in_place(claims: Sequence[Claim], shares: Mapping[str, int]) -> dict[str, int]:
    """The slots that each job keeps if no job restarts: its share, or more."""
    return {
        claim.job_id: max(shares[claim.job_id], min(claim.in_place_floor, claim.held) if claim.running else 0)
        for claim in claims
    }


def _take(wanted: int, claims: Sequence[Claim], kept: Mapping[str, int], allowed: dict[str, int]) -> int:
    """Take at most ``wanted`` slots from jobs that have more than is ``kept``, and never so many that one has less:
    first from who has most for its weight. How many were taken."""
    if wanted <= 0:
        # Nearly always, while no job waits: a heap of all jobs would be made for nothing.
        return 0
    heap = [
        (-allowed[claim.job_id] / claim.weight, claim.priority, -order)
        for order, claim in enumerate(claims)
        if allowed[claim.job_id] > kept[claim.job_id]
    ]
    heapq.heapify(heap)
    taken = 0
    while taken < wanted and heap:
        order = -heap[0][-1]
        claim = claims[order]
        count = allowed[claim.job_id] = allowed[claim.job_id] - 1
        taken += 1
        if count > kept[claim.job_id]:
            heapq.heapreplace(heap, (-count / claim.weight, claim.priority, -order))
        else:
            heapq.heappop(heap)
    return taken


def _given(
    claims: Sequence[Claim],
    bases: Mapping[str, int],
    shares: Mapping[str, int],
    allowed: dict[str, int],
    free: int,
) -> dict[str, int]:
    """``allowed`` with ``free`` slots given to ``claims``. A job that cannot run gets its whole minimum or nothing;
    what it still waits for is kept, so that nobody else's growth keeps it waiting."""
    given = dict(allowed)
    kept = 0
    for claim in sorted(claims, key=lambda one: -one.priority):
        need = bases[claim.job_id] - claim.held
        if need <= 0:
            continue
        if need <= free - kept:
            given[claim.job_id] = bases[claim.job_id]
            free -= need
        else:
            kept += need
    able = [claim for claim in claims if given[claim.job_id] >= bases[claim.job_id]]
    return _dealt(able, given, lambda claim: shares[claim.job_id], free - kept)


def _why(claim: Claim, allowed: int, share: int, kept: int, *, evens: bool) -> Why:
    """Of a job that is admitted, or cannot be because of its cap. ``evens``: what it gives is for fairness alone."""
    reasons = (
        (claim.desired == 0, Why.NOTHING_ASKED),
        (claim.limit < claim.minimal, Why.CAP_TOO_LOW),
        (allowed < min(claim.minimal, share), Why.ARRIVING),
        (allowed < claim.held and claim.surplus > 0, Why.OVER_CAP),
        (allowed < claim.held, Why.EVENS_OUT if evens else Why.GIVES),
        (allowed > share and allowed <= kept, Why.KEEPS),
        (allowed > share, Why.HOLDS),
        (allowed < share, Why.GROWING),
        (share == claim.desired, Why.FULL),
        (share == claim.limit, Why.CAPPED),
    )
    return next((why for applies, why in reasons if applies), Why.SHARE)
