"""The free slots of workers: together those that can be given out."""

from __future__ import annotations

import random

import pytest

from app.worker.slots.task_managers import Free, free_of_workers


@pytest.mark.parametrize(
    ("workers", "free", "shown"),
    [
        # Nobody else is there.
        ([Free("a", 2, 4, 2), Free("b", 4, 4, 0)], 6, {"a": 2, "b": 4}),
        # Somebody uses two cores of b.
        ([Free("a", 2, 4, 2), Free("b", 4, 4, 2)], 4, {"a": 2, "b": 2}),
        # Our executors are on b, and our slots on a: what the sum says counts.
        ([Free("a", 2, 4, 0), Free("b", 4, 4, 2)], 6, {"a": 2, "b": 4}),
        # Somebody has asked for a core and has not got it yet.
        ([Free("a", 2, 4, 2), Free("b", 4, 4, 0)], 5, {"a": 2, "b": 3}),
        # While nothing can be seen.
        ([Free("a", 0, 4, 2), Free("b", 0, 4, 1)], 0, {"a": 0, "b": 0}),
        ([], 0, {}),
    ],
)
def test_slots_that_others_use_are_not_free(workers: list[Free], free: int, shown: dict[str, int]) -> None:
    assert free_of_workers(workers, free) == shown


def test_the_sum_is_what_can_be_given_out() -> None:
    chance = random.Random(1)
    for _ in range(500):
        workers = [
            Free(str(number), chance.randint(0, slots), slots, chance.randint(0, slots))
            for number, slots in enumerate(chance.choices(range(6), k=chance.randint(0, 5)))
        ]
        free = chance.randint(0, sum(one.free for one in workers))
        shown = free_of_workers(workers, free)
        assert sum(shown.values()) == free
        assert all(0 <= shown[one.worker] <= one.free for one in workers)
