"""Programs under test, whose graphs are made as the worker makes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.documents.program import parse_program
from app.model.graphdoc_program import graph_of, grown
from app.model.jobgraph import JobGraph, Role
from app.model.planned import PlannedVertex
from app.scheduler.adaptive.events import AttemptRunning, QueryStarted
from tests.unit.scheduler.driving import COOLDOWN, MAX_DELAY, STABILIZATION, Job

AT_ONCE: dict[str, object] = {
    COOLDOWN: "0 s",
    STABILIZATION: "0 s",
    MAX_DELAY: "0 s",
    "slotwise.in-place.cooldown": "0 s",
    "slotwise.in-place.resource-stabilization-timeout": "0 ms",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": 1000,
    "restart-strategy.fixed-delay.delay": "1 s",
}

COUNTING = (
    PlannedVertex("in", Role.SOURCE, "kafka"),
    PlannedVertex("counts", Role.OPERATOR, "Aggregate", ("in",), True, 12),
    PlannedVertex("out", Role.SINK, "parquet", ("counts",)),
)
COPYING = (PlannedVertex("raw", Role.SOURCE, "kafka"), PlannedVertex("copy", Role.SINK, "json", ("raw",)))


def program(**document: Any) -> JobGraph:
    """Before its first query."""
    return graph_of(parse_program({"name": "words", "script": "job.py", **document}))


def limited(upper: int) -> dict[str, dict[str, int]]:
    """Bounds of a document for all vertices of all queries."""
    return {one.name: {"upperBound": upper} for one in (*COUNTING, *COPYING)}


def begins(job: Job) -> Job:
    """The driver says that the program is about to run."""
    return job.do(AttemptRunning(job.state.attempt, begun=True))


def begun(held: int = 2, upper: int = 2, **document: Any) -> Job:
    """No query was started yet. All vertices have ``upper`` as their upper bound."""
    graph = program(**{"bounds": limited(upper), **document})
    return begins(Job(graph, upper=upper, options=AT_ONCE).submit(held))


def starts_query(job: Job, vertices: Sequence[PlannedVertex] = COUNTING, parallelism: int = 2) -> Job:
    """As the worker tells of it."""
    graph = grown(job.state.graph, vertices)
    ids = {one.name: one.id for one in graph.vertices}
    at = tuple((ids[one.name], parallelism) for one in vertices)
    job.do(QueryStarted(job.state.attempt, ids[vertices[-1].name], graph, at))
    job.graph = job.state.graph
    return job


def names(job: Job) -> list[str]:
    return [one.name for one in job.state.graph.vertices]


def declared(job: Job) -> dict[str, tuple[int, int]]:
    """The bounds in force by name."""
    bounds = job.state.requirements.as_dict()
    return {one.name: (bounds[one.id].lower, bounds[one.id].upper) for one in job.state.graph.vertices}
