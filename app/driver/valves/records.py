"""How many records each vertex took and gave in a batch, by the operators of its plan.

Of a graph document they are those of the graph: a vertex that gives a record for each that it takes gives as many as it
takes, wherever Spark has put its filter. Spark moves filters down, and makes one of two: they are counted at the first
vertex below that changes the number of records, else where the graph has them. The vertices of a program are its
sources, what keeps state, and its sinks. All that it does in between belongs to the vertex before, which gives what is
left.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from app.driver.valves.operators import Operator, added, below, total
from app.model.analysis import Query
from app.model.jobgraph import PlannedSpec

_STATE: Final = ("State", "Streaming", "HashAggregate", "ObjectHashAggregate", "SortAggregate", "Sessions")


class Count(NamedTuple):
    """``rows`` is None if nobody has counted them. ``by_task``: of each task in which they were counted; empty if it is
    not known."""

    rows: int | None
    by_task: Sequence[int] = ()

    @classmethod
    def at(cls, operators: Iterable[Operator]) -> Count:
        return cls.sum_of(cls(each.rows, each.rows_by_task) for each in operators)

    @classmethod
    def sum_of(cls, counts: Iterable[Count]) -> Count:
        found = list(counts)
        return cls(total(each.rows for each in found), added(each.by_task for each in found))


_UNKNOWN: Final = Count(None)


@dataclass(slots=True)
class Records:
    """By vertex id."""

    taken: dict[str, Count] = field(default_factory=dict)
    given: dict[str, Count] = field(default_factory=dict)

    def taken_by(self, vertex_id: str) -> Count:
        return self.taken.get(vertex_id, _UNKNOWN)

    def given_by(self, vertex_id: str) -> Count:
        return self.given.get(vertex_id, _UNKNOWN)

    def correct(self, better: Records) -> None:
        """Take what ``better`` knows."""
        for known, other in ((self.taken, better.taken), (self.given, better.given)):
            known.update({vertex_id: each for vertex_id, each in other.items() if each.rows is not None})


def records_of(
    query: Query, operators: Sequence[Operator], changing: Collection[str], read: Mapping[str, int]
) -> Records:
    """``changing``: the vertices of a document that may give more or fewer records than they take. ``read``: what
    sources have read, as far as it is known."""
    valves: dict[str, list[Operator]] = {}
    for operator in operators:
        if (valve := operator.valve) is not None:
            valves.setdefault(valve.vertex_id, []).append(operator)
    found = Records()
    for source in query.streams:
        leaves = [each for valve in _ends(valves, source.id) for each in below(valve) if not each.children]
        counted = Count.at(leaves)
        found.taken[source.id] = counted._replace(rows=read.get(source.id, counted.rows))
    if isinstance(query.sink.operation, PlannedSpec):
        _of_program(query, valves, found)
    else:
        _of_document(query, valves, changing, found)
    return found


def _ends(valves: Mapping[str, Sequence[Operator]], vertex_id: str) -> list[Operator]:
    """The valves of a vertex that stand behind it."""
    return [each for each in valves.get(vertex_id, ()) if each.valve and not each.valve.is_front]


def _of_document(
    query: Query, valves: Mapping[str, Sequence[Operator]], changing: Collection[str], found: Records
) -> None:
    for vertex in query.flow:
        if not vertex.is_source:
            found.taken[vertex.id] = _given_to(query, vertex.id, found)
        if vertex.is_sink:
            break
        taken = found.taken[vertex.id]
        counted = Count.at(_ends(valves, vertex.id))
        if vertex.id not in changing or (taken.rows == 0 and not vertex.stateful):
            # In the tasks of its own stage, though: those of the vertex before may be others.
            counted = counted._replace(rows=taken.rows)
        found.given[vertex.id] = counted


def _given_to(query: Query, vertex_id: str, found: Records) -> Count:
    (vertex,) = (each for each in query.flow if each.id == vertex_id)
    return Count.sum_of(found.given_by(edge.vertex_id) for edge in query.streaming_inputs(vertex))


def _of_program(query: Query, valves: Mapping[str, Sequence[Operator]], found: Records) -> None:
    for vertex in query.flow[:-1]:
        own = valves.get(vertex.id, ())
        if not vertex.is_source:
            found.taken[vertex.id] = Count.at(each for valve in own for each in _entries(valve))
        found.given[vertex.id] = Count.at(dict.fromkeys(map(_end, own)))
    sink = query.sink.id
    taken = Count.at(each.children[0] for each in valves.get(sink, ()))
    found.taken[sink] = taken if taken.rows is not None else _given_to(query, sink, found)


def _entries(valve: Operator) -> list[Operator]:
    """What the operators that keep the state of ``valve``'s vertex get their rows from."""
    found: list[Operator] = []
    waiting: list[tuple[Operator, Operator | None]] = [(child, None) for child in valve.children]
    while waiting:
        node, entry = waiting.pop()
        if not node.children or node.valve is not None:
            # The part of the plan that is the vertex' own ends here.
            if entry is not None and entry not in found:
                found.append(entry)
            continue
        waiting += [(child, child if _is_of_state(node) else entry) for child in node.children]
    return found


def _end(valve: Operator) -> Operator:
    """The last operator whose rows all are those of ``valve``'s vertex."""
    last = valve
    assert valve.valve is not None
    own_id = valve.valve.vertex_id
    for node in valve.above:
        # A source has two, one over the other.
        is_others = node.valve is not None and node.valve.vertex_id != own_id
        if is_others or _is_of_state(node) or node.kind == "Union":
            break
        last = node
    return last


def _is_of_state(node: Operator) -> bool:
    return node.keeps_state or any(part in node.kind for part in _STATE)
