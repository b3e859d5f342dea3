"""Replacement of the version in force by a new version, which is taken back if it does not run (ADR 35).

Here is what a change of version means for the state. The phases say when it comes, and `trial` whether it stays.
It comes into force only when nothing of an attempt is alive, so that no attempt sees another graph than it was
started with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

from app.model.graphdoc_program import with_queries_of
from app.model.graphdoc_settings import MAX_BOUNDS
from app.model.job_state.changes import Author
from app.model.job_state.failures import RestartState
from app.model.job_state.versions import JobVersion, Replacement, VersionNote, Versions
from app.model.jobgraph import JobGraph, JobVertex
from app.model.requirements import Bounds
from app.model.rescale import TriggerCause
from app.model.state_partitions import numbers_of, with_partitions
from app.model.statefulness import assumed_as
from app.model.value import evolve
from app.scheduler.adaptive import bounds_queue, repartition, timeline
from app.scheduler.adaptive.draft import Draft
from app.scheduler.adaptive.events import (
    EnvironmentReady,
    VersionRequested,
)
from app.scheduler.adaptive.program_queries import gone_from
from app.scheduler.adaptive.state import Canceling, Created, Failing, Finished, JobState, StopWithSavepoint
from app.scheduler.adaptive.version_outcome import change_replacement, end_replacement, tell_outcome

MOST_NOTES: Final = 50

Coming = VersionRequested | EnvironmentReady
"""A new version is to come, or may come now."""


def may_come(state: JobState) -> bool:
    """Whether a new version may take the place of that in force now; else it has to wait, or is refused."""
    redistributes = state.partitions.repartition is not None and not repartition.is_left_to_idle(state)
    return not (
        redistributes or isinstance(state.phase, Created | StopWithSavepoint | Failing | Canceling | Finished)
    )


def take_up(draft: Draft, event: Coming) -> bool:
    """Note a new version, or that what it is to run in was built. Whether it comes now: then it waits until nothing of
    an attempt is alive, and the record of the change is opened."""
    if isinstance(event, VersionRequested):
        _note_requested(draft, event)
        if draft.state.versions.builds is not None:
            return False
    elif event.number != draft.state.versions.builds:
        return False
    elif event.error:
        _refuse(draft, event)
        return False
    repartition.pass_over_idle(draft)
    if draft.state.partitions.repartition is not None:
        raise draft.refuse("The state of the job is being redistributed; replace the job when that is done")
    change_replacement(draft, stage="Waits")
    _open_record(draft)
    return True


def _note_requested(draft: Draft, event: VersionRequested) -> None:
    number = event.version.number
    if draft.state.versions.builds is not None:
        # It has not been noticed by anybody yet.
        end_replacement(draft, "DROPPED", f"Version {number} was asked for first.")
    state = draft.state
    before = state.versions
    if before.replacement is not None:
        raise draft.refuse(f"Version {before.replacement.number} of the job has not proven itself yet")
    if number <= before.newest:
        raise draft.refuse(f"There is a version {before.newest} of the job already")
    stage: Literal["Builds", "Waits"] = "Builds" if event.version.graph.runtime.is_own else "Waits"
    note = VersionNote(number, draft.now_ms, "STARTING", event.requested_by, draft.now_ms)
    notes = before.notes or (
        VersionNote(before.current, min(at for _, at in state.status_since_ms), "IN_FORCE"),
    )
    draft.set(
        versions=Versions(
            before.current,
            number,
            Replacement(number, before.current, stage),
            (*notes, note)[-MOST_NOTES:],
        ),
        spare=event.version,
    )


def _open_record(draft: Draft) -> None:
    versions = draft.state.versions
    by = versions.notes[-1].requested_by
    timeline.overtake_record(draft)
    message = f"Version {versions.newest} of the job, in the place of version {versions.current}"
    message += f", asked for by {by}." if by else "."
    # Not by whoever declared the bounds that are in force until then, and not for their reason.
    timeline.open_record(draft, TriggerCause.UPDATE_REQUIREMENT, message=message, asked=Author(by))


def _refuse(draft: Draft, event: EnvironmentReady) -> None:
    """What a version is to run in cannot be had. The version before has not noticed."""
    end_replacement(draft, "TAKEN_BACK", event.error)
    message = f"Version {event.number} of the job was not started: {event.error}"
    author = Author(draft.state.versions.notes[-1].requested_by)
    timeline.add_closed_record(draft, TriggerCause.UPDATE_REQUIREMENT, message, asked=author)


def adopt(draft: Draft) -> bool:
    """Nothing of an attempt is alive: bring the version that waits for that into force. Whether there was one."""
    state = draft.state
    replacement, coming = state.versions.replacement, state.spare
    if replacement is None or coming is None or replacement.stage in ("Builds", "Trial"):
        return False
    former = JobVersion(state.versions.current, state.graph, state.options, state.partitions.numbers)
    # A draft is changed in place: what is needed of the state before is taken now.
    kept = state.requirements.bounds
    back, reactive = replacement.stage == "Back", coming.options.is_reactive
    asked = coming.graph if back else _with_queries_of(coming.graph, state.graph)
    graph = _with_state_of(asked, state.graph)
    chosen = _bounds_back(state, replacement) if back else _bounds_forth(state, reactive=reactive)
    wanted = tuple(
        (one.id, chosen(one).within(one.highest_bound if reactive else one.max_parallelism))
        for one in graph.vertices
    )
    ended = bounds_queue.carry_over(draft, graph, wanted)
    not_redistributed = _not_redistributed(state, graph)
    requirements = state.requirements.following(
        state.job_id,
        wanted,
        requested_by=state.requirements.requested_by,
        reason=f"Version {coming.number} of the job.",
    )
    same = [vertex.id for vertex in graph.vertices] == [vertex.id for vertex in former.graph.vertices]
    groups = graph.groups == former.graph.groups
    draft.set_graph(
        graph,
        requirements,
        options=evolve(coming.options, cluster_start_ms=state.options.cluster_start_ms),
        gone=gone_from(state, graph, draft.now_ms),
        last_plan=state.last_plan if same and groups else None,
        spare=None if back else former,
    )
    draft.set_part(
        "partitions",
        numbers=numbers_of(graph) if coming.max_parallelism or graph != asked else (),
        refused=None,
    )
    # It may run on another PySpark.
    draft.set_part("driver", waits=False, fixed=None)
    # It has nothing to go back to but the version before.
    draft.set_part("trial", watch=None, taken_back=None, unproven=True)
    draft.set_part("recovery", user_errors=(), strategy=RestartState(), creation=RestartState())
    if back:
        end_replacement(draft, "TAKEN_BACK", replacement.why, current=coming.number)
        tell_outcome(
            draft, coming.number, "IN_FORCE", f"It is back: version {replacement.number} was taken back."
        )
    else:
        trial = evolve(replacement, stage="Trial", kept=kept, given=wanted)
        draft.set(versions=evolve(state.versions, current=coming.number, replacement=trial))
        tell_outcome(draft, coming.number, "TRIAL")
    timeline.redraw(draft)
    for one, sentence in ended:
        message = f"Version {coming.number} of the job comes into force. {sentence}"
        timeline.add_closed_record(draft, TriggerCause.UPDATE_REQUIREMENT, message, asked=one)
    for sentence in not_redistributed:
        timeline.note(draft, sentence)
    return True


# ---- inside


def _with_state_of(graph: JobGraph, before: JobGraph) -> JobGraph:
    """``graph`` with the state partitions that the state has, which a redistribution may have changed."""
    graph = assumed_as(graph, before)
    stateful = {vertex.id for vertex in graph.vertices if vertex.stateful}
    numbers = tuple((vertex, number) for vertex, number in numbers_of(before) if vertex in stateful)
    return with_partitions(graph, numbers) if numbers else graph


def _with_queries_of(graph: JobGraph, before: JobGraph) -> JobGraph:
    """``graph``, of a new version, with the queries that the program of ``before`` has by now, each of which is to go
    on, and with the bounds that wait for vertices of that, but for those that the document of the version has."""
    if before.program is None:
        return graph
    said = {bounds.vertex for bounds in graph.bounds}
    waiting = (bounds for bounds in before.bounds if bounds.vertex not in said)
    coming = graph if before.awaits_query else with_queries_of(before, graph)
    return evolve(coming, bounds=(*waiting, *graph.bounds)[-MAX_BOUNDS:])


def _not_redistributed(state: JobState, graph: JobGraph) -> list[str]:
    """Sentences on the numbers of state partitions that the requirements ask for and that end with the version: the
    state of ``graph`` has others."""
    asked = dict(numbers_of(state.goal_graph))
    return [
        f"The state of {graph.by_id[vertex].name} stays at {number} partitions: ask for {asked[vertex]} again."
        for vertex, number in numbers_of(graph)
        if asked.get(vertex, number) != number
    ]


def _bounds_forth(state: JobState, *, reactive: bool) -> Callable[[JobVertex], Bounds]:
    """The bounds of a new version: those in force of each vertex whose bounds its document has not changed."""
    old, declared = state.graph.by_id, state.requirements.as_dict()

    def bounds_of(vertex: JobVertex) -> Bounds:
        own, before = Bounds(vertex.lower_bound, vertex.parallelism), old.get(vertex.id)
        if before is not None and (before.lower_bound, before.parallelism) == (own.lower, own.upper):
            own = declared[vertex.id]
        return Bounds(own.lower, vertex.highest_bound) if reactive else own

    return bounds_of


def _bounds_back(state: JobState, replacement: Replacement) -> Callable[[JobVertex], Bounds]:
    """The bounds that the version before had, and those that were declared since."""
    kept, given, declared = dict(replacement.kept), dict(replacement.given), state.requirements.as_dict()

    def bounds_of(vertex: JobVertex) -> Bounds:
        now = declared.get(vertex.id)
        return kept[vertex.id] if now is None or now == given.get(vertex.id) else now

    return bounds_of
