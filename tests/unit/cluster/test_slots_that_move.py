"""Slots of jobs that move between control planes of one host."""

from __future__ import annotations

from app.cluster.slot_pool import SlotPool
from app.model.plan import Slot

THEIRS = (Slot("host-2-0", "host-2"), Slot("host-2-1", "host-2"))


def ids(pool: SlotPool, job: str) -> list[str]:
    return [slot.id for slot in pool.held_by(job)]


def test_a_job_brings_its_slots_along_and_they_go_when_it_gives_them_back() -> None:
    pool = SlotPool({"host": 2})
    assert pool.restore("a", THEIRS, 2, 1, guests=True)
    assert (pool.total, pool.free) == (4, 2)
    pool.declare("b", 4, 1)
    pool.review(0)
    assert len(ids(pool, "b")) == 2
    pool.release("a", ["host-2-1"])
    assert (ids(pool, "a"), pool.total, pool.free) == (["host-2-0"], 3, 0)
    pool.forget("a")
    assert (pool.total, pool.free) == (2, 0)


def test_a_resize_leaves_guests_alone() -> None:
    pool = SlotPool({"host": 2})
    pool.restore("a", THEIRS, 2, 1, guests=True)
    pool.resize({"host": 1})
    assert ids(pool, "a") == ["host-2-0", "host-2-1"]
    assert pool.total == 3


def test_slots_that_are_lent_are_not_given_to_others_until_they_come_back() -> None:
    pool = SlotPool({"host": 3})
    pool.declare("a", 2, 1)
    pool.review(0)
    slots = ids(pool, "a")
    pool.lend("a", slots)
    pool.declare("b", 3, 1)
    pool.review(0)
    assert (len(ids(pool, "b")), pool.total, pool.free) == (1, 1, 0)
    pool.lend("a", slots[:1])
    pool.review(0)
    assert (len(ids(pool, "b")), pool.total) == (2, 2)
    pool.lend("a", ())
    pool.review(0)
    assert (len(ids(pool, "b")), pool.total, pool.lent) == (3, 3, {})


def test_a_job_that_comes_back_has_its_slots_again() -> None:
    pool = SlotPool({"host": 2})
    pool.declare("a", 1, 1)
    pool.review(0)
    held = pool.held_by("a")
    pool.lend("a", [slot.id for slot in held])
    assert pool.restore("a", held, 1, 1, guests=True)
    assert (pool.held_by("a"), pool.total, pool.free, pool.lent) == (held, 2, 1, {})


def test_after_a_restart_slots_that_a_job_holds_elsewhere_are_known() -> None:
    pool = SlotPool({"host": 2})
    pool.lend("a", ["host-0", "host-2-0"])
    assert (pool.total, pool.free, pool.lent) == (1, 1, {"a": ("host-0",)})
