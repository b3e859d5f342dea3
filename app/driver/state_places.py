"""Keeps the state partitions of a query where they are: on the executors of a cluster that have them open.

Spark sends the task of a state partition to the executor that has it open. But behind a valve a task is for several
state partitions, and of their places Spark then keeps the hosts only. So on a host with several executors each
batch would move most of the state, which is opened anew from the checkpoint, and a newcomer would move all of it. Here
each task is given one executor, and its partitions are those that it has had, as far as the shares stay even.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import Any

from pyspark import SparkContext

from app.driver.scala import executor_place, scala_option

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Share:
    """The state partitions of one task, and the executor that it should run on; None: any."""

    executor: int | None
    partitions: tuple[int, ...]


PlacedTask = tuple[Any, Any]
"""The JVM's values of a task: its partitions, and an option of its place."""

Board = dict[str, tuple[Share, ...]]
"""The shares of each `StatePlaces` of an attempt, by its key."""


def shares(
    count: int,
    width: int,
    executors: Sequence[int],
    owners: Mapping[int, int],
    busy: Mapping[int, int] = MappingProxyType({}),
) -> tuple[Share, ...]:
    """Divide ``count`` state partitions among ``width`` tasks, evenly in the end, with as few moves as that allows.

    ``owners``: the executor that has a partition. Of more executors than tasks those count that have the most, then
    those with the fewest shares of other state (``busy``), then the oldest, which are given up last. A partition
    that could stay moves in its turn: at a time an executor gets a quarter of its share of these.
    """
    width = min(width, count)
    kept: dict[int, list[int]] = {executor: [] for executor in executors}
    for partition in range(count):
        if (owner := owners.get(partition)) in kept:
            kept[owner].append(partition)
    # Those with more come first: they get the shares that are larger by one.
    chosen = sorted(kept, key=lambda one: (-len(kept[one]), busy.get(one, 0), one))[:width]
    least, larger = divmod(count, width)
    sizes = [least + (position < larger) for position in range(width)]
    places: list[int | None] = [*chosen, *[None] * (width - len(chosen))]
    found = [kept[executor][:size] for executor, size in zip(chosen, sizes, strict=False)]
    found += [[] for _ in range(width - len(chosen))]
    # Those that could stay, and whose they are; all others have to go somewhere now.
    surplus = {
        one: position
        for position, (executor, size) in enumerate(zip(chosen, sizes, strict=False))
        for one in kept[executor][size:]
    }
    homeless = iter(sorted(set(range(count)) - surplus.keys() - {one for part in found for one in part}))
    for part, size in zip(found, sizes, strict=True):
        part.extend(islice(homeless, size - len(part)))
    movable = iter(_most_loaded_first(surplus))
    for place, part, size in zip(places, found, sizes, strict=True):
        missing = size - len(part)
        for one in islice(movable, missing if place is None else min(missing, _at_a_time(size))):
            part.append(one)
            del surplus[one]
    for one, position in surplus.items():
        found[position].append(one)
    made = [Share(place, tuple(sorted(part))) for place, part in zip(places, found, strict=True)]
    return tuple(sorted(made, key=lambda share: share.partitions))


def _most_loaded_first(surplus: Mapping[int, int]) -> list[int]:
    """The partitions of ``surplus``, which says whose each is: who has the most too many gives the first. A batch takes
    as long as its longest task."""
    left = Counter(surplus.values())
    turns: dict[int, int] = {}
    for one in sorted(surplus):
        turns[one] = -left[surplus[one]]
        left[surplus[one]] -= 1
    return sorted(surplus, key=lambda one: (turns[one], one))


def _at_a_time(size: int) -> int:
    return -(-size // 4)


class StatePlaces:
    """The executors of the state partitions of one vertex. For the query's thread."""

    def __init__(self, key: str, executors: Callable[[], Sequence[int]], board: Board) -> None:
        """``executors`` tells those that may have tasks of queries now. ``board`` is that of all state."""
        self._key = key
        self._executors = executors
        self._board = board
        # Whether a batch after the latest one would have the same shares.
        self.is_even = True
        self._owners: dict[int, int] = {}
        self._shares: tuple[Share, ...] = ()
        # The same for the JVM, and for stages that go on behind.
        self._tasks: list[PlacedTask] = []
        self._behind: list[PlacedTask] = []

    def arrange(self, narrow: Any, behind: Iterable[Any] = ()) -> None:
        """Give each task of ``narrow`` its state partitions and its place, before anything of it has run.

        ``narrow``: a CoalescedRDD over the state partitions. ``behind``: others over what it becomes, inputs first.
        Those with as many partitions keep the place.
        """
        count, width = narrow.prev().getNumPartitions(), narrow.getNumPartitions()
        executors, busy = self._executors(), self._busy()
        made = shares(count, width, executors, self._owners, busy)
        moves = made != self._shares
        if moves:
            self._take(made)
            self._tasks = [placed_task(share.partitions, share.executor) for share in made]
            self._behind = [placed_task([number], share.executor) for number, share in enumerate(made)]
        self.is_even = not moves or shares(count, width, executors, self._owners, busy) == made
        place_tasks(narrow, self._tasks)
        for each in behind:
            if each.getNumPartitions() == each.prev().getNumPartitions() == width:
                place_tasks(each, self._behind)

    def _busy(self) -> Counter[int]:
        others = [made for key, made in list(self._board.items()) if key != self._key]
        return Counter(share.executor for made in others for share in made if share.executor is not None)

    def _take(self, made: tuple[Share, ...]) -> None:
        owners = {
            one: share.executor for share in made for one in share.partitions if share.executor is not None
        }
        moved = sum(1 for one, owner in self._owners.items() if owners.get(one) != owner)
        if moved:
            log.info("%d of %d state partitions move to another executor", moved, len(self._owners))
        self._owners, self._shares = owners, made
        self._board[self._key] = made


# ---- values for the JVM


def placed_task(partitions: Iterable[int], executor: int | None) -> PlacedTask:
    """A task for these partitions, at ``executor`` if that can be."""
    jvm: Any = SparkContext._jvm
    gateway: Any = SparkContext._gateway
    numbers = list(partitions)
    indices = gateway.new_array(jvm.int, len(numbers))
    for position, number in enumerate(numbers):
        indices[position] = number
    return indices, scala_option(jvm, None if executor is None else executor_place(executor))


def place_tasks(narrow: Any, tasks: Sequence[PlacedTask]) -> None:
    """Let ``narrow``, a CoalescedRDD of that many partitions of which nothing has run yet, have these."""
    jvm: Any = SparkContext._jvm
    rows = narrow.prev()
    # Spark asks an RDD for its partitions only once.
    partitions = narrow.partitions()
    for number, (indices, place) in enumerate(tasks):
        partitions[number] = jvm.org.apache.spark.rdd.CoalescedRDDPartition(number, rows, indices, place)
