"""Which job holds which slots: minimums are met whole, slots come and go, and are given back for others."""

from __future__ import annotations

from app.cluster.ports import Offer
from app.cluster.slot_pool import SlotPool
from app.model.plan import Slot
from app.model.slot_share import SlotShare
from app.scheduler.adaptive.slot_declaration import Releasable
from app.scheduler.arbiter import Why


def ids(pool: SlotPool, job: str) -> list[str]:
    return [slot.id for slot in pool.held_by(job)]


def declared(pool: SlotPool, job: str, desired: int, minimal: int, now_ms: int = 0) -> set[str]:
    """For which jobs something has changed after ``job`` has declared."""
    pool.declare(job, desired, minimal)
    return pool.review(now_ms)


def running(pool: SlotPool, job: str, *, can_give: bool = True) -> None:
    pool.note_releasable(job, Releasable(running=True, can_give=can_give))


def test_a_job_gets_what_it_desires_and_no_more() -> None:
    pool = SlotPool({"host": 4})
    assert declared(pool, "a", 3, 1) == {"a"}
    assert ids(pool, "a") == ["host-0", "host-1", "host-2"]
    assert (pool.total, pool.free, pool.free_on("host")) == (4, 1, 1)
    assert declared(pool, "a", 3, 1) == set()


def test_two_jobs_never_hold_half_of_what_the_other_needs() -> None:
    pool = SlotPool({"host": 3})
    declared(pool, "a", 2, 2)
    assert declared(pool, "b", 2, 2) == set()
    assert ids(pool, "b") == []
    pool.forget("a")
    assert pool.review(0) == {"b"}
    assert len(ids(pool, "b")) == 2


def test_minimums_come_before_wishes() -> None:
    pool = SlotPool({"host": 0})
    declared(pool, "a", 8, 1)
    declared(pool, "b", 8, 2)
    pool.resize({"host": 3})
    assert pool.review(0) == {"a", "b"}
    assert (len(ids(pool, "a")), len(ids(pool, "b"))) == (1, 2)


def test_a_lower_wish_takes_nothing_away() -> None:
    pool = SlotPool({"host": 4})
    declared(pool, "a", 4, 1)
    running(pool, "a")
    assert declared(pool, "a", 1, 1) == set()
    assert len(ids(pool, "a")) == 4
    pool.release("a", ["host-3", "unknown"])
    assert (pool.review(0), pool.free) == (set(), 1)


def test_a_job_that_comes_gets_its_minimum_when_another_has_given_it_back() -> None:
    pool = SlotPool({"host": 4})
    declared(pool, "a", 4, 1)
    running(pool, "a")
    assert declared(pool, "b", 4, 2) == {"a"}
    assert (pool.allowed("a"), ids(pool, "b")) == (2, []), "they are a's until it gives them back"
    assert pool.review(1) == set(), "a is told once"
    pool.release("a", ["host-2", "host-3"])
    assert pool.review(2) == {"a", "b"}
    assert (pool.allowed("a"), len(ids(pool, "a")), len(ids(pool, "b"))) == (None, 2, 2)


def test_shares_are_evened_out_when_they_were_held_for_long_enough() -> None:
    pool = SlotPool({"host": 4}, holding_ms=1000)
    declared(pool, "a", 4, 1)
    running(pool, "a")
    declared(pool, "b", 4, 1)
    assert pool.allowed("a") == 3
    pool.release("a", ["host-3"])
    assert pool.review(100) == {"a", "b"}
    assert pool.next_review_ms == 1100
    assert pool.review(1100) == {"a"}
    assert pool.allowed("a") == 2
    pool.forget("b")
    assert pool.review(1200) == {"a"}
    assert pool.allowed("a") is None, "nobody wants them any more"


def test_slots_that_have_just_come_are_held_for_the_holding_time() -> None:
    pool = SlotPool({"host": 4}, holding_ms=1000)
    declared(pool, "a", 3, 1, now_ms=5000)
    running(pool, "a")
    declared(pool, "b", 4, 1, now_ms=5000)
    assert (len(ids(pool, "a")), pool.allowed("a"), pool.next_review_ms) == (3, None, 6000)
    pool.review(5999)
    assert pool.allowed("a") is None
    assert pool.review(6000) == {"a"}
    assert pool.allowed("a") == 2


def test_who_cannot_give_while_it_runs_is_not_asked_to() -> None:
    pool = SlotPool({"host": 4})
    declared(pool, "batch", 4, 1)
    running(pool, "batch", can_give=False)
    assert declared(pool, "b", 1, 1, now_ms=10**9) == set()
    assert pool.allowed("batch") is None


def test_slots_that_exist_no_more_are_lost() -> None:
    pool = SlotPool({"host": 2, "other": 2})
    declared(pool, "a", 3, 1)
    declared(pool, "b", 1, 1)
    pool.resize({"host": 2})
    assert pool.review(0) == {"a", "b"}
    assert (ids(pool, "a"), ids(pool, "b")) == (["host-0", "host-1"], [])
    assert (pool.total, pool.free, pool.allowed("a")) == (2, 0, 1)
    pool.resize({"host": 2, "new": 1})
    assert pool.review(0) == {"a", "b"}, "b has its minimum, so a need not give any back"
    assert (pool.allowed("a"), ids(pool, "b")) == (None, ["new-0"])


def test_a_slot_that_returns_is_not_that_of_its_former_holder() -> None:
    pool = SlotPool({"host": 1})
    declared(pool, "a", 1, 1)
    declared(pool, "b", 1, 1)
    pool.resize({})
    pool.forget("a")
    pool.resize({"host": 1})
    assert pool.review(0) == {"b"}
    assert ids(pool, "b") == ["host-0"]


def test_a_slot_that_returns_is_nobodys_before_its_holder_has_given_it_up() -> None:
    """Its loss is not durable before: after a restart, two jobs would have it."""
    pool = SlotPool({"host": 1, "other": 1})
    declared(pool, "a", 2, 1)
    declared(pool, "b", 1, 1)
    held = pool.held_by("a")
    pool.resize({"host": 1})
    pool.resize({"host": 1, "other": 1})
    assert pool.review(0) == {"a"}
    assert (ids(pool, "a"), ids(pool, "b"), pool.total) == (["host-0"], [], 1)
    assert not pool.note_held("a", held), "the state that was durable before the loss"
    assert not pool.note_held("b", ())
    assert pool.note_held("a", pool.held_by("a"))
    assert pool.review(0) == {"b"}
    assert (ids(pool, "b"), pool.total) == (["other-0"], 2)


def test_a_slot_that_was_given_up_before_it_returns_is_given_at_once() -> None:
    pool = SlotPool({"host": 1})
    declared(pool, "a", 1, 1)
    pool.resize({})
    assert not pool.note_held("a", ()), "it is not there"
    pool.resize({"host": 1})
    assert pool.review(0) == {"a"}
    assert ids(pool, "a") == ["host-0"]


def test_equal_slots_change_nothing() -> None:
    pool = SlotPool({"host": 2})
    declared(pool, "a", 2, 1)
    pool.resize({"host": 2})
    assert pool.review(0) == set()
    assert (ids(pool, "a"), pool.free) == (["host-0", "host-1"], 0)


def test_a_job_takes_its_slots_up_again() -> None:
    before = SlotPool({"host": 3})
    declared(before, "a", 2, 1)
    held = before.held_by("a")
    after = SlotPool({"host": 1})
    assert not after.restore("a", held, 2, 1), "host-1 is gone"
    assert ids(after, "a") == ["host-0"]
    whole = SlotPool({"host": 3})
    assert whole.restore("a", held, 3, 1)
    assert whole.review(0) == {"a"}
    assert len(ids(whole, "a")) == 3


def test_a_job_that_is_to_give_slots_back_is_to_do_so_after_a_restart_too() -> None:
    before = SlotPool({"host": 4})
    declared(before, "a", 4, 1)
    running(before, "a")
    declared(before, "b", 2, 2)
    after = SlotPool({"host": 4})
    after.restore("a", before.held_by("a"), 4, 1, allowed=before.allowed("a"))
    assert after.allowed("a") == 2, "before anybody has looked at all claims"
    running(after, "a")
    after.restore("b", (), 2, 2)
    assert after.review(0) == set(), "nothing has changed for anybody"


def test_weight_priority_and_cap_are_those_that_were_declared_last() -> None:
    pool = SlotPool({"host": 8}, holding_ms=0)
    for job in ("a", "b"):
        declared(pool, job, 8, 1)
        running(pool, job)
    pool.set_share("b", SlotShare(weight=3))
    assert pool.review(1) == {"a"}
    assert (pool.allowed("a"), pool.reason("a")) == (
        2,
        "Another job is below its lower bounds; the share of this one is 2 of 8 slot(s) (weight 1, priority 0).",
    )
    pool.set_share("a", SlotShare(cap=1))
    pool.review(2)
    assert (pool.allowed("a"), pool.reason("a")) == (1, "Its cap is 1 slot(s).")
    assert pool.attainable_slots("a", 8, 1) == 1, "a dry run goes by it too"
    assert pool.attainable_slots("b", 8, 1) == 7
    first, second = SlotPool({"host": 2}), SlotPool({"host": 2})
    for one, priority in ((first, 0), (second, 1)):
        one.declare("a", 2, 2)
        one.declare("b", 2, 2)
        one.set_share("b", SlotShare(priority=priority))
        one.review(0)
    assert (len(ids(first, "a")), len(ids(second, "b"))) == (2, 2)


def test_fair_shares_are_taken_only_as_far_as_nobody_restarts() -> None:
    pool = SlotPool({"host": 8}, holding_ms=0)
    declared(pool, "a", 8, 1)
    assert pool.note_releasable("a", Releasable(running=True, in_place_floor=6))
    assert not pool.note_releasable("a", Releasable(running=True, in_place_floor=6)), "it is known"
    declared(pool, "b", 8, 1)
    assert pool.allowed("a") == 6
    pool.release("a", ["host-6", "host-7"])
    pool.review(1)
    allotment = pool.allotment("a")
    assert allotment is not None and (allotment.why, allotment.share) == (Why.KEEPS, 4)
    pool.note_releasable("a", Releasable(running=True, in_place_floor=0))
    assert pool.review(2) == {"a"}
    assert pool.allowed("a") == 4


def test_the_holding_time_goes_on_after_a_restart() -> None:
    for changed_ms, allowed in ((500, None), (0, 2)):
        pool = SlotPool({"host": 4}, holding_ms=1000)
        slots = [Slot(f"host-{index}", "host") for index in range(4)]
        pool.restore("a", slots[:3], 4, 1, changed_ms=changed_ms)
        running(pool, "a")
        pool.restore("b", slots[3:], 4, 1, changed_ms=changed_ms)
        pool.review(1200)
        assert pool.allowed("a") == allowed
        assert pool.next_review_ms == (1500 if changed_ms else None)


def test_a_slot_is_of_one_job_whoever_brings_it_along() -> None:
    pool = SlotPool({"host": 1})
    host, guest = Slot("host-0", "host"), Slot("gone-0", "gone")
    assert pool.restore("a", [host, guest], 2, 1, guests=True)
    assert pool.restore("a", [host, guest], 2, 1, guests=True), "it has them"
    assert not pool.restore("b", [host, guest], 2, 1, guests=True)
    assert (ids(pool, "a"), ids(pool, "b"), pool.total) == (["host-0", "gone-0"], [], 2)


def test_what_others_use_of_a_cluster_is_not_taken_off_what_jobs_hold() -> None:
    pool = SlotPool({"host": 4})
    declared(pool, "a", 3, 1)
    pool.take_offer(Offer((("host", 4),), withheld=3))
    assert (pool.total, pool.free, len(ids(pool, "a"))) == (3, 0, 3)
