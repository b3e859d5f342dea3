"""Sets the number of tasks of each vertex of a running query, by valves, and reads what a batch was planned with."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark import SparkContext
from pyspark.sql.streaming.query import StreamingQuery

from app.driver.failures import DriverError
from app.driver.valves.insert import Label
from app.driver.valves.shape import AS_MANY
from app.driver.valves.spark import Left, Valve, execution_of, left_in, numbers_of, valves_in
from app.model.analysis import Query


@dataclass(frozen=True, slots=True)
class Rows:
    """What a valve is in the plan of a batch: an RDD of so many partitions. ``shuffles``: rows are spread over them.
    ``is_front``: it stands before its vertex, and what is below it belongs to another one."""

    vertex_id: str
    rdd_id: int
    partitions: int
    shuffles: bool = False
    is_front: bool = False


class Valves:
    """The valves of one query. One thread may set them while another reads what a batch had."""

    def __init__(
        self, started: StreamingQuery, query: Query, parallelism: Mapping[str, int] | None = None
    ) -> None:
        """``started`` is ``query`` with valves in its plan, at these numbers. Without them no rows are spread before
        they are set."""
        self._query = query
        self._execution = execution_of(started)
        self._jvm: Any = SparkContext._jvm
        self._lock = threading.Lock()
        self._wanted: Mapping[str, int] | None = None
        self._numbers = parallelism
        # The sources whose rows are spread, and where: those of each by the place of the valve.
        self._spread: frozenset[str] = frozenset()
        self._fronts: dict[int, str] = {}
        # Each repartition of the streaming plan in its order; without a label, the job itself has put it there.
        self._all: list[tuple[Label | None, Valve]] = []
        self._forms: dict[str, list[int]] = {}

    @property
    def sources(self) -> list[str]:
        """The sources in the order in which Spark tells of them: that of the leaves of its plan."""
        known = {vertex.id for vertex in self._query.streams}
        ids = [label.vertex_id for label, _ in self._all if label is not None and label.vertex_id in known]
        return list(dict.fromkeys(ids))

    @property
    def changing(self) -> set[str]:
        """The vertices of a document with an operator that may give more or fewer rows than it gets."""
        found = set()
        for label, valve in self._all:
            if not valve.kinds <= AS_MANY:
                while label is None and valve.above >= 0:
                    label, valve = self._all[valve.above]
                if label is not None and label.vertex_id:
                    found.add(label.vertex_id)
        return found

    # -- before a batch

    def set(self, parallelism: Mapping[str, int]) -> bool:
        """Let the next batch that is planned run at these numbers, by vertex id.

        Returns whether it could be done now. As long as Spark prepares the query it cannot: then `apply_pending` does
        it. A batch that is being planned in this moment may get a part of it: `in_force` tells.
        """
        with self._lock:
            self._wanted = dict(parallelism)
        return self.apply_pending()

    def spread(self, sources: Collection[str]) -> None:
        """Let the rows of these sources, and of no others, be spread from the next batch that is planned."""
        with self._lock:
            if self._spread == frozenset(sources):
                return
            self._spread = frozenset(sources)
            if self._wanted is None:
                self._wanted = self._numbers
        self.apply_pending()

    def spread_at(self, parallelism: Mapping[str, int]) -> dict[str, tuple[str, str]]:
        """Where rows can be spread: the label of the valve of each such source, by its id, and that of the one behind
        it, which lets them pass at these numbers of tasks."""
        found = {}
        for place, source_id in self._fronts.items():
            label = self._all[place][0]
            if label is not None and not label.setting(parallelism)[1]:
                found[source_id] = (Label(source_id).text, label.text)
        return found

    def apply_pending(self) -> bool:
        """Do what could not be done before; whether it is done.

        Raises:
            DriverError: the plan has no valve for a vertex.
        """
        with self._lock:
            if not self._all:
                self._all = self._find()
                self._fronts = self._find_fronts()
            mine = [(place, label) for place, (label, _) in enumerate(self._all) if label is not None]
            if self._wanted is not None and mine:
                for place, label in mine:
                    is_spread = self._fronts.get(place) in self._spread
                    self._all[place][1].set(*label.setting(self._wanted, is_spread=is_spread))
                self._numbers, self._wanted = self._wanted, None
            return bool(mine)

    def _find(self) -> list[tuple[Label | None, Valve]]:
        found = [
            (Label.of(valve.label) if valve.label else None, valve) for valve in valves_in(self._execution)
        ]
        if found:
            known = {label.vertex_id for label, _ in found if label is not None}
            for vertex in self._query.flow:
                if vertex.id not in known:
                    raise DriverError(
                        f"Spark's plan has no valve for vertex {vertex.name}.", vertex=vertex.name
                    )
        return found

    def _find_fronts(self) -> dict[int, str]:
        sources = {vertex.id for vertex in self._query.streams}
        found = {}
        for label, valve in self._all:
            if label is None or label.before is not None or label.vertex_id not in sources or valve.above < 0:
                continue
            front = self._all[valve.above][0]
            if (
                front is not None
                and front.vertex_id
                and front.before == label.vertex_id
                and not front.spreads
            ):
                found[valve.above] = label.vertex_id
        return found

    # -- of a batch

    def planned(self) -> Any:
        """What Spark has planned for the latest batch, an ``IncrementalExecution``; None before the first."""
        return self._execution.lastExecution()

    def in_force(self, planned: Any) -> dict[str, int] | None:
        """What a batch was planned with, by vertex id; 0 where two valves of a vertex differ, which no plan says.

        The numbers may be in part those of before `set` and in part those after it. None: it cannot be told.
        """
        if planned is None or not self.apply_pending():
            return None
        numbers = numbers_of(planned)
        if len(numbers) != len(self._all):
            return None
        answer: dict[str, int] = {}
        for (label, _), number in zip(self._all, numbers, strict=True):
            if label is not None and (vertex_id := label.vertex_id):
                answer[vertex_id] = number if answer.get(vertex_id, number) == number else 0
        return answer

    def stages_of_state(self, planned: Any) -> dict[str, list[Any]]:
        """The narrow RDDs that the valves of a batch are in the stage that begins with each stateful vertex, by its id,
        inputs first. Behind the first one there may be some of the next stage, if Spark shuffles by itself in
        between."""
        left = {place: each for place, each in self._left_in(planned)[1] if place is not None}
        vertex_ids = [label.vertex_id if label is not None else "" for label, _ in self._all]
        stateful = {vertex.id for vertex in self._query.stateful}
        found: dict[str, list[Any]] = {}
        for first, each in left.items():
            if (vertex_id := vertex_ids[first]) not in stateful or each.shuffles:
                continue
            found[vertex_id] = [each.rdd]
            at = first
            while (at := self._all[at][1].above) >= 0 and vertex_ids[at] not in stateful:
                if at in left and left[at].shuffles:
                    break
                found[vertex_id] += [left[at].rdd] if at in left else []
        return found

    def read(self, planned: Any) -> tuple[dict[str, Rows], list[str]]:
        """What became of each valve in a batch, by label, inputs first; Spark leaves out those without data. And the
        vertices whose valve is not in its plan although rows came there, if it has read some, so that their tasks are
        not those that it says."""
        numbers, every = self._left_in(planned)
        found: dict[str, Rows] = {}
        for place, left in reversed(every):
            label, valve = self._all[place] if place is not None else (None, None)
            if label is not None and valve is not None and label.vertex_id:
                rdd = left.rdd
                partitions = int(rdd.getNumPartitions())
                found[valve.label] = Rows(
                    label.vertex_id,
                    int(rdd.id()),
                    partitions,
                    shuffles=left.shuffles,
                    is_front=label.before is not None,
                )
        return found, self._removed(numbers, every)

    def _removed(self, numbers: tuple[int, ...], found: list[tuple[int | None, Left]]) -> list[str]:
        if not numbers or any(place is None for place, _ in found):
            return []
        present = {place: left.shuffles for place, left in found if place is not None}
        stateful = {vertex.id for vertex in self._query.stateful}
        places = [
            Place(valve.above, number, label is not None and label.vertex_id in stateful)
            for (label, valve), number in zip(self._all, numbers, strict=True)
        ]
        labels = [self._all[place][0] for place in removed(places, present)]
        return [each.vertex_id for each in labels if each is not None and each.vertex_id]

    def _left_in(self, planned: Any) -> tuple[tuple[int, ...], list[tuple[int | None, Left]]]:
        """The numbers that a batch was planned with, and which repartitions are left in it; None: it may be any."""
        if planned is None or not self.apply_pending():
            return (), []
        numbers = numbers_of(planned)
        if len(numbers) != len(self._all):
            return (), []
        left = left_in(self._jvm, planned, self._forms)
        places = matched(
            [(valve.label, number) for (_, valve), number in zip(self._all, numbers, strict=True)],
            [(each.label, each.number) for each in left],
        )
        return numbers, list(zip(places, left, strict=True))


@dataclass(frozen=True, slots=True)
class Place:
    """A repartition of a plan. ``above``: as in `Valve.above`. ``holds_state``: Spark shuffles below it."""

    above: int
    number: int
    holds_state: bool = False


def removed(places: Sequence[Place], present: Mapping[int, bool]) -> list[int]:
    """Which repartitions are missing in the physical plan of a batch with rows that has others below and above them, of
    which none does the same. ``present``: those that it has, and whether they shuffle.

    Spark leaves out what gets no rows: with several sources it may be that one of them has none.
    """
    below: list[list[int]] = [[] for _ in places]
    for at, each in enumerate(places):
        if each.above >= 0:
            below[each.above].append(at)
    has_input = set()
    for at in present:
        while (at := places[at].above) >= 0:
            has_input.add(at)
    ends = [at for at, inputs in enumerate(below) if not inputs]
    if len(ends) == 1:
        has_input.update(ends)

    def is_replaced(at: int) -> bool:
        number, up = places[at].number, _present_above(places, present, at)
        if up >= 0 and not present[up] and places[up].number == number:
            return True
        while at not in present and len(below[at]) == 1 and not places[at].holds_state:
            (at,) = below[at]
        return at in present and places[at].number == number

    return [
        at
        for at, each in enumerate(places)
        if at not in present
        and at in has_input
        and (each.above < 0 or _present_above(places, present, at) >= 0)
        and not is_replaced(at)
    ]


def _present_above(places: Sequence[Place], present: Mapping[int, bool], at: int) -> int:
    while (at := places[at].above) >= 0 and at not in present:
        pass
    return at


def matched(planned: Sequence[tuple[str, int]], left: Sequence[tuple[str, int]]) -> list[int | None]:
    """For each repartition that is ``left`` in a physical plan, which of the ``planned`` ones it is; None if it may
    be several. They are labels and numbers.

    Rules of Spark's that make an operator anew lose its label. The order stays, so between two that have theirs it is
    clear which is which, if none is missing there.
    """
    places = {label: place for place, (label, _) in enumerate(planned) if label}
    answer = [places.get(label) for label, _ in left]
    begin, planned_begin = 0, 0
    for end in [*(at for at, place in enumerate(answer) if place is not None), len(left)]:
        place = answer[end] if end < len(left) else None
        planned_end = len(planned) if place is None else place
        gap = range(planned_begin, planned_end)
        if len(gap) == end - begin and all(
            planned[one][1] in (0, left[other][1]) for one, other in zip(gap, range(begin, end), strict=True)
        ):
            answer[begin:end] = gap
        begin, planned_begin = end + 1, planned_end + 1
    return answer
