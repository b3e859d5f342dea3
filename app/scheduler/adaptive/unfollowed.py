"""Vertices whose number of tasks in Spark did not follow their plan: they are not rescaled in place again.

The list is kept as long as the job has this version and this owner. A new owner learns it from the next
batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from app.model.jobgraph import InPlace, JobGraph
from app.scheduler.adaptive.draft import Draft
from app.scheduler.adaptive.events import PlanApplied
from app.scheduler.adaptive.state import Rescaling


def remember(draft: Draft, told: Iterable[tuple[str, str]]) -> set[str]:
    """The parallelism of these vertices changes by a restart from now on. Returns the ids of those that are new.
    ``told``: as in `PlanApplied.not_followed`."""
    graph = draft.state.graph
    known = {each.id for each in graph.vertices if each.in_place is InPlace.QUERY_RESTART}
    new = (graph.by_id.keys() & dict(told)) - known
    if new:
        vertices = (
            replace(each, in_place=InPlace.QUERY_RESTART) if each.id in new else each
            for each in graph.vertices
        )
        draft.set(graph=replace(graph, vertices=tuple(vertices)))
    return new


def why_restart(draft: Draft, event: PlanApplied) -> str:
    """What is wrong with the vertices because of which a restart is to bring about what the plan on its way has not;
    empty if there are none.

    Not for a vertex that was known and keeps its number: a restart has not helped it, and it is not rescaled.
    """
    plan = draft.state.plan
    if not event.not_followed or draft.state.cluster_unreachable:
        return ""
    assert plan is not None
    new = remember(draft, event.not_followed)
    before, after = dict(plan.parallelism), dict(draft.phase_as(Rescaling).target.parallelism)
    return " ".join(
        sentence
        for vertex_id, sentence in event.not_followed
        if vertex_id in new or before.get(vertex_id) != after.get(vertex_id)
    )


def why_not_in_place(graph: JobGraph, now: Mapping[str, int], then: Mapping[str, int]) -> str:
    """The sentence on the vertex because of which a change from ``now`` to ``then`` is made by a restart; empty if it
    is none."""
    for vertex in graph.vertices:
        if vertex.in_place is not InPlace.YES and now[vertex.id] != then[vertex.id]:
            return f"Vertex {vertex.name} is not rescaled in place: Spark did not run it as its plan said."
    return ""
