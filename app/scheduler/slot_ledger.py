"""Whose a slot is, where several control planes share one pool: the rule, and what each side does by it.

Of each job there are two records. The **claim** is written by the job's owner: what the job wants, which slots it
holds, and which grant it has seen. The **grant** is written by the arbiter: which slots the job may hold. Each has one
writer at a time, fenced by an epoch, and each is durable before it takes effect.

**A slot is free if and only if no job may hold it** (`may_hold`):

* A claim that has seen the grant says what the job holds. So what it gives back is free at once.
* Else the owner may have acted on the grant, or not yet: it holds at most what is in either of them, and what was
  withdrawn since the grant that it has seen.

Between two claims an owner comes to hold only what is granted. So whatever was read of the claims says too much rather
than too little, and an arbiter may decide from what is some time old, as long as nobody else has decided since.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from app.model.plan import Slot
from app.model.slot_share import SlotShare
from app.scheduler.adaptive.slot_declaration import Releasable
from app.scheduler.arbiter import Allotment


@dataclass(frozen=True, slots=True)
class Ask:
    """What a job wants, as `app.scheduler.arbiter.Claim` has it. ``giving``, the releasable slots, is a stored name."""

    desired: int = 0
    minimal: int = 0
    giving: Releasable = field(default_factory=Releasable)
    share: SlotShare = field(default_factory=SlotShare)


@dataclass(frozen=True, slots=True)
class SlotClaim:
    """What the owner of a job says. ``seq`` counts its claims; ``seen`` is the version of the grant that this one is
    based on, 0 for none; ``holds`` has the ids of all slots that the job may be using.

    ``changed_ms``: when it last got slots or gave some back, by the database's clock.
    """

    job_id: str
    seq: int
    seen: int
    holds: frozenset[str]
    ask: Ask
    changed_ms: int = 0


@dataclass(frozen=True, slots=True)
class SlotGrant:
    """What the arbiter says. ``slots``: those that the job may hold, in the order in which it got them, ``allowed`` of
    which it may go on to use (None for all).

    ``based_on``: the claim up to which it was heard what the job gives back. A slot that the job has given back later
    is not given to it again by this grant. ``withdrawn``: slots that it may hold still, though it should not.
    ``verdict`` (a stored name: the allotment), ``reason`` and ``total``, the slots that there are, are for people: they
    may change within a version.
    """

    job_id: str
    version: int = 0
    based_on: int = 0
    slots: tuple[Slot, ...] = ()
    withdrawn: frozenset[str] = frozenset()
    allowed: int | None = None
    changed_ms: int = 0
    verdict: Allotment | None = None
    reason: str | None = None
    total: int = 0


@dataclass(frozen=True, slots=True)
class Entry:
    """The two records of a job."""

    claim: SlotClaim
    grant: SlotGrant | None = None

    @property
    def is_seen(self) -> bool:
        """Whether the owner has said what it holds under the grant in force."""
        return self.claim.seen == (0 if self.grant is None else self.grant.version)


def may_hold(entry: Entry) -> frozenset[str]:
    """The ids of the slots that are not free because of this job."""
    claim, grant = entry.claim, entry.grant
    if grant is None or entry.is_seen:
        return claim.holds
    return claim.holds | grant.withdrawn | {slot.id for slot in grant.slots}


def usable(entry: Entry) -> tuple[Slot, ...]:
    """The slots that the job is to have: what is granted, without what it has given back."""
    grant = entry.grant
    if grant is None:
        return ()
    if entry.is_seen:
        return tuple(slot for slot in grant.slots if slot.id in entry.claim.holds)
    return grant.slots


def next_grant(
    entry: Entry,
    slots: tuple[Slot, ...],
    allowed: int | None,
    *,
    now_ms: int,
    verdict: Allotment | None = None,
    reason: str | None = None,
    total: int = 0,
) -> SlotGrant | None:
    """The grant that gives the job ``slots``; None if the one in force says all of that. The first one may give
    nothing: it tells why."""
    before = entry.grant or SlotGrant(entry.claim.job_id)
    told = {"verdict": verdict, "reason": reason, "total": total}
    if entry.grant is not None and slots == usable(entry) and allowed == before.allowed:
        after = replace(before, **told)  # type: ignore[arg-type]
        return None if after == before else after
    return SlotGrant(
        entry.claim.job_id,
        version=before.version + 1,
        based_on=entry.claim.seq if entry.is_seen else before.based_on,
        slots=slots,
        withdrawn=may_hold(entry) - {slot.id for slot in slots},
        allowed=allowed,
        changed_ms=now_ms if slots != usable(entry) else before.changed_ms,
        **told,  # type: ignore[arg-type]
    )


@dataclass(slots=True)
class Holding:
    """What the owner of a job knows of its slots.

    ``given_back``: slots of the grant that the job has given back, each with the claim in which that is said first.
    ``fading``: slots that were withdrawn, and that the job has not been seen to be without yet.
    """

    grant: SlotGrant
    seq: int = 0
    given_back: dict[str, int] = field(default_factory=dict)
    fading: set[str] = field(default_factory=set)

    @classmethod
    def take_up(cls, job_id: str, entry: Entry | None, held: Iterable[str]) -> Holding:
        """The claim of a job whose state has the slots ``held``, for a new owner; no other owner writes it any more."""
        if entry is None:
            return cls(SlotGrant(job_id), fading=set(held))
        grant = entry.grant or SlotGrant(job_id)
        own = {slot.id for slot in usable(entry)}
        back = {slot.id: entry.claim.seq for slot in grant.slots if slot.id not in own}
        return cls(grant, entry.claim.seq, back, set(held) - own)

    @property
    def slots(self) -> tuple[Slot, ...]:
        """Those that the job may use."""
        return tuple([slot for slot in self.grant.slots if slot.id not in self.given_back])

    @property
    def allowed(self) -> int | None:
        return self.grant.allowed

    def learn(self, grant: SlotGrant) -> bool:
        """Take note of a grant; whether the job is to be told. An older one says nothing any more."""
        before, allowed = self.slots, self.grant.allowed
        if grant.version < self.grant.version:
            return False
        if grant.version == self.grant.version:
            # Within a version only the words change.
            self.grant = replace(self.grant, verdict=grant.verdict, reason=grant.reason, total=grant.total)
            return False
        granted = {slot.id for slot in grant.slots}
        self.grant = grant
        self.given_back = {
            slot_id: seq
            for slot_id, seq in self.given_back.items()
            if seq > grant.based_on and slot_id in granted
        }
        self.fading |= {slot.id for slot in before} - granted
        return (self.slots, self.grant.allowed) != (before, allowed)

    def give_back(self, slot_ids: Iterable[str]) -> bool:
        """The job's durable state is without these slots; whether it had them."""
        own = {slot.id for slot in self.slots}
        back = [slot_id for slot_id in slot_ids if slot_id in own]
        self.given_back.update(dict.fromkeys(back, self.seq + 1))
        return bool(back)

    def is_without(self, slot_ids: Iterable[str]) -> None:
        """The job's durable state is without these slots, which were withdrawn, and what it was told before the
        withdrawal can bring them back no more."""
        self.fading -= set(slot_ids)

    def holds(self) -> frozenset[str]:
        return frozenset({slot.id for slot in self.slots} | self.fading)

    def claim(self, ask: Ask) -> SlotClaim:
        """The next claim. Written or not, its number is used up."""
        self.seq += 1
        return SlotClaim(self.grant.job_id, self.seq, self.grant.version, self.holds(), ask)
