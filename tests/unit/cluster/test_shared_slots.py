"""One pool of slots for several control planes: no slot is two jobs', in whatever order things are read and written."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.cluster.ports import Offer
from app.cluster.shared_slots import decide, pool_of_all
from app.model.plan import Slot
from app.scheduler.adaptive.slot_declaration import Releasable
from app.scheduler.arbiter import Why
from app.scheduler.slot_ledger import Ask, Entry, Holding, SlotClaim, SlotGrant, may_hold, usable
from tests.unit.cluster.ledger_world import complaint

A, B, C = (Slot(f"host-{number}", "host") for number in range(3))
WANTS = Ask(desired=3, minimal=1)


def grant(
    version: int, *slots: Slot, based_on: int = 0, withdrawn: frozenset[str] = frozenset()
) -> SlotGrant:
    return SlotGrant("a", version, based_on, slots, withdrawn)


def claim(seq: int, seen: int, *slots: Slot) -> SlotClaim:
    return SlotClaim("a", seq, seen, frozenset(slot.id for slot in slots), WANTS)


def test_what_is_given_back_under_the_grant_in_force_is_free() -> None:
    entry = Entry(claim(4, 2, A), grant(2, A, B))
    assert may_hold(entry) == {A.id}
    assert usable(entry) == (A,)


def test_of_a_grant_that_was_not_seen_everything_counts() -> None:
    entry = Entry(claim(4, 1, A, B), grant(3, B, withdrawn=frozenset({C.id})))
    assert may_hold(entry) == {A.id, B.id, C.id}
    assert usable(entry) == (B,)


def test_what_was_given_back_is_not_taken_from_a_grant_that_does_not_know_it() -> None:
    holding = Holding.take_up("a", Entry(claim(1, 1, A, B), grant(1, A, B)), [A.id, B.id])
    holding.claim(WANTS)
    assert holding.give_back([B.id])
    assert holding.learn(grant(2, A, B, C, based_on=2))
    assert holding.slots == (A, C)
    assert holding.claim(WANTS).holds == {A.id, C.id}
    assert holding.learn(grant(3, A, B, C, based_on=3)), (
        "the arbiter heard of it, and gives the slot once more"
    )
    assert holding.slots == (A, B, C)


def test_what_is_withdrawn_is_claimed_until_the_job_is_without_it() -> None:
    holding = Holding.take_up("a", Entry(claim(1, 1, A, B), grant(1, A, B)), [A.id, B.id])
    assert holding.learn(grant(2, A, withdrawn=frozenset({B.id})))
    assert holding.slots == (A,)
    assert holding.claim(WANTS).holds == {A.id, B.id}
    holding.is_without([B.id])
    assert holding.claim(WANTS).holds == {A.id}


def test_an_older_grant_says_nothing() -> None:
    holding = Holding.take_up("a", Entry(claim(1, 2, A), grant(2, A)), [A.id])
    assert not holding.learn(grant(1, A, B))
    assert holding.slots == (A,)


def test_within_a_version_only_the_words_change() -> None:
    holding = Holding.take_up("a", Entry(claim(1, 2, A), grant(2, A)), [A.id])
    assert not holding.learn(replace(grant(2, A, B), reason="so it is", total=7))
    assert holding.slots == (A,) and (holding.grant.reason, holding.grant.total) == ("so it is", 7)


def test_a_new_owner_does_not_take_what_was_given_back_before_it() -> None:
    holding = Holding.take_up("a", Entry(claim(3, 1, A), grant(1, A, B)), [A.id])
    assert holding.slots == (A,)
    assert not holding.learn(grant(1, A, B))
    assert holding.slots == (A,)


def test_a_slot_that_is_not_offered_any_more_is_lost_or_its_jobs_until_it_is_given_back() -> None:
    entry = Entry(claim(1, 1, A, B), grant(1, A, B))
    offer = Offer((("host", 1),))
    (lost,) = decide([entry], offer, now_ms=0, holding_ms=0).grants
    assert (lost.slots, lost.withdrawn, lost.version) == ((A,), {B.id}, 2)
    assert pool_of_all([entry], replace(offer, outlasts=True), holding_ms=0).total == 2
    again = Entry(entry.claim, lost)
    back = Offer((("host", 3),))
    pool = pool_of_all([again], back, holding_ms=0)
    assert (pool.total, pool.free) == (2, 1), "its job may be using it still"


def test_a_job_that_gets_nothing_is_told_why() -> None:
    waits = SlotClaim("b", 1, 0, frozenset(), Ask(desired=2, minimal=2))
    runs = Entry(replace(claim(1, 1, A), ask=Ask(1, 1, Releasable(running=True))), grant(1, A))
    told = {one.job_id: one for one in decide_on([runs, Entry(waits)], Offer((("host", 1),)))}
    assert (told["b"].version, told["b"].slots) == (1, ())
    assert told["b"].verdict is not None and told["b"].verdict.why is Why.NO_ROOM
    seen = Entry(replace(waits, seq=2, seen=1), told["b"])
    assert decide_on([Entry(runs.claim, told["a"]), seen], Offer((("host", 1),))) == []


def decide_on(entries: list[Entry], offer: Offer) -> list[SlotGrant]:
    return list(decide(entries, offer, now_ms=0, holding_ms=0).grants)


def test_while_nothing_can_be_seen_nothing_is_granted_and_nothing_taken() -> None:
    runs = Entry(replace(claim(1, 1, A), ask=replace(WANTS, giving=Releasable(running=True))), grant(1, A))
    # Its owner has just started it, and the claim does not say so yet.
    starts = Entry(SlotClaim("b", 1, 1, frozenset({B.id}), WANTS), SlotGrant("b", 1, 0, (B,)))
    waits = Entry(SlotClaim("c", 1, 0, frozenset(), WANTS))
    for offer in (Offer((("host", 3),), unreachable=True), Offer((), unreachable=True)):
        found = decide([runs, starts, waits], offer, now_ms=0, holding_ms=0)
        assert (found.grants, found.next_review_ms) == ((), None)


# -- interleavings


@pytest.mark.parametrize("outlasts", [False, True], ids=["cluster", "embedded"])
@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_no_slot_is_two_jobs_and_none_is_idle_in_the_end(outlasts: bool, seed: int) -> None:
    assert complaint(seed, outlasts=outlasts) is None
