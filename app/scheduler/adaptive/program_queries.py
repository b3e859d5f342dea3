"""Which queries of a program have not come, have ended, or have left its graph."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from app.model.analysis import queries
from app.model.jobgraph import JobGraph
from app.scheduler.adaptive.state import JobState

GONE_MS: Final = 86_400_000
"""For so long a client may name a vertex that has left the graph: it may not have heard of that."""

GONE_KEPT: Final = 1_000


def absent_keys(state: JobState) -> list[str]:
    started = state.driver.started
    known = {*started, *state.graph.ended}
    return [query.key for query in queries(state.graph) if query.key not in known] if started else []


def absent_vertices(state: JobState) -> frozenset[str]:
    """The vertices of queries that the program had once and has not started in this attempt, while it has others."""
    return frozenset(vertices_of_queries(state.graph, absent_keys(state)))


def idle_keys(state: JobState) -> set[str]:
    """The queries that have ended or are absent."""
    return {*state.graph.ended, *absent_keys(state)}


def vertices_of_queries(graph: JobGraph, keys: Iterable[str]) -> set[str]:
    return {vertex.id for query in queries(graph) if query.key in keys for vertex in query.flow}


def gone_from(state: JobState, graph: JobGraph, now_ms: int) -> tuple[tuple[str, int], ...]:
    """`JobState.gone` once the job has ``graph``."""
    before = () if state.graph.awaits_query else state.graph.by_id
    left = [(vertex, now_ms) for vertex in before if vertex not in graph.by_id]
    kept = [one for one in state.gone if now_ms - one[1] < GONE_MS and one[0] not in graph.by_id]
    return (*kept, *left)[-GONE_KEPT:]
