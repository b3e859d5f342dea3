"""Slots among jobs: the rules by example, and against a checker that knows nothing of how they are worked out."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import pytest

from app.cluster.slot_pool import next_review_ms
from app.scheduler.arbiter import WEIGHT_MAX, Allotment, Claim, Why, arbitrate

HOLDING_MS = 1000
CASES = 10_000


def allotments(*claims: Claim, total: int = 8, now_ms: int = 0) -> dict[str, Allotment]:
    return arbitrate(claims, total, now_ms=now_ms, holding_ms=HOLDING_MS)


def allowed(*claims: Claim, total: int = 8, now_ms: int = 0) -> dict[str, int]:
    return {job: one.allowed for job, one in allotments(*claims, total=total, now_ms=now_ms).items()}


# -- lower bounds first


def test_minimums_come_before_shares_and_in_order_of_priority() -> None:
    small = Claim("small", 1, 8)
    first, urgent = Claim("first", 6, 6), Claim("urgent", 6, 6, priority=1)
    found = allotments(small, first, urgent)
    assert {job: one.allowed for job, one in found.items()} == {"small": 2, "first": 0, "urgent": 6}
    assert (found["first"].why, found["first"].missing) == (Why.NO_ROOM, 5)


def test_of_one_priority_the_one_that_came_first_is_admitted_first() -> None:
    assert allowed(Claim("a", 5, 5), Claim("b", 5, 5)) == {"a": 5, "b": 0}


def test_a_job_that_is_too_large_keeps_nobody_from_running() -> None:
    found = allotments(Claim("huge", 9, 9, priority=5), Claim("small", 1, 2))
    assert found["small"].allowed == 2
    assert (found["huge"].why, found["huge"].missing) == (Why.NO_ROOM, 1)


def test_a_job_that_runs_keeps_its_minimum_whoever_comes() -> None:
    running = Claim("running", 3, 8, held=8, running=True)
    found = allotments(running, Claim("urgent", 6, 6, priority=9))
    assert found["running"].allowed == 8
    assert (found["urgent"].why, found["urgent"].missing) == (Why.NO_ROOM, 1)


def test_two_jobs_never_each_hold_half_of_what_the_other_needs() -> None:
    found = allotments(Claim("a", 6, 8, held=4), Claim("b", 6, 8, held=4))
    assert found["b"].allowed == 0, "it is not admitted, and what it has is of no use to it"
    assert found["a"].why is Why.ARRIVING
    assert allowed(Claim("a", 6, 8, held=4), Claim("b", 6, 8)) == {"a": 8, "b": 0}


def test_lower_bounds_raised_beyond_the_slots_do_not_stop_a_job_that_runs() -> None:
    found = allotments(Claim("a", 6, 8, held=4, running=True), Claim("b", 4, 4, held=4, running=True))
    assert (found["a"].allowed, found["a"].why, found["a"].missing) == (4, Why.NO_ROOM, 2)


# -- shares


def test_what_is_left_is_shared_by_weight() -> None:
    assert allowed(Claim("a", 1, 8, weight=3), Claim("b", 1, 8)) == {"a": 6, "b": 2}
    assert allowed(Claim("a", 1, 8), Claim("b", 1, 8), Claim("c", 1, 8)) == {"a": 3, "b": 3, "c": 2}


def test_what_cannot_be_divided_goes_to_the_higher_priority_unless_somebody_holds_it() -> None:
    assert allowed(Claim("a", 1, 8), Claim("b", 1, 8, priority=1), total=5) == {"a": 2, "b": 3}
    holds = allotments(Claim("a", 1, 8, held=2), Claim("b", 1, 8, held=3), total=5)
    assert (holds["a"].share, holds["b"].share) == (2, 3), "although a came first"


def test_a_lower_bound_above_the_share_counts_as_part_of_it() -> None:
    assert allowed(Claim("a", 5, 8), Claim("b", 1, 8), Claim("c", 1, 8)) == {"a": 5, "b": 2, "c": 1}


def test_upper_bounds_and_caps_leave_the_rest_to_others() -> None:
    found = allotments(Claim("a", 1, 2), Claim("b", 1, 8, cap=3), Claim("c", 1, 8), total=12).values()
    assert [(one.allowed, one.why) for one in found] == [(2, Why.FULL), (3, Why.CAPPED), (7, Why.SHARE)]


def test_a_cap_keeps_a_job_from_starting_but_not_from_running_on() -> None:
    assert allotments(Claim("a", 4, 8, cap=3))["a"].why is Why.CAP_TOO_LOW
    assert allowed(Claim("a", 4, 8, held=8, running=True, cap=3), Claim("b", 1, 8)) == {"a": 4, "b": 0}
    assert allotments(Claim("a", 4, 8, held=4, running=True, cap=3))["a"].why is Why.CAPPED


# -- moves


def test_a_job_below_its_lower_bound_gets_what_it_needs_at_once_and_no_more() -> None:
    rich = Claim("rich", 1, 8, held=8, running=True, changed_ms=0)
    found = allotments(rich, Claim("new", 2, 8), now_ms=1)
    assert found["rich"].allowed == 6 and found["rich"].why is Why.GIVES
    assert found["new"].allowed == 0 and found["new"].why is Why.ARRIVING
    after = allotments(replace(rich, held=6, changed_ms=1), Claim("new", 2, 8), now_ms=1)
    assert after["new"].allowed == 2


def test_shares_are_evened_out_only_after_the_holding_time() -> None:
    rich = Claim("rich", 1, 8, held=6, running=True, changed_ms=500)
    poor = Claim("poor", 1, 8, held=2, running=True, changed_ms=500)
    early = allotments(rich, poor, now_ms=1499)
    assert early["rich"].why is Why.HOLDS and early["rich"].due_ms == 1500 == next_review_ms(early.values())
    late = allotments(rich, poor, now_ms=1500)
    assert late["rich"].allowed == 4 and next_review_ms(late.values()) is None


def test_slots_that_nobody_wants_stay_where_they_are() -> None:
    found = allotments(
        Claim("a", 1, 3, held=6, running=True), Claim("b", 1, 2, held=2, running=True), now_ms=9999
    )
    assert found["a"].allowed == 6 and found["a"].why is Why.HOLDS
    assert next_review_ms(found.values()) is None


def test_those_with_most_for_their_weight_give_first() -> None:
    heavy = Claim("heavy", 1, 8, held=4, running=True, weight=4)
    light = Claim("light", 1, 8, held=4, running=True)
    assert allowed(heavy, light, Claim("new", 2, 2), now_ms=1) == {"heavy": 4, "light": 2, "new": 0}


def test_free_slots_that_are_kept_for_one_are_given_to_nobody_else() -> None:
    rich, waits = Claim("rich", 1, 8, held=6, running=True), Claim("waits", 4, 4)
    found = allotments(rich, waits, Claim("poor", 1, 8), now_ms=1)
    assert found["waits"].why is found["poor"].why is Why.ARRIVING
    assert found["rich"].allowed <= 6 and found["waits"].allowed == found["poor"].allowed == 0
    grows = allotments(replace(rich, held=5), waits, Claim("poor", 1, 8, held=1, running=True), now_ms=1)
    assert (grows["poor"].share, grows["poor"].allowed, grows["waits"].allowed) == (2, 1, 0)


def test_a_job_that_ends_keeps_what_it_holds_until_it_gives_it_back() -> None:
    ends = Claim("ends", 0, 0, held=4)
    found = allotments(ends, Claim("large", 6, 6), Claim("small", 2, 2))
    assert (found["ends"].allowed, found["ends"].why) == (4, Why.NOTHING_ASKED)
    assert (found["large"].why, found["large"].missing) == (Why.NO_ROOM, 2)
    assert found["small"].allowed == 2, "it does not wait for the end of the other one"


def test_who_cannot_give_while_it_runs_is_not_asked_to() -> None:
    batch = Claim("batch", 1, 6, held=6, running=True, can_give=False)
    stream = Claim("stream", 1, 8, held=6, running=True)
    assert allowed(batch, stream, Claim("new", 2, 4), total=12, now_ms=9999) == {
        "batch": 6,
        "stream": 3,
        "new": 0,
    }


def test_a_job_of_higher_priority_that_waits_is_not_overtaken_for_ever() -> None:
    running = Claim("running", 3, 3, held=3, running=True)
    found = allotments(running, Claim("small", 3, 3), Claim("urgent", 6, 6, priority=1))
    assert (found["urgent"].why, found["urgent"].missing) == (Why.NO_ROOM, 1)
    assert (found["small"].why, found["small"].allowed) == (Why.AFTER_OTHERS, 0)
    assert allowed(running, Claim("small", 3, 3), Claim("equal", 6, 6))["small"] == 3, (
        "of one priority it may be"
    )


def test_free_slots_are_dealt_by_the_same_rule_as_shares() -> None:
    rich = Claim("rich", 1, 8, held=5, running=True, changed_ms=500)
    poor = [Claim(name, 1, 8, held=1, running=True) for name in ("a", "b")]
    found = allotments(rich, *poor, total=9, now_ms=600)
    assert [found[name].allowed for name in ("rich", "a", "b")] == [5, 2, 2]
    assert [found[name].why for name in ("rich", "a", "b")] == [Why.HOLDS, Why.GROWING, Why.GROWING]


def test_what_is_beyond_a_cap_is_given_back_even_if_nobody_wants_it() -> None:
    found = allotments(Claim("a", 1, 8, held=8, running=True, cap=3))
    assert (found["a"].allowed, found["a"].why) == (3, Why.OVER_CAP)
    waiting = allotments(Claim("a", 4, 8, held=4, cap=3))
    assert (waiting["a"].allowed, waiting["a"].why) == (0, Why.CAP_TOO_LOW), "it does not start by accident"


def test_what_comes_back_anyway_is_not_taken_from_others() -> None:
    capped = Claim("capped", 1, 8, held=4, running=True, cap=1)
    surplus = Claim("surplus", 1, 2, held=4, running=True, changed_ms=500)
    poor = Claim("poor", 1, 4, held=1, running=True)
    found = allotments(capped, surplus, poor, total=9, now_ms=600)
    assert found["surplus"].why is Why.HOLDS and found["surplus"].due_ms is None


def test_nobody_restarts_so_that_others_have_their_fair_shares() -> None:
    fixed = Claim("fixed", 1, 8, held=6, running=True, in_place_floor=5)
    poor = Claim("poor", 1, 8, held=2, running=True)
    found = allotments(fixed, poor, now_ms=9999)
    assert (found["fixed"].allowed, found["fixed"].share, found["fixed"].why) == (5, 4, Why.EVENS_OUT)
    after = allotments(replace(fixed, held=5), replace(poor, held=3), now_ms=9999)
    assert (after["fixed"].allowed, after["fixed"].why, after["poor"].why) == (5, Why.KEEPS, Why.GROWING)
    assert next_review_ms(after.values()) is None, "time changes nothing about it"
    not_running = allotments(replace(fixed, running=False), poor, now_ms=9999)
    assert not_running["fixed"].allowed == 4, "it is about to start anew anyway"


def test_who_can_give_in_place_does_so_before_anybody_restarts() -> None:
    fixed = Claim("fixed", 1, 8, held=8, running=True, in_place_floor=8)
    other, poor = Claim("other", 1, 8, held=6, running=True), Claim("poor", 1, 8, held=1, running=True)
    found = allowed(fixed, other, poor, Claim("new", 1, 1), total=15, now_ms=1)
    assert found == {"fixed": 8, "other": 5, "poor": 1, "new": 0}
    found = allowed(fixed, other, poor, Claim("new", 3, 3), total=15, now_ms=1)
    assert found == {"fixed": 7, "other": 4, "poor": 1, "new": 0}, "the other one has its share left"


@pytest.mark.parametrize(
    "wrong", [{"minimal": 0}, {"minimal": 3}, {"held": -1}, {"weight": 0}, {"weight": WEIGHT_MAX + 1}]
)
def test_numbers_that_no_job_has_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"claim of a job|a weight is"):
        Claim(**{"job_id": "a", "minimal": 1, "desired": 2, **wrong})  # type: ignore[arg-type]


# -- at random


def random_case(seed: int) -> tuple[list[Claim], int, int]:
    rng = random.Random(seed)
    total = rng.randint(0, 40)
    left = total
    claims = []
    for number in range(rng.randint(0, 8)):
        desired = rng.choice([0, rng.randint(1, 6), rng.randint(1, 40)])
        minimal = 0 if desired == 0 else rng.choice([1, rng.randint(1, desired)])
        held = rng.choice([0, rng.randint(0, left), min(left, desired)])
        left -= held
        claims.append(
            Claim(
                f"job{number}",
                minimal,
                desired,
                held=held,
                running=held > 0 and desired > 0 and rng.random() < 0.5,
                can_give=rng.random() < 0.8,
                weight=rng.choice([1, 1, 2, 3, rng.randint(1, WEIGHT_MAX)]),
                priority=rng.choice([0, 0, 0, 1, -1]),
                cap=rng.choice([None, None, rng.randint(0, 10)]),
                changed_ms=rng.randint(0, 2000),
                in_place_floor=rng.choice([0, 0, held, rng.randint(0, 12)]),
            )
        )
    return claims, total, rng.randint(0, 4000)


def check(claims: Sequence[Claim], total: int, now_ms: int) -> dict[str, Allotment]:
    found = arbitrate(claims, total, now_ms=now_ms, holding_ms=HOLDING_MS)
    shares = {claim.job_id: found[claim.job_id].share for claim in claims}
    assert sum(one.allowed for one in found.values()) <= total, "slots are given twice"
    assert sum(shares.values()) <= total
    for claim in claims:
        one = found[claim.job_id]
        assert one.allowed <= max(claim.held, claim.limit), "bounds and caps"
        assert one.allowed >= claim.floor, "what runs is stopped"
        grows = one.allowed > claim.held
        assert not grows or claim.minimal <= one.allowed <= one.share, "partly, or beyond its share"
        if one.why in (Why.FULL, Why.CAPPED, Why.SHARE):
            assert one.allowed == one.share >= claim.minimal
    wait = [one for one in claims if one.held < one.minimal <= found[one.job_id].share]
    growth = sum(max(found[one.job_id].allowed - max(one.held, one.minimal), 0) for one in claims)
    left = total - sum(one.held for one in claims) - sum(one.minimal - one.held for one in wait)
    assert growth <= max(left, 0), "what a job waits for went to others"
    check_admission(claims, shares, total)
    check_fairness(claims, shares, total)
    check_reasons(claims, found, now_ms)
    return found


def check_admission(claims: Sequence[Claim], shares: dict[str, int], total: int) -> None:
    """One after the other, each that fits beside all that are certain so far, unless one before it waits for room."""
    certain = {claim.job_id: claim.floor for claim in claims}
    somebody_waits = False
    for priority in sorted({claim.priority for claim in claims}, reverse=True):
        waits_here = False
        for claim in claims:
            if claim.priority != priority or not claim.floor < claim.minimal <= claim.limit:
                continue
            others = sum(count for job, count in certain.items() if job != claim.job_id)
            if others + claim.minimal <= total and not somebody_waits:
                certain[claim.job_id] = claim.minimal
                assert shares[claim.job_id] >= claim.minimal, "it fits"
            else:
                assert shares[claim.job_id] == claim.floor, "it does not fit"
                waits_here = waits_here or claim.minimal <= total
        somebody_waits = somebody_waits or waits_here


def check_fairness(claims: Sequence[Claim], shares: dict[str, int], total: int) -> None:
    """No slot would do better elsewhere, and none is left over that somebody asks for."""
    admitted = [claim for claim in claims if 0 < claim.minimal <= shares[claim.job_id]]
    unused = total - sum(shares.values())
    takers = [claim for claim in admitted if shares[claim.job_id] < claim.limit]
    givers = [claim for claim in admitted if shares[claim.job_id] > max(claim.minimal, claim.floor)]
    assert not unused or not takers
    for giver in givers:
        for taker in takers:
            there = Fraction(shares[taker.job_id] + 1, taker.weight)
            assert there >= Fraction(shares[giver.job_id], giver.weight), f"{giver.job_id} to {taker.job_id}"


def check_reasons(claims: Sequence[Claim], found: dict[str, Allotment], now_ms: int) -> None:
    """Slots are taken for somebody, no more than are needed, and from whom they may be taken."""
    useless = early = 0
    for claim in claims:
        one = found[claim.job_id]
        lost = max(claim.held - one.allowed, 0)
        spare = claim.held if claim.floor == 0 and one.share == 0 else claim.surplus
        assert lost >= spare, "it keeps what is of no use to it"
        useless += spare
        if now_ms - claim.changed_ms < HOLDING_MS:
            early += lost - spare
        assert lost <= max(claim.held - one.share, spare), "it has less than its share"
        assert one.due_ms is None or one.due_ms > now_ms, "a review that would repeat itself"
    check_restarts(claims, found)
    takers = [one for one in claims if one.desired and one.held < found[one.job_id].share]
    needed = sum(one.minimal - one.held for one in takers if one.held < one.minimal)
    wanted = sum(found[one.job_id].share - one.held for one in takers)
    taken = sum(max(one.held - found[one.job_id].allowed, 0) for one in claims) - useless
    assert taken <= max(wanted - useless, 0), "more than anybody wants"
    assert early <= max(needed - useless, 0), "too early"


def check_restarts(claims: Sequence[Claim], found: dict[str, Allotment]) -> None:
    """Nobody restarts for a fair share, nor for a lower bound as long as somebody else can give in place."""
    kept = {one.job_id: min(one.in_place_floor, one.held - one.surplus) for one in claims if one.running}
    restart = [one for one in claims if one.running and found[one.job_id].allowed < kept[one.job_id]]
    if not restart:
        return
    assert any(one.held < one.minimal <= found[one.job_id].share for one in claims), "for a share"
    for claim in claims:
        could = max(found[claim.job_id].share, kept.get(claim.job_id, 0))
        assert found[claim.job_id].allowed <= max(could, claim.held * (claim in restart)), "in place"


def moved(
    claims: Sequence[Claim], found: dict[str, Allotment], now_ms: int, rng: random.Random
) -> list[Claim]:
    """What was free is given at once; what is to be given back comes when its job has done so, sooner or later."""
    after = []
    for claim in claims:
        held = found[claim.job_id].allowed
        if held < claim.held and rng.random() < 0.5:
            held = rng.randint(held, claim.held)
        changed_ms = now_ms if held != claim.held else claim.changed_ms
        running = claim.desired > 0 and held > 0 and (claim.running or held >= claim.minimal)
        after.append(replace(claim, held=held, changed_ms=changed_ms, running=running))
    return after


def test_bounds_caps_conservation_fairness_and_reasons_at_random() -> None:
    for seed in range(CASES):
        claims, total, now_ms = random_case(seed)
        try:
            check(claims, total, now_ms)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}\n{claims}\ntotal {total}, now {now_ms}") from error


def test_at_random_it_settles_at_the_shares_and_then_nothing_moves() -> None:
    for seed in range(CASES // 10):
        now, total, now_ms = random_case(seed)
        rng = random.Random(seed)
        for _ in range(12 * len(now) + 24):
            found = check(now, total, now_ms)
            now = moved(now, found, now_ms, rng)
            due_ms = next_review_ms(found.values())
            now_ms = now_ms + 1 if due_ms is None else due_ms
        found = check(now, total, now_ms)
        assert [found[claim.job_id].allowed for claim in now] == [claim.held for claim in now], f"seed {seed}"
        wanting = [claim.job_id for claim in now if claim.held < found[claim.job_id].share]
        keep = any(one.why is Why.KEEPS for one in found.values())
        assert not wanting or keep, f"seed {seed}: {wanting} never got their shares"


@pytest.mark.parametrize("seed", range(20))
def test_a_script_of_arrivals_departures_and_new_bounds(seed: int) -> None:
    """Three jobs on eight slots: whatever comes, the next allotments keep every rule, and all settle."""
    rng = random.Random(seed)
    now: list[Claim] = []
    now_ms = 0
    for step in range(20):
        now_ms += rng.randint(1, 2 * HOLDING_MS)
        if len(now) < 3 and rng.random() < 0.6:
            upper = rng.randint(1, 8)
            now.append(Claim(f"job{step}", rng.randint(1, upper), upper, weight=rng.randint(1, 3)))
        elif now and rng.random() < 0.3:
            now.pop(rng.randrange(len(now)))
        elif now:
            index, upper = rng.randrange(len(now)), rng.randint(1, 8)
            now[index] = replace(now[index], minimal=rng.randint(1, upper), desired=upper)
        for _ in range(40):
            now = moved(now, check(now, 8, now_ms), now_ms, rng)
            now_ms += HOLDING_MS // 4
        found = check(now, 8, now_ms)
        assert not [claim for claim in now if claim.held < found[claim.job_id].share], (seed, step)
