"""Vertices that Spark was seen to run with other tasks than their plan says: they are not tried in place again.

They are known as long as the job has this version and this owner. A new owner hears of them with the next batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from app.model.jobgraph import InPlace, JobGraph
from app.scheduler.adaptive.draft import Draft
from app.scheduler.adaptive.events import PlanApplied
from app.scheduler.adaptive.state import Rescaling


def remember(draft: Draft, vertex_id: str) -> bool:
    """The parallelism of this vertex changes by a restart from now on. Returns whether that is new."""
    graph = draft.state.graph
    vertex = graph.by_id.get(vertex_id)
    if vertex is None or vertex.in_place is InPlace.QUERY_RESTART:
        return False
    known = replace(vertex, in_place=InPlace.QUERY_RESTART)
    vertices = tuple(known if each is vertex else each for each in graph.vertices)
    draft.set(graph=replace(graph, vertices=vertices))
    return True


def needs_restart(draft: Draft, event: PlanApplied) -> bool:
    """Whether a restart is to bring about what the plan on its way has not.

    Not for a vertex that was known and keeps its number: a restart has not helped it, and it is not rescaled.
    """
    phase, plan = draft.state.phase, draft.state.plan
    if not event.not_followed or draft.state.is_blind:
        return False
    assert isinstance(phase, Rescaling) and plan is not None
    vertex_id = event.not_followed_vertex
    is_new = remember(draft, vertex_id)
    before, after = dict(plan.parallelism), dict(phase.target.parallelism)
    return is_new or vertex_id not in before or before[vertex_id] != after[vertex_id]


def why_not_in_place(graph: JobGraph, now: Mapping[str, int], then: Mapping[str, int]) -> str:
    """The sentence on the vertex because of which a change from ``now`` to ``then`` is made by a restart; empty if it
    is none."""
    for vertex in graph.vertices:
        if vertex.in_place is not InPlace.YES and now[vertex.id] != then[vertex.id]:
            return f"Vertex {vertex.name} is not rescaled in place: Spark did not run it as its plan said."
    return ""
