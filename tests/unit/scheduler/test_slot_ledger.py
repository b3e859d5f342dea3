"""What owner and arbiter say of a job's slots, record by record: what is given back is not given again by accident."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.scheduler.slot_ledger import Ask, Entry, Holding, SlotClaim, SlotGrant, may_hold, next_grant
from tests.unit.scheduler.driving import slots

NOW_MS = 5_000


def ids(count: int, first: int = 0) -> frozenset[str]:
    return frozenset(slot.id for slot in slots(count, first=first))


def entry(seen: int) -> Entry:
    """The job is granted three slots by version 2, and its newest claim, the seventh, is based on version ``seen``."""
    grant = SlotGrant("job", version=2, based_on=4, slots=slots(3), changed_ms=1_000)
    return Entry(SlotClaim("job", seq=7, seen=seen, holds=ids(3), ask=Ask()), grant)


@pytest.mark.parametrize(("seen", "based_on"), [(2, 7), (1, 4)])
def test_a_grant_is_based_on_the_newest_claim_only_if_the_owner_had_seen_the_grant_before(
    seen: int, based_on: int
) -> None:
    """Else what is given back by that claim has not been taken off the grant, and would be given anew."""
    grant = next_grant(entry(seen), slots(2), None, now_ms=NOW_MS)
    assert grant is not None and grant.based_on == based_on


def test_a_slot_that_is_given_back_while_a_grant_is_on_its_way_is_not_given_again_by_the_next() -> None:
    arbiter = entry(seen=1)
    job = Holding(SlotGrant("job", version=1, based_on=4, slots=slots(3)), seq=6)
    assert job.give_back(["tm-2"])
    arbiter = replace(arbiter, claim=job.claim(Ask()))
    assert may_hold(arbiter) == ids(3), "the grant that is on its way may bring it"
    grant = next_grant(arbiter, slots(4), None, now_ms=NOW_MS)
    assert grant is not None
    assert job.learn(grant)
    assert {slot.id for slot in job.slots} == {"tm-0", "tm-1", "tm-3"}


def test_the_holding_time_begins_when_slots_move_and_not_when_other_words_are_said() -> None:
    moved = next_grant(entry(seen=2), slots(2), None, now_ms=NOW_MS)
    told = next_grant(entry(seen=2), slots(3), 2, now_ms=NOW_MS)
    assert moved is not None and told is not None
    assert (moved.changed_ms, told.changed_ms) == (NOW_MS, 1_000)


def test_an_older_grant_says_nothing_any_more() -> None:
    job = Holding(SlotGrant("job", version=3, slots=slots(1)))
    assert not job.learn(SlotGrant("job", version=2, slots=slots(3)))
    assert job.slots == slots(1)


def test_a_new_owner_does_not_take_up_again_what_the_one_before_has_given_back() -> None:
    given_back = replace(entry(seen=2), claim=replace(entry(seen=2).claim, holds=ids(2)))
    job = Holding.take_up("job", given_back, ids(2))
    assert (job.slots, job.holds()) == (slots(2), ids(2))
    assert job.claim(Ask()).seq == 8
