"""The graph that a job is on its way to: its own, or the same with other state partitions."""

from __future__ import annotations

from app.model.jobgraph import JobGraph
from app.model.state_partitions import wanted_graph
from app.scheduler.adaptive.state import JobState


def goal_graph(state: JobState) -> JobGraph:
    """``state.graph`` with the state partitions that the requirements ask for.

    ``state.graph`` itself if it has them, if a redistribution has been begun (one after the other), and if one was
    given up under these requirements.
    """
    refused = state.repartition_refused
    if state.repartition is not None or (
        refused is not None and refused.requirements_uuid == state.requirements.uuid
    ):
        return state.graph
    return wanted_graph(state.graph, state.requirements)
