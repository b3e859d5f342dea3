"""The world of `tests.unit.cluster.ledger_world` can fail: each defect of the ledger is found in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from app.cluster import shared_slots
from app.model.plan import Slot
from app.scheduler import slot_ledger
from app.scheduler.slot_ledger import Entry, Holding, SlotGrant
from tests.unit.cluster import ledger_world
from tests.unit.cluster.ledger_world import World, complaint

SEEDS = 300
Plant = Callable[[pytest.MonkeyPatch], None]


def withdrawn_not_claimed(patch: pytest.MonkeyPatch) -> None:
    """A job does not say that it may be using still what was withdrawn from it."""
    patch.setattr(Holding, "holds", lambda self: frozenset({slot.id for slot in self.slots}))


def withdrawn_forgotten(patch: pytest.MonkeyPatch) -> None:
    """The arbiter does not remember what was withdrawn by a grant that the job has not seen."""
    original = slot_ledger.next_grant

    def next_grant(*args: Any, **fields: Any) -> SlotGrant | None:
        grant = original(*args, **fields)
        return None if grant is None else replace(grant, withdrawn=frozenset())

    patch.setattr(shared_slots, "next_grant", next_grant)


def unseen_grant_ignored(patch: pytest.MonkeyPatch) -> None:
    """A slot is free as soon as the job's last claim is without it, whatever was granted since."""
    patch.setattr(slot_ledger, "may_hold", lambda entry: entry.claim.holds)
    patch.setattr(shared_slots, "may_hold", lambda entry: entry.claim.holds)


def free_until_claimed(patch: pytest.MonkeyPatch) -> None:
    """A slot that was granted is given to the next one who asks until its job has claimed it."""

    def claimed(entry: Entry) -> tuple[Slot, ...]:
        slots = entry.grant.slots if entry.grant is not None else ()
        return tuple(slot for slot in slots if slot.id in entry.claim.holds)

    unseen_grant_ignored(patch)
    for module in (slot_ledger, shared_slots):
        patch.setattr(module, "usable", claimed)


def new_owner_takes_all_of_the_grant(patch: pytest.MonkeyPatch) -> None:
    """Who takes a job over has it use what the owner before has given back."""

    def take_up(job_id: str, entry: Entry | None, held: Any) -> Holding:
        grant = (entry and entry.grant) or SlotGrant(job_id)
        return Holding(
            grant, 0 if entry is None else entry.claim.seq, {}, set(held) - {s.id for s in grant.slots}
        )

    patch.setattr(Holding, "take_up", take_up)


def settled_too_early(patch: pytest.MonkeyPatch) -> None:
    """A job is taken to be without what was withdrawn when it has been told, and not when that is durable."""
    original = World.tell

    def tell(self: World, owner: Any) -> None:
        original(self, owner)
        owner.holding.is_without(owner.holding.fading)

    patch.setattr(World, "tell", tell)


def arbiters_not_fenced(patch: pytest.MonkeyPatch) -> None:
    """One that was overtaken goes on deciding."""
    patch.setattr(World, "is_arbiter", lambda _self, _arbiter: True)


PLANTED: dict[str, tuple[Plant, bool]] = {
    "a withdrawn slot is not claimed": (withdrawn_not_claimed, False),
    "what was withdrawn is forgotten": (withdrawn_forgotten, False),
    "a grant that was not seen does not count": (unseen_grant_ignored, False),
    "a slot is free until it is claimed": (free_until_claimed, False),
    "a slot is free until it is claimed, embedded": (free_until_claimed, True),
    "a new owner takes what was given back": (new_owner_takes_all_of_the_grant, True),
    "a job settles before it is durable": (settled_too_early, False),
    "arbiters are not fenced": (arbiters_not_fenced, False),
    "arbiters are not fenced, embedded": (arbiters_not_fenced, True),
}


@pytest.mark.parametrize("defect", PLANTED)
def test_a_planted_defect_of_the_ledger_is_found(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, outlasts = PLANTED[defect]
    with monkeypatch.context() as patch:
        plant(patch)
        found = next((seed for seed in range(SEEDS) if complaint(seed, outlasts=outlasts)), None)
    assert found is not None, f"{SEEDS} worlds of {ledger_world.STEPS} steps did not find that {defect}"
    assert complaint(found, outlasts=outlasts) is None, "it is the defect that was found"
