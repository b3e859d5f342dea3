"""The slots of the embedded host and which job holds which.

A job declares how many slots it wants and how many it cannot do without (FLIP-291). Jobs are served in the order in
which they declared first. A job that holds less than its minimum gets slots only when its whole minimum can be met:
so two jobs never each hold half of what the other needs. Nothing is ever taken away from a job here; fair shares are
the arbiter's business.

The pool is a plain value machine without I/O; the shell tells the jobs whose grants changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from app.model.plan import Slot


@dataclass(slots=True)
class _Claim:
    desired: int
    minimal: int
    held: dict[str, Slot] = field(default_factory=dict)


class SlotPool:
    """Slots by TaskManager and the claims of jobs on them."""

    def __init__(self, task_managers: Mapping[str, int]) -> None:
        self._claims: dict[str, _Claim] = {}
        self._free: dict[str, Slot] = {}
        self._slots: dict[str, Slot] = {}
        self.resize(task_managers)

    @property
    def total(self) -> int:
        return len(self._slots)

    @property
    def free(self) -> int:
        return len(self._free)

    def free_on(self, task_manager: str) -> int:
        return sum(1 for slot in self._free.values() if slot.task_manager_id == task_manager)

    def held_by(self, job_id: str) -> tuple[Slot, ...]:
        """The slots that ``job_id`` holds, in the order in which it got them."""
        claim = self._claims.get(job_id)
        return tuple(claim.held.values()) if claim else ()

    def resize(self, task_managers: Mapping[str, int]) -> set[str]:
        """The slots that exist from now on, by TaskManager; the ids of the jobs whose grants changed.

        Slots that exist no more are lost to the jobs that held them; a TaskManager that shrinks loses its last ones.
        """
        slots = {
            slot.id: slot
            for task_manager, count in task_managers.items()
            for slot in (Slot(f"{task_manager}-{index}", task_manager) for index in range(count))
        }
        changed: set[str] = set()
        for job_id, claim in self._claims.items():
            for slot_id in [slot_id for slot_id in claim.held if slot_id not in slots]:
                del claim.held[slot_id]
                changed.add(job_id)
        self._free = {slot_id: slot for slot_id, slot in self._free.items() if slot_id in slots}
        self._free.update({slot_id: slot for slot_id, slot in slots.items() if slot_id not in self._slots})
        self._slots = slots
        return changed | self.serve()

    def restore(self, job_id: str, slots: Iterable[Slot], desired: int, minimal: int) -> bool:
        """Take up a job with the slots it held before a restart; False if some of them exist no more."""
        claim = self._claims.setdefault(job_id, _Claim(desired, minimal))
        claim.desired, claim.minimal = desired, minimal
        complete = True
        for slot in slots:
            if slot.id in self._free:
                claim.held[slot.id] = self._free.pop(slot.id)
            elif slot.id not in claim.held:
                complete = False
        return complete

    def declare(self, job_id: str, desired: int, minimal: int) -> set[str]:
        """Record what ``job_id`` wants; the ids of the jobs whose grants changed."""
        claim = self._claims.setdefault(job_id, _Claim(desired, minimal))
        claim.desired, claim.minimal = desired, minimal
        # No slot became free, so nobody else can get more than before: with thousands of jobs that matters.
        return self._grant({job_id: claim})

    def release(self, job_id: str, slot_ids: Iterable[str]) -> set[str]:
        """Take slots back from ``job_id`` (those it does hold); the ids of the jobs whose grants changed."""
        claim = self._claims.get(job_id)
        if claim is None:
            return set()
        for slot_id in slot_ids:
            slot = claim.held.pop(slot_id, None)
            if slot is not None:
                self._free[slot_id] = slot
        return self.serve()

    def forget(self, job_id: str) -> set[str]:
        """``job_id`` is over: everything it held is free; the ids of the jobs whose grants changed."""
        claim = self._claims.pop(job_id, None)
        if claim is not None:
            self._free.update(claim.held)
        return self.serve()

    def serve(self) -> set[str]:
        """Grant free slots to the jobs that want them; the ids of the jobs whose grants changed."""
        return self._grant(self._claims)

    def _grant(self, claims: Mapping[str, _Claim]) -> set[str]:
        changed: set[str] = set()
        if not self._free:
            return changed
        for only_minimum in (True, False):
            for job_id, claim in claims.items():
                wanted = (claim.minimal if only_minimum else claim.desired) - len(claim.held)
                starving = len(claim.held) < claim.minimal
                if wanted <= 0 or not self._free:
                    continue
                if starving and len(self._free) < claim.minimal - len(claim.held):
                    continue
                for _ in range(min(wanted, len(self._free))):
                    slot_id = next(iter(self._free))
                    claim.held[slot_id] = self._free.pop(slot_id)
                changed.add(job_id)
        return changed
