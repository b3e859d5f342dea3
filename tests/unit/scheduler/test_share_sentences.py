"""Every allotment has its words, and they have the numbers."""

from __future__ import annotations

import pytest

from app.model.slot_share import SlotShare, beyond_cap
from app.scheduler.arbiter import Allotment, Claim, Why, arbitrate
from app.scheduler.arbiter_sentences import reason_of, sentences_of

SHARE = SlotShare(weight=2, priority=1, cap=6)
SILENT = {Why.NOTHING_ASKED, Why.FULL}


@pytest.mark.parametrize("why", Why)
def test_each_allotment_is_told_in_one_sentence(why: Why) -> None:
    told = sentences_of(Allotment(3, 3, why, missing=2, due_ms=4_000), SHARE, held=5, total=8, now_ms=1_000)
    assert len(told) == (why not in SILENT)
    assert all(not one[0].islower() and one.endswith(".") for one in told)


def test_the_numbers_are_in_them() -> None:
    def told(why: Why, allowed: int = 3) -> str:
        (sentence,) = sentences_of(
            Allotment(allowed, 3, why, missing=2, due_ms=4_000), SHARE, held=5, total=8, now_ms=1_000
        )
        return sentence

    assert told(Why.NO_ROOM).startswith("Its lower bounds need 2 slot(s) more than")
    assert told(Why.GIVES).startswith("It gives 2 slot(s) back: another job is below")
    assert told(Why.OVER_CAP) == "It gives 2 slot(s) back: its cap is 6."
    assert told(Why.HOLDS, 5) == "It holds 2 slot(s) more than its share; other jobs may have them in 3.0 s."
    assert "by a restart only" in told(Why.KEEPS, 5)
    assert "is 3, as other jobs want some too (weight 2, priority 1, cap 6)" in told(Why.SHARE)


def test_one_that_cannot_keep_to_its_cap_says_so() -> None:
    allotment = Allotment(8, 8, Why.FULL)
    (sentence,) = sentences_of(allotment, SHARE, held=8, total=8, now_ms=0)
    assert sentence == "It holds 8 slot(s), more than its cap of 6, and cannot give any back while it runs."
    assert sentences_of(allotment, SlotShare(), held=8, total=8, now_ms=0) == []


@pytest.mark.parametrize("why", Why)
def test_a_record_has_the_numbers_by_which_slots_have_moved(why: Why) -> None:
    told = reason_of(Allotment(3, 3, why), SHARE, 8)
    if why in (Why.OVER_CAP, Why.CAPPED):
        assert told == "Its cap is 6 slot(s)."
    elif why in (Why.GIVES, Why.EVENS_OUT, Why.SHARE, Why.GROWING, Why.HOLDS, Why.KEEPS):
        assert told is not None and told.endswith(" 3 of 8 slot(s) (weight 2, priority 1, cap 6).")
    else:
        assert told is None


def test_one_that_has_all_slots_has_nothing_to_do_with_others() -> None:
    everything = Allotment(8, 8, Why.SHARE)
    assert sentences_of(everything, SlotShare(), held=8, total=8, now_ms=0) == []
    assert reason_of(everything, SlotShare(), 8) is None
    assert reason_of(everything, SlotShare(), 9) is not None


def test_a_cap_is_compared_with_the_lower_bounds() -> None:
    assert beyond_cap(3, None) is None and beyond_cap(3, 3) is None
    sentence = beyond_cap(3, 2)
    assert sentence is not None and "cap of 2 slot(s)" in sentence and "at least 3" in sentence


def test_one_that_waits_to_be_started_tells_its_place() -> None:
    waits = Allotment(0, 0, Why.NO_ROOM, missing=1, rank=3, waiting=46)
    assert sentences_of(waits, SHARE, held=0, total=4, now_ms=0) == [
        "Its lower bounds need 1 slot(s) more than are free or can be given back.",
        "It is number 3 of 46 jobs that wait to be started.",
    ]
    alone = Allotment(0, 0, Why.NO_ROOM, missing=1, rank=1, waiting=1)
    assert len(sentences_of(alone, SHARE, held=0, total=4, now_ms=0)) == 1


def test_those_that_wait_have_a_rank_by_which_they_are_admitted() -> None:
    runs = Claim("runs", 8, 8, held=8, running=True, can_give=False)
    late, first, second = Claim("late", 1, 4), Claim("first", 1, 4, priority=2), Claim("second", 2, 4)
    found = arbitrate([runs, late, first, second], 8, now_ms=0, holding_ms=0)
    assert {job: (one.rank, one.waiting) for job, one in found.items()} == {
        "runs": (0, 0),
        "first": (1, 3),
        "late": (2, 3),
        "second": (3, 3),
    }
