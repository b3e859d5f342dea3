"""What was assumed of a graph document, until Spark has analysed it in the job's first attempt: that each vertex keeps
state which could, and that bounds are possible which ask for more than such state would allow."""

from __future__ import annotations

from app.model.job_state.changes import Patch
from app.model.jobgraph import MAX_PARALLELISM_LIMIT, JobGraph
from app.model.requirements import Bounds
from app.model.state_partitions import Numbers, numbers_of, why_fixed, with_partitions
from app.model.statefulness import analysed
from app.model.value import evolve
from app.scheduler.adaptive import repartition, timeline
from app.scheduler.adaptive.draft import Draft
from app.scheduler.adaptive.events import GraphAnalysed
from app.scheduler.adaptive.state import JobState

_Bounds = tuple[tuple[str, Bounds], ...]


def creating_analysed(draft: Draft, event: GraphAnalysed) -> None:
    """The driver of the attempt that is being started tells what Spark says."""
    # A draft is changed in place.
    before = draft.state.graph
    told = {vertex: number for vertex, number in event.stateful if vertex in before.by_id}
    if draft.state.driver.fixed != event.fixed:
        draft.set_part("driver", fixed=event.fixed)
    if (graph := analysed(before, told)) is before:
        return
    # What bounds have asked for since the driver was given its graph is not there yet.
    graph = with_partitions(graph, tuple(one for one in told.items() if before.by_id[one[0]].is_assumed))
    draft.set(graph=graph)
    draft.set_part("partitions", numbers=numbers_of(graph) if draft.state.partitions.numbers else ())
    repartition.pass_over_stateless(draft)
    # A vertex that keeps state in a new version, and did not before.
    repartition.lower_plans(draft)
    _lower_bounds(draft, before)


def _lower_bounds(draft: Draft, before: JobGraph) -> None:
    """Bounds that are not possible become as high as they can be. ``before``: the graph with its assumptions."""
    state = draft.state

    def lowered(bounds: _Bounds) -> _Bounds:
        found = []
        for vertex, own in bounds:
            refused = vertex in state.graph.by_id and _refusal(state, before, vertex, own)
            found.append((vertex, own.within(state.graph.by_id[vertex].max_parallelism) if refused else own))
        return tuple(found)

    def of_patch(one: Patch) -> Patch:
        begun = one.begun and evolve(one.begun, former=lowered(one.begun.former))
        return evolve(one, bounds=lowered(one.bounds), begun=begun)

    if state.queued:
        draft.set(queued=tuple(of_patch(one) for one in state.queued))
    if (change := state.timeline.change) is not None:
        draft.set_timeline(change=evolve(change, former=lowered(change.former)))
    replacement = state.versions.replacement
    if replacement is not None:
        # What its document gave, and nobody has declared since.
        replacement = evolve(replacement, given=lowered(replacement.given))
        draft.set(versions=evolve(state.versions, replacement=replacement))
    numbers, gone = _possible_numbers(state)
    why = " ".join([*(told for one in state.requirements if (told := _refusal(state, before, *one))), *gone])
    if not why:
        return
    requirements = state.requirements.following(
        state.job_id,
        lowered(state.requirements.bounds),
        requested_by=None,
        reason=why,
        state_partitions=numbers,
    )
    draft.set_requirements(requirements)
    timeline.keep_open(draft)
    timeline.note(draft, why)


def _possible_numbers(state: JobState) -> tuple[Numbers, list[str]]:
    """Of the numbers of state partitions that were declared those that can be, and a sentence for each other one."""
    possible, refused = [], []
    for vertex_id, number in state.requirements.state_partitions:
        vertex = state.graph.by_id[vertex_id]
        why = None
        if number != vertex.max_parallelism:
            why = why_fixed(state.graph, state.options, vertex, number, state.driver.fixed)
        if why is None:
            possible.append((vertex_id, number))
        else:
            refused.append(f"The statePartitions {number} of {vertex.name} are not possible. {why}")
    return tuple(possible), refused


def _refusal(state: JobState, before: JobGraph, vertex_id: str, own: Bounds) -> str | None:
    """Why the upper bound of ``own`` is not possible; None if it is. ``before``: as in `_lower_bounds`."""
    vertex = state.graph.by_id[vertex_id]
    if own.upper <= vertex.max_parallelism:
        return None
    about = f"The upper bound of {vertex.name} is {vertex.max_parallelism} and not {own.upper}"
    if before.by_id[vertex_id].max_is_assumed and own.upper == MAX_PARALLELISM_LIMIT:
        return f"{about}, which stood for the highest one."
    why = why_fixed(state.graph, state.options, vertex, own.upper, state.driver.fixed)
    return None if why is None else f"{about}. {why}"
