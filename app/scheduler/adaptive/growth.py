"""The job graph grows while a program runs: with each query that it starts, by the vertices of that.

The driver has started the query when the scheduler hears of it, with parallelism from the slots that are held: so the
new vertices are part of the plan in force, and of one on its way, without another version. What they could have more is
then a rescale like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, TypeVar

from app.model.analysis import queries
from app.model.graphdoc import MAX_VERTICES
from app.model.graphdoc_build import DEFAULT_STATE_PARTITIONS
from app.model.graphdoc_program import ENDED_KEPT
from app.model.graphdoc_settings import MAX_BOUNDS
from app.model.job_state.changes import Change, Parallelism
from app.model.jobgraph import JobGraph, JobVertex, NamedBounds
from app.model.requirements import Bounds, bounds_at_first
from app.model.rescale import TriggerCause
from app.model.state_partitions import numbers_of
from app.model.status import JobStatus
from app.model.value import evolve
from app.scheduler.adaptive import timeline
from app.scheduler.adaptive.draft import Draft, change_plans
from app.scheduler.adaptive.events import Event, QueryEnded, QueryStarted
from app.scheduler.adaptive.program_queries import absent_keys, gone_from, vertices_of_queries
from app.scheduler.adaptive.state import Executing, JobState, Rescaling, StopWithSavepoint

T = TypeVar("T")

LATE_TIMER: Final = "late-queries"

LATE_MS: Final = 60_000
"""For so long after its first query in an attempt the slots of the other queries that it had are kept for a program."""


def take_query_event(draft: Draft, event: QueryStarted | QueryEnded) -> None:
    """The program has started a query, for the first time or again, or one has ended."""
    state, key = draft.state, event.query
    before = state.graph
    ended = tuple(other for other in before.ended if other != key)
    if isinstance(event, QueryStarted):
        if key not in state.driver.started:
            draft.set_started((*state.driver.started, key))
        if event.begins_anew and key in event.graph.by_id:
            _tell_of_beginning(draft, event.graph.by_id[key].name)
        left_out = tuple(other for other in before.left_out if other != key)
        if event.graph.vertices != before.vertices:
            _grow(draft, evolve(event.graph, ended=ended, left_out=left_out), event)
            return
        before = evolve(before, left_out=left_out) if left_out != before.left_out else before
    elif key in before.by_id:
        ended = (*ended, key)
    _rest(draft, evolve(before, ended=ended) if ended != before.ended else before)


def leave_out(draft: Draft) -> None:
    """What has not come in its time is not waited for."""
    graph = draft.state.graph
    _rest(draft, evolve(graph, left_out=(*graph.left_out, *_late_keys(draft.state))))


def hold_late_timer(draft: Draft, before: JobState, _: Event) -> None:
    """Bring the timer for queries that have not come yet in line with the state."""
    state = draft.state
    is_as_before = (
        state.driver.started is before.driver.started
        and state.graph is before.graph
        and state.phase is before.phase
    )
    if is_as_before:
        return
    waits = isinstance(state.phase, Executing) and _late_keys(state)
    since_ms = dict(state.status_since_ms)[JobStatus.RUNNING] if waits else 0
    draft.keep(LATE_TIMER, since_ms + LATE_MS if waits else None)


def _late_keys(state: JobState) -> list[str]:
    return [key for key in absent_keys(state) if key not in state.graph.left_out]


def _rest(draft: Draft, graph: JobGraph) -> None:
    """Other queries of ``graph`` need no slots."""
    if graph is not draft.state.graph:
        draft.set(graph=graph)


def _tell_of_beginning(draft: Draft, name: str) -> None:
    told = f"The query of {name} begins anew: its checkpoint was empty or gone."
    if draft.state.timeline.open is None:
        timeline.add_closed_record(draft, TriggerCause.INITIAL_SCHEDULE, told)
    else:
        timeline.note(draft, told)


def take_for_started(draft: Draft) -> None:
    """The attempt runs, by the word of a driver of the build before, when all that it knew was started."""
    if draft.state.is_before_query:
        draft.set_started(_not_ended(draft.state.graph))


def as_taken_up(state: JobState) -> JobState:
    """``state`` as the build before may have stored it, without the queries of an attempt in the process of another."""
    is_newest = state.status_since_ms[-1:] and state.status_since_ms[-1][0] is JobStatus.RUNNING
    runs = isinstance(state.phase, Executing | Rescaling | StopWithSavepoint) and is_newest
    return (
        evolve(state, driver=evolve(state.driver, started=_not_ended(state.graph)))
        if runs and state.is_before_query
        else state
    )


def _not_ended(graph: JobGraph) -> tuple[str, ...]:
    return tuple(query.key for query in queries(graph) if query.key not in graph.ended)


def _grow(draft: Draft, graph: JobGraph, event: QueryStarted) -> None:
    state = draft.state
    # What stands for a program without a query goes. A vertex that comes may have its id.
    is_first = state.graph.awaits_query
    before = {} if is_first else state.graph.by_id
    declared = {} if is_first else _within_state(state.requirements.as_dict(), before, graph)
    added = [vertex for vertex in graph.vertices if vertex.id not in before]
    graph = _without_oldest(graph, absent_keys(state), declared)
    given = dict(event.parallelism)
    running = state.coming_plan or state.plan or state.last_plan
    most = 1 if running is None else running.slot_count
    new = tuple((one.id, max(1, min(given.get(one.id, 1), one.max_parallelism, most))) for one in added)
    reactive = state.options.is_reactive
    bounds = {one.id: bounds_at_first(one, reactive=reactive) for one in added} | declared
    names = ", ".join(vertex.name for vertex in added) or "no vertex that was not there"
    why = f"The program has started a query with {names}."
    requirements = state.requirements.following(
        state.job_id,
        tuple((vertex.id, bounds[vertex.id]) for vertex in graph.vertices),
        requested_by=None,
        reason=why,
        state_partitions=tuple(
            pair for pair in state.requirements.state_partitions if pair[0] in graph.by_id
        ),
    )
    draft.set_graph(graph, requirements, gone=gone_from(state, graph, draft.now_ms))
    draft.set_part("partitions", numbers=numbers_of(graph) if state.partitions.numbers else ())
    draft.set_part("driver", started=tuple(key for key in state.driver.started if key in graph.by_id))
    _add_to_plans(draft, graph, new, is_first=is_first)
    if is_first and state.timeline.open is not None:
        # It is of the start of the job, which its first query is part of.
        timeline.draw_grown(draft, new)
    else:
        timeline.tell_grown(draft, new, why)


def _within_state(
    declared: Mapping[str, Bounds], before: Mapping[str, JobVertex], graph: JobGraph
) -> dict[str, Bounds]:
    """``declared``, where that of a vertex which has come with another state asks for no more than this allows."""
    most = {
        one.id: one.max_parallelism
        for one in graph.vertices
        if one.stateful and one.id in before and before[one.id].max_parallelism != one.max_parallelism
    }
    return {vertex: own.within(most[vertex]) if vertex in most else own for vertex, own in declared.items()}


def _add_to_plans(draft: Draft, graph: JobGraph, new: Parallelism, *, is_first: bool) -> None:
    """Each plan that is in force, on its way, or to be gone back to has the vertices of ``graph``, within its slots."""
    state = draft.state

    def carried(parallelism: Parallelism, most: int | None = None) -> Parallelism:
        # As the driver does when it takes a plan up: at no more than the largest number.
        most = most or max(count for _, count in parallelism)
        known = {vertex: min(count, most) for vertex, count in new}
        known |= {} if is_first else dict(parallelism)
        # A vertex that came with another state may have a smaller one.
        return tuple((one.id, min(known[one.id], one.max_parallelism)) for one in graph.vertices)

    change_plans(draft, carried)
    watch, taken = state.trial.watch, state.trial.taken_back
    if watch is not None:
        watch = evolve(watch, good=carried(watch.good), tried=carried(watch.tried))
        # All that it had changed may be gone.
        watch = None if is_first or watch.good == watch.tried else watch
    if taken is not None:
        # What was taken back limits only the vertices that it names.
        taken = evolve(taken, good=_within(taken.good, graph), tried=_within(taken.tried, graph))
        taken = None if is_first or taken.good == taken.tried else taken

    def of_graph(one: Change) -> Change:
        partitions = _within(one.former_partitions, graph)
        return evolve(one, former=_within(one.former, graph), former_partitions=partitions)

    waiting = (
        ()
        if is_first
        else [
            evolve(
                one,
                bounds=_within(one.bounds, graph),
                partitions=_within(one.partitions, graph),
                begun=one.begun and of_graph(one.begun),
            )
            for one in state.queued
        ]
    )
    draft.set(queued=tuple(one for one in waiting if one.bounds))
    draft.set_part("trial", watch=watch, taken_back=taken)
    if (change := state.timeline.change) is not None:
        draft.set_timeline(change=None if is_first else of_graph(change))


def _within(pairs: tuple[tuple[str, T], ...], graph: JobGraph) -> tuple[tuple[str, T], ...]:
    # A query that comes with other vertices has another place in the graph.
    known = dict(pairs)
    return tuple((vertex.id, known[vertex.id]) for vertex in graph.vertices if vertex.id in known)


def _without_oldest(graph: JobGraph, absent: list[str], declared: Mapping[str, Bounds]) -> JobGraph:
    """``graph`` without queries that ended long ago, and those that are ``absent`` before these: a program may name its
    queries otherwise in each attempt. Bounds that were ``declared`` for them wait for their names to come again."""
    idle = [*absent, *graph.ended]
    kept = idle[-ENDED_KEPT:]
    while kept and len(graph.vertices) - len(vertices_of_queries(graph, idle[: -len(kept)])) > MAX_VERTICES:
        kept = kept[1:]
    if len(kept) == len(idle):
        return graph
    gone = vertices_of_queries(graph, idle[: len(idle) - len(kept)])
    return replace(
        graph,
        vertices=tuple(vertex for vertex in graph.vertices if vertex.id not in gone),
        ended=tuple(key for key in graph.ended if key in kept),
        left_out=tuple(key for key in graph.left_out if key in kept),
        bounds=_with_bounds_of(graph, gone, declared),
    )


def _with_bounds_of(
    graph: JobGraph, gone: set[str], declared: Mapping[str, Bounds]
) -> tuple[NamedBounds, ...]:
    """The bounds that wait for vertices, with those of vertices that are ``gone`` and would get others by default."""
    waiting = {one.vertex: one for one in graph.bounds}
    for query in queries(graph):
        usual = Bounds(1, query.state_partitions or DEFAULT_STATE_PARTITIONS)
        for vertex in query.flow:
            own = declared.get(vertex.id)
            if vertex.id in gone and own is not None and (own != usual or vertex.name in waiting):
                waiting.pop(vertex.name, None)
                waiting[vertex.name] = NamedBounds(vertex.name, own.lower, own.upper)
    return tuple(waiting.values())[-MAX_BOUNDS:]
