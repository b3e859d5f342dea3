"""Which job holds which slots: nothing is taken away, minimums are met whole, slots come and go."""

from __future__ import annotations

from app.cluster.slot_pool import SlotPool


def ids(pool: SlotPool, job: str) -> list[str]:
    return [slot.id for slot in pool.held_by(job)]


def test_a_job_gets_what_it_desires_and_no_more() -> None:
    pool = SlotPool({"host": 4})
    assert pool.declare("a", 3, 1) == {"a"}
    assert ids(pool, "a") == ["host-0", "host-1", "host-2"]
    assert (pool.total, pool.free, pool.free_on("host")) == (4, 1, 1)
    assert pool.declare("a", 3, 1) == set()


def test_two_jobs_never_hold_half_of_what_the_other_needs() -> None:
    pool = SlotPool({"host": 3})
    pool.declare("a", 2, 2)
    assert pool.declare("b", 2, 2) == set()
    assert ids(pool, "b") == []
    assert pool.release("a", ["host-0", "host-1"]) == {"a"}, "a wants its minimum back, and was first"
    assert pool.forget("a") == {"b"}
    assert len(ids(pool, "b")) == 2


def test_minimums_come_before_wishes() -> None:
    pool = SlotPool({"host": 0})
    pool.declare("a", 8, 1)
    pool.declare("b", 8, 2)
    assert pool.resize({"host": 3}) == {"a", "b"}
    assert (len(ids(pool, "a")), len(ids(pool, "b"))) == (1, 2)


def test_a_lower_wish_takes_nothing_away() -> None:
    pool = SlotPool({"host": 4})
    pool.declare("a", 4, 1)
    assert pool.declare("a", 1, 1) == set()
    assert len(ids(pool, "a")) == 4
    pool.release("a", ["host-3", "unknown"])
    assert pool.free == 1


def test_slots_that_exist_no_more_are_lost() -> None:
    pool = SlotPool({"host": 2, "other": 2})
    pool.declare("a", 3, 1)
    pool.declare("b", 1, 1)
    assert pool.resize({"host": 2}) == {"a", "b"}
    assert (ids(pool, "a"), ids(pool, "b")) == (["host-0", "host-1"], [])
    assert (pool.total, pool.free) == (2, 0)
    assert pool.resize({"host": 2, "new": 1}) == {"b"}, "a has its minimum, b has not"


def test_a_slot_that_returns_is_not_that_of_its_former_holder() -> None:
    pool = SlotPool({"host": 1})
    pool.declare("a", 1, 1)
    pool.declare("b", 1, 1)
    pool.resize({})
    pool.forget("a")
    assert pool.resize({"host": 1}) == {"b"}
    assert ids(pool, "b") == ["host-0"]


def test_equal_slots_change_nothing() -> None:
    pool = SlotPool({"host": 2})
    pool.declare("a", 2, 1)
    assert pool.resize({"host": 2}) == set()
    assert (ids(pool, "a"), pool.free) == (["host-0", "host-1"], 0)


def test_a_job_takes_its_slots_up_again() -> None:
    before = SlotPool({"host": 3})
    before.declare("a", 2, 1)
    held = before.held_by("a")
    after = SlotPool({"host": 1})
    assert not after.restore("a", held, 2, 1), "host-1 is gone"
    assert ids(after, "a") == ["host-0"]
    whole = SlotPool({"host": 3})
    assert whole.restore("a", held, 3, 1)
    assert whole.serve() == {"a"}
    assert len(ids(whole, "a")) == 3
