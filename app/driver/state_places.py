"""Keeps the state partitions of a query where they are: on the executors of a cluster that have them open.

Spark sends the task of a state partition to the executor that has it open. But a task of ours is for several state
partitions (``coalesce``), and of their places Spark then keeps the hosts only. So on a host with several executors each
batch would move most of the state, which is opened anew from the checkpoint, and a newcomer would move all of it. Here
each task is given one executor, and its partitions are those that it has had, as far as the shares stay even.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from app.driver.scala import scala_option

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Share:
    """The state partitions of one task, and the executor that it should run on; None: any."""

    executor: int | None
    partitions: tuple[int, ...]


Board = dict[str, tuple[Share, ...]]
"""The shares of each query of an attempt, by its key."""


def shares(
    count: int,
    width: int,
    executors: Sequence[int],
    owners: Mapping[int, int],
    busy: Mapping[int, int] = MappingProxyType({}),
) -> tuple[Share, ...]:
    """Divide ``count`` state partitions among ``width`` tasks, evenly, with as few moves as that allows.

    ``owners``: the executor that has a partition. Of more executors than tasks those count that have the most, then
    those with the fewest shares of other queries (``busy``), then the oldest, which are given up last.
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
    found = [kept[executor][:size] for executor, size in zip(chosen, sizes, strict=False)]
    found += [[] for _ in range(width - len(chosen))]
    left = iter(sorted(set(range(count)) - {one for part in found for one in part}))
    for part, size in zip(found, sizes, strict=True):
        while len(part) < size:
            part.append(next(left))
    places: list[int | None] = [*chosen, *[None] * (width - len(chosen))]
    made = [Share(place, tuple(sorted(part))) for place, part in zip(places, found, strict=True)]
    return tuple(sorted(made, key=lambda share: share.partitions))


class StatePlaces:
    """Of one query. For the query's thread."""

    def __init__(self, key: str, executors: Callable[[], Sequence[int]], board: Board) -> None:
        """``executors`` tells those that may have tasks of queries now. ``board`` is that of all queries."""
        self._key = key
        self._executors = executors
        self._board = board
        self._owners: dict[int, int] = {}
        self._shares: tuple[Share, ...] = ()
        # What the JVM is given of the shares, kept as long as they are the same.
        self._java: list[tuple[Any, Any]] = []

    def coalesce(self, frame: DataFrame, width: int) -> DataFrame:
        """``frame``, whose partitions are those of the state, as ``width`` tasks, each in its place."""
        from pyspark.sql import DataFrame

        session = frame.sparkSession
        jvm: Any = session.sparkContext._jvm
        rows = frame._jdf.queryExecution().toRdd()
        narrow = rows.coalesce(width, False, scala_option(jvm, None), None)
        made = shares(rows.getNumPartitions(), width, self._executors(), self._owners, self._busy())
        if made != self._shares:
            self._take(made, session.sparkContext._gateway, jvm)
        partitions = narrow.partitions()
        for number, (indices, place) in enumerate(self._java):
            partitions[number] = jvm.org.apache.spark.rdd.CoalescedRDDPartition(number, rows, indices, place)
        own: Any = session._jsparkSession
        return DataFrame(own.internalCreateDataFrame(narrow, frame._jdf.schema(), False), session)

    def _busy(self) -> Counter[int]:
        others = [made for key, made in list(self._board.items()) if key != self._key]
        return Counter(share.executor for made in others for share in made if share.executor is not None)

    def _take(self, made: tuple[Share, ...], gateway: Any, jvm: Any) -> None:
        owners = {
            one: share.executor for share in made for one in share.partitions if share.executor is not None
        }
        moved = sum(1 for one, owner in self._owners.items() if owners.get(one) != owner)
        if moved:
            log.info("%d of %d state partitions move to another executor", moved, len(self._owners))
        self._owners, self._shares, self._java = owners, made, []
        self._board[self._key] = made
        for share in made:
            indices = gateway.new_array(jvm.int, len(share.partitions))
            for position, partition in enumerate(share.partitions):
                indices[position] = partition
            # The executor alone counts, its host would be a second choice.
            place = None if share.executor is None else f"executor_any_{share.executor}"
            self._java.append((indices, scala_option(jvm, place)))
