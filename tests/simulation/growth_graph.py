"""What the graph of a program has to be, worked out from what its drivers told of its queries (docs/programs.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from app.model.jobgraph import JobGraph, PlannedSpec, Role
from tests.simulation.programs import ENDED_KEPT, ProgramQuery

Flow = frozenset[tuple[str, str]]
"""The vertices of a query: their ids, and what they are in Spark's words."""


@dataclass(frozen=True)
class Told:
    """A report of a driver that a query was started or has ended."""

    attempt: int
    seq: int
    query: ProgramQuery
    started: bool


def awaits(graph: JobGraph) -> bool:
    """Whether no query of a program is known."""
    return not any(vertex.is_sink for vertex in graph.vertices)


def stands_for_program(graph: JobGraph) -> list[str]:
    """The vertices that are no part of a query."""
    found = [(vertex, vertex.operation) for vertex in graph.vertices]
    return [vertex.id for vertex, of in found if isinstance(of, PlannedSpec) and of.role is Role.PROGRAM]


def flows_of(graph: JobGraph) -> dict[str, Flow]:
    """The vertices of each query, by the id of its sink. Queries of programs share none."""
    found: dict[str, Flow] = {}
    for sink in graph.vertices:
        if sink.is_sink:
            own = [sink]
            for vertex in own:
                own += [graph.by_id[edge.vertex_id] for edge in vertex.inputs]
            found[sink.id] = frozenset((one.id, _operator(one.operation)) for one in own)
    return found


def flow_of(query: ProgramQuery) -> Flow:
    ids = query.ids
    return frozenset((ids[one.name], one.operator) for one in query.planned(None))


def _operator(operation: object) -> str:
    return operation.operator if isinstance(operation, PlannedSpec) else ""


@dataclass(frozen=True)
class Graph:
    """``flows``: of all queries. ``others``: vertices of none. ``ended``: keys of queries, in the order in which they
    have ended. ``order``: all keys. ``started``: those that ``attempt`` has started; the others that have not ended are
    absent."""

    flows: dict[str, Flow]
    others: frozenset[str]
    ended: tuple[str, ...]
    order: tuple[str, ...] = field(default=(), compare=False)
    started: tuple[str, ...] = field(default=(), compare=False)
    attempt: int = field(default=0, compare=False)

    @classmethod
    def of(cls, graph: JobGraph, started: tuple[str, ...] = (), attempt: int = 0) -> Graph:
        flows = flows_of(graph)
        of_queries = {vertex for flow in flows.values() for vertex, _ in flow}
        return cls(
            flows, frozenset(graph.by_id.keys() - of_queries), graph.ended, tuple(flows), started, attempt
        )

    @property
    def vertices(self) -> frozenset[str]:
        return self.others.union(*({vertex for vertex, _ in flow} for flow in self.flows.values()))

    def after(self, told: Told) -> Graph:
        """What it is when that report is taken down."""
        key = told.query.key
        ended = tuple(one for one in self.ended if one != key)
        if not told.started:
            return replace(self, ended=(*ended, key) if key in self.flows else ended)
        before = self.started if told.attempt == self.attempt else ()
        started = (*(one for one in before if one != key), key)
        flow = flow_of(told.query)
        if self.flows.get(key) == flow:
            return replace(self, ended=ended, started=started, attempt=told.attempt)
        absent = tuple(one for one in self.order if one not in started and one not in self.ended)
        gone = (*absent, *ended)[:-ENDED_KEPT]
        # Nothing but queries is left of a program whose first one has come.
        flows = {one: own for one, own in self.flows.items() if one not in gone and one != key}
        order = (*(one for one in self.order if one not in gone and one != key), key)
        kept = tuple(one for one in ended if one not in gone)
        return Graph({**flows, key: flow}, frozenset(), kept, order, started, told.attempt)

    def after_all(self, told: Sequence[Told]) -> Graph:
        found = self
        for one in told:
            found = found.after(one)
        return found
