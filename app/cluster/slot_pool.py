"""The pool of slots: which job holds which slot (`app.scheduler.arbiter` has the rules).

A job declares how many slots it wants and how many it cannot do without (FLIP-291). What changes here is recorded only;
`review` then gives what is free, and says of which jobs something is other than before. A slot that a job is to give
back stays its own until it does so.

The pool is a plain value machine without I/O or clock; the shell tells the jobs.

Where several control planes share it, it is put together anew for each review (`app.cluster.shared_slots`). Then jobs
may bring slots along that are offered no more: guests, which go when the job gives them back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from app.cluster.ports import Offer
from app.model.plan import Slot
from app.model.slot_share import SlotShare
from app.scheduler.adaptive.slot_declaration import Releasable
from app.scheduler.arbiter import Allotment, Claim, arbitrate
from app.scheduler.arbiter_sentences import reason_of

HOLDING_MS = 60_000
"""For how long a job keeps what it got before shares are evened out."""


def next_review_ms(allotments: Iterable[Allotment]) -> int | None:
    """When time alone changes an allotment; None if it does not."""
    return min((one.due_ms for one in allotments if one.due_ms is not None), default=None)


@dataclass(slots=True)
class _Holder:
    desired: int = 0
    minimal: int = 0
    releasable: Releasable = field(default_factory=Releasable)
    share: SlotShare = field(default_factory=SlotShare)
    changed_ms: int = 0
    allowed: int | None = None
    cluster_unreachable: bool = False
    held: dict[str, Slot] = field(default_factory=dict)


class SlotPool:
    """Slots by TaskManager and the claims of jobs on them."""

    def __init__(self, task_managers: Mapping[str, int], *, holding_ms: int = HOLDING_MS) -> None:
        self.next_review_ms: int | None = None
        # Why there are no more slots, as the cluster says.
        self.why: tuple[str, ...] = ()
        self._holding_ms = holding_ms
        self._holders: dict[str, _Holder] = {}
        self._allotments: dict[str, Allotment] = {}
        # Jobs that got or lost slots since the last review, and those of them that do not know it.
        self._moved: set[str] = set()
        self._lost: set[str] = set()
        self._free: dict[str, Slot] = {}
        self._slots: dict[str, Slot] = {}
        self._withheld = 0
        self._unreachable = False
        self._guests: dict[str, Slot] = {}
        self.task_managers: dict[str, int] = {}
        # Of slots that exist no more: the job that held the slot, until its durable state is without it.
        self._not_given_up: dict[str, str] = {}
        self.resize(task_managers)

    @property
    def total(self) -> int:
        """The slots that there are for the jobs of this pool."""
        return len(self._slots) + len(self._guests) - min(self._withheld, len(self._free))

    @property
    def free(self) -> int:
        """What can be given out now: nothing while the cluster is unreachable."""
        return 0 if self._unreachable else self.idle

    @property
    def idle(self) -> int:
        """Slots that no job and no other application uses, as far as known: `free` while the cluster is reachable."""
        return max(0, len(self._free) - self._withheld)

    @property
    def cluster_unreachable(self) -> bool:
        """Whether the cluster cannot be asked what it has."""
        return self._unreachable

    @property
    def jobs(self) -> int:
        return len(self._holders)

    def knows(self, job_id: str) -> bool:
        return job_id in self._holders

    def free_on(self, task_manager: str) -> int:
        if self._unreachable:
            return 0
        return sum(1 for slot in self._free.values() if slot.task_manager_id == task_manager)

    def held_by(self, job_id: str) -> tuple[Slot, ...]:
        """The slots that ``job_id`` holds, in the order in which it got them."""
        holder = self._holders.get(job_id)
        return tuple(holder.held.values()) if holder else ()

    def allowed(self, job_id: str) -> int | None:
        """How many of its slots ``job_id`` may go on to use; None for all."""
        holder = self._holders.get(job_id)
        return holder.allowed if holder else None

    def allotment(self, job_id: str) -> Allotment | None:
        """What the last review said of ``job_id``."""
        return self._allotments.get(job_id)

    def reason(self, job_id: str) -> str | None:
        """Why ``job_id`` may use as many slots as it may, if other jobs or its cap have to do with it."""
        allotment, holder = self._allotments.get(job_id), self._holders.get(job_id)
        return None if allotment is None or holder is None else reason_of(allotment, holder.share, self.total)

    def attainable_slots(self, job_id: str, desired: int, minimal: int) -> int:
        """To how many slots ``job_id`` would come if it declared so: what it can run with, or the slots that it keeps
        anyway. While the cluster is unreachable nobody comes to any more."""
        if self._unreachable:
            return len(self.held_by(job_id))
        claims = [self._claim(one, holder) for one, holder in self._holders.items() if one != job_id]
        holder = self._holders.get(job_id, _Holder())
        asked = replace(self._claim(job_id, holder), desired=desired, minimal=minimal)
        allotments = arbitrate([*claims, asked], self.total, now_ms=0, holding_ms=self._holding_ms)
        return allotments[job_id].share

    def resize(self, task_managers: Mapping[str, int]) -> None:
        """The slots that exist from now on, by TaskManager.

        Slots that exist no more are lost to the jobs that held them; a TaskManager that shrinks loses its last ones. A
        slot that comes back is nobody's before the job that held it has given it up (`note_held`): until then, a
        restart would find it with that job.
        """
        self.task_managers = dict(task_managers)
        self._offered = {
            slot.id: slot
            for task_manager, count in task_managers.items()
            for slot in (Slot(f"{task_manager}-{index}", task_manager) for index in range(count))
        }
        slots = {
            slot_id: slot for slot_id, slot in self._offered.items() if slot_id not in self._not_given_up
        }
        for job_id, holder in self._holders.items():
            for slot_id in [id_ for id_ in holder.held if id_ not in slots and id_ not in self._guests]:
                del holder.held[slot_id]
                self._not_given_up[slot_id] = job_id
                self._moved.add(job_id)
                self._lost.add(job_id)
        self._free = {slot_id: slot for slot_id, slot in self._free.items() if slot_id in slots}
        self._free.update({slot_id: slot for slot_id, slot in slots.items() if slot_id not in self._slots})
        self._slots = slots

    def take_offer(self, offer: Offer) -> None:
        """What a cluster offers from now on.

        While it cannot be known, jobs keep their slots. They are told, and do not start in slots that may be gone.
        """
        self._unreachable, self._withheld, self.why = offer.unreachable, offer.withheld, offer.why
        if not offer.unreachable:
            self.resize(dict(offer.task_managers))

    def restore(
        self,
        job_id: str,
        slots: Iterable[Slot],
        desired: int,
        minimal: int,
        *,
        allowed: int | None = None,
        changed_ms: int = 0,
        guests: bool = False,
    ) -> bool:
        """Take up a job with the slots it held before a restart, of which it was told that it may go on to use
        ``allowed``, and which have been its own since ``changed_ms``; False if some of them exist no more. ``guests``:
        those come with it all the same."""
        self.declare(job_id, desired, minimal)
        holder = self._holders[job_id]
        holder.allowed, holder.changed_ms = allowed, changed_ms
        complete = True
        for slot in slots:
            if self._unreachable and slot.id not in self._slots:
                # It is there until the cluster says otherwise.
                self._slots[slot.id] = self._free[slot.id] = slot
            if slot.id in self._free:
                holder.held[slot.id] = self._free.pop(slot.id)
            elif guests and slot.id not in self._slots and slot.id not in self._guests:
                holder.held[slot.id] = self._guests[slot.id] = slot
            elif slot.id not in holder.held:
                complete = False
        return complete

    @property
    def free_ids(self) -> frozenset[str]:
        """The slots that no job holds."""
        return frozenset(self._free)

    def keep_off(self, slot_ids: Iterable[str]) -> None:
        """These slots are withheld: a job that is to give them back may still use them."""
        for slot_id in slot_ids:
            if self._free.pop(slot_id, None) is not None:
                del self._slots[slot_id]

    def declare(self, job_id: str, desired: int, minimal: int) -> None:
        """Record what ``job_id`` wants."""
        holder = self._holder(job_id)
        holder.desired, holder.minimal = desired, minimal

    def set_share(self, job_id: str, share: SlotShare) -> None:
        """Record the weight, priority and cap of ``job_id``."""
        self._holder(job_id).share = share

    def note_releasable(self, job_id: str, releasable: Releasable) -> bool:
        """Whether something of ``job_id`` runs in its slots, and which it can give back meanwhile; False if that was
        known."""
        holder = self._holder(job_id)
        known, holder.releasable = holder.releasable, releasable
        return known != releasable

    def note_held(self, job_id: str, slots: Iterable[Slot]) -> bool:
        """These are the slots of ``job_id`` by its durable state. Whether one that it has given up is there again."""
        held = {slot.id for slot in slots}
        given_up = [
            slot_id
            for slot_id, holder in self._not_given_up.items()
            if holder == job_id and slot_id not in held
        ]
        for slot_id in given_up:
            del self._not_given_up[slot_id]
        back = {slot_id: self._offered[slot_id] for slot_id in given_up if slot_id in self._offered}
        self._slots.update(back)
        self._free.update(back)
        return bool(back)

    def release(self, job_id: str, slot_ids: Iterable[str]) -> None:
        """Take slots back from ``job_id`` (those it does hold)."""
        holder = self._holders.get(job_id)
        for slot_id in slot_ids if holder is not None else ():
            assert holder is not None
            slot = holder.held.pop(slot_id, None)
            if slot is not None:
                self._give_back(slot)
                self._moved.add(job_id)

    def forget(self, job_id: str) -> None:
        """``job_id`` is over: everything it held is free."""
        holder = self._holders.pop(job_id, None)
        for slot in holder.held.values() if holder is not None else ():
            self._give_back(slot)
        self.note_held(job_id, ())

    def review(self, now_ms: int) -> set[str]:
        """Give free slots to the jobs that may have them; the ids of the jobs for which something has changed.

        `next_review_ms` then says when time alone is a reason for the next one.
        """
        for job_id in self._moved & self._holders.keys():
            self._holders[job_id].changed_ms = now_ms
        changed = self._lost & self._holders.keys()
        self._moved, self._lost = set(), set()
        for job_id, holder in self._holders.items():
            if holder.cluster_unreachable != self._unreachable:
                holder.cluster_unreachable = self._unreachable
                changed.add(job_id)
        if self._unreachable:
            self.next_review_ms = None
            return changed
        claims = [self._claim(job_id, holder) for job_id, holder in self._holders.items()]
        self._allotments = arbitrate(claims, self.total, now_ms=now_ms, holding_ms=self._holding_ms)
        for claim in claims:
            may, holder = self._allotments[claim.job_id].allowed, self._holders[claim.job_id]
            for _ in range(may - claim.held):
                slot_id = next(iter(self._free))
                holder.held[slot_id] = self._free.pop(slot_id)
            allowed = may if may < claim.held else None
            if may > claim.held:
                holder.changed_ms = now_ms
            if may > claim.held or allowed != holder.allowed:
                changed.add(claim.job_id)
            holder.allowed = allowed
        self.next_review_ms = next_review_ms(self._allotments.values())
        return changed

    def _holder(self, job_id: str) -> _Holder:
        # With `setdefault` each call would make a holder, also for a job that has one.
        holder = self._holders.get(job_id)
        if holder is None:
            holder = self._holders[job_id] = _Holder()
        return holder

    def _give_back(self, slot: Slot) -> None:
        if self._guests.pop(slot.id, None) is None:
            self._free[slot.id] = slot

    def _claim(self, job_id: str, holder: _Holder) -> Claim:
        return Claim(
            job_id,
            holder.minimal,
            holder.desired,
            held=len(holder.held),
            running=holder.releasable.running,
            can_give=holder.releasable.can_give,
            in_place_floor=holder.releasable.in_place_floor,
            weight=holder.share.weight,
            priority=holder.share.priority,
            cap=holder.share.cap,
            changed_ms=holder.changed_ms,
        )
