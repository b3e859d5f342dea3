"""The transition table: every pair of a state and an event is in it or refused, and nothing happens that it lacks."""

from __future__ import annotations

import ast
import inspect
from dataclasses import replace

import pytest

from app.model.job_state.versions import JobVersion
from app.model.plan import Slot
from app.model.rescale import TerminatedReason
from app.model.scaling_policy import FloorCeiling, ScalingPolicy
from app.model.slot_share import SlotShare
from app.scheduler import step as steps
from app.scheduler import transitions
from app.scheduler.adaptive import events as events_module
from app.scheduler.adaptive.draft import ENTRY, InvalidTransition, status_of
from app.scheduler.adaptive.events import (
    AttemptFailed,
    AttemptFinished,
    AttemptMisplaced,
    AttemptRunning,
    AttemptStartFailed,
    AttemptStopped,
    BatchCompleted,
    CancelRequested,
    DriverContact,
    DriverReady,
    EnvironmentReady,
    Event,
    GlobalFailure,
    GraphAnalysed,
    PlanApplied,
    QueryEnded,
    QueryFailed,
    QueryRecovered,
    QueryStarted,
    RegionFailed,
    RegionFinished,
    RequirementsUpdated,
    ScalingPolicyUpdated,
    SlotsChanged,
    SlotShareUpdated,
    StartScheduling,
    StateRepartitioned,
    StopRequested,
    TimerFired,
    VersionRequested,
)
from app.scheduler.adaptive.state import JobState
from app.scheduler.step import EVENTS, TABLE, step
from app.scheduler.transitions import PHASES, STAY
from tests.unit.scheduler.driving import Job, bounds, slots
from tests.unit.scheduler.phases import IN_PHASE, in_phase

PAIRS = ((1, 1), (3, 3), (1, 9))


def variants(kind: str, state: JobState) -> list[Event]:
    """Events of one class as ``state`` may meet them; together they take every branch that its phase has."""
    attempt, version = state.attempt, state.plan_version
    grown = tuple(
        replace(one, id=f"{one.id[:-1]}x", name=f"other {one.name}") for one in state.graph.vertices
    )
    another = replace(state.graph, vertices=(*state.graph.vertices, *grown))
    timers = [TimerFired(timer.name, timer.version) for timer in state.timers]
    found: dict[str, list[Event]] = {
        "StartScheduling": [StartScheduling()],
        "RequirementsUpdated": [RequirementsUpdated(bounds(state.graph, *pair, 7)) for pair in PAIRS],
        "ScalingPolicyUpdated": [
            ScalingPolicyUpdated(ScalingPolicy(2, FloorCeiling(*pair)))
            for pair in ((None, 1), (3, 3), (2, None))
        ],
        "SlotShareUpdated": [SlotShareUpdated(SlotShare(2, weight=3, cap=2)), SlotShareUpdated(state.share)],
        "SlotsChanged": [
            SlotsChanged(own)
            for own in ((), slots(1), slots(2), slots(9), (Slot("else", "elsewhere"), *slots(1)))
        ],
        "DriverReady": [DriverReady(attempt)],
        "QueryStarted": [
            QueryStarted(attempt, graph.vertices[-1].id, graph, ()) for graph in (state.graph, another)
        ],
        "QueryEnded": [QueryEnded(attempt, state.graph.vertices[-1].id), QueryEnded(attempt, "unknown")],
        "GraphAnalysed": [GraphAnalysed(attempt, ())],
        "AttemptRunning": [AttemptRunning(attempt)],
        "StateRepartitioned": [StateRepartitioned(attempt, ())],
        "AttemptStartFailed": [
            AttemptStartFailed(attempt, "no java"),
            AttemptStartFailed(attempt, "no java", recoverable=False),
        ],
        "BatchCompleted": [BatchCompleted(attempt, "q", 5, version), BatchCompleted(attempt, "q", 5, 0)],
        "PlanApplied": [
            PlanApplied(attempt, version),
            PlanApplied(attempt, version, not_followed=(("a", "Vertex a does not."),)),
            PlanApplied(attempt, max(0, version - 1)),
        ],
        "RegionFinished": [RegionFinished(attempt, 0, 1)],
        "RegionFailed": [RegionFailed(attempt, 0, 1, "boom"), RegionFailed(attempt, 0, 1, "boom", False)],
        "AttemptFailed": [
            AttemptFailed(attempt, "boom", stopped=stopped, recoverable=recoverable)
            for stopped in (True, False)
            for recoverable in (True, False)
        ],
        "QueryFailed": [
            QueryFailed(attempt, sink, 1, "boom", recoverable=recoverable)
            for sink in (state.graph.vertices[-1].id, "no sink")
            for recoverable in (True, False)
        ],
        "QueryRecovered": [QueryRecovered(attempt, state.graph.vertices[-1].id, 1)],
        "DriverContact": [DriverContact(attempt, heard) for heard in (False, True)],
        "AttemptMisplaced": [AttemptMisplaced(attempt, "It runs elsewhere.")],
        "AttemptStopped": [
            AttemptStopped(attempt),
            AttemptStopped(attempt, drained=True),
            AttemptStopped(attempt, driver_alive=True),
            AttemptStopped(attempt, driver_alive=True, error="the disk is full"),
        ],
        "AttemptFinished": [AttemptFinished(attempt)],
        "TimerFired": timers or [TimerFired("none", state.phase_version)],
        "CancelRequested": [CancelRequested("ann")],
        "StopRequested": [StopRequested("t1")],
        "VersionRequested": [VersionRequested(JobVersion(2, state.graph, state.options))],
        "EnvironmentReady": [EnvironmentReady(2)],
        "GlobalFailure": [GlobalFailure("lost"), GlobalFailure("lost", recoverable=False)],
    }
    return found[kind]


def test_the_table_knows_every_phase_and_every_event_class() -> None:
    own = (one for one in vars(events_module).values() if isinstance(one, type))
    classes = {one.__name__ for one in own if one.__module__ == events_module.__name__}
    assert set(EVENTS) == classes
    assert set(IN_PHASE) == set(PHASES)
    assert {phase for phase, _ in TABLE} == set(PHASES)
    assert {event for _, event in TABLE} - {ENTRY} == set(EVENTS)


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("phase", PHASES)
def test_every_pair_is_in_the_table_or_refused_with_the_state_unchanged(phase: str, event: str) -> None:
    for index in range(len(variants(event, in_phase(phase).state))):
        job = in_phase(phase)
        one = variants(event, job.state)[index]
        if isinstance(one, TimerFired):
            job.now_ms = max([job.now_ms, *(timer.at_ms for timer in job.state.timers)])
        before = job.state
        if (phase, event) not in TABLE:
            with pytest.raises(InvalidTransition) as refused:
                step(before, one, job.now_ms)
            assert refused.value.phase == phase and refused.value.event == event
            assert job.state is before and refused.value.reason
            continue
        was = repr(before)
        version = before.phase_version
        job.do(one)
        assert repr(before) == was, "the state that was handed in was changed"
        if job.state.phase_version == version:
            assert phase in TABLE[phase, event].edges, (
                f"{one} leaves the job in {phase}, which the table lacks"
            )
        elif job.state.phase_version == version + 1:
            assert job.kind in TABLE[phase, event].edges, f"{one} leads to {job.kind}, which the table lacks"


def test_a_pair_without_a_handler_only_stays() -> None:
    for (phase, event), row in TABLE.items():
        if event != ENTRY and row.streaming is row.batch is None:
            assert set(row.edges) == {phase}, f"({phase}, {event}) has edges and nothing that takes them"


def test_no_row_is_written_twice() -> None:
    """Of two equal keys a dict keeps the second only, in silence."""
    tree = ast.parse(inspect.getsource(transitions))
    (rows,) = [
        one.value
        for one in tree.body
        if isinstance(one, ast.AnnAssign) and "TRANSITIONS" in ast.unparse(one.target)
    ]
    assert isinstance(rows, ast.Dict) and len(rows.keys) == len(transitions.TRANSITIONS)


def test_a_pair_has_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    again = {**steps.TRANSITIONS, ("Created", StartScheduling, None): {STAY: "once more"}}
    monkeypatch.setattr(steps, "TRANSITIONS", again)
    with pytest.raises(ValueError, match=r"\('Created', 'StartScheduling'\) twice"):
        steps._expanded()


def test_every_phase_can_be_reached_and_left_but_the_last() -> None:
    reached = {"Created"}
    for _ in PHASES:
        reached |= {target for (source, _), row in TABLE.items() if source in reached for target in row.edges}
    assert reached == set(PHASES)
    for phase in PHASES:
        ways = {target for (source, _), row in TABLE.items() if source == phase for target in row.edges}
        assert bool(ways - {phase}) == (phase != "Finished")


def test_every_edge_says_when_it_is_taken() -> None:
    for (source, event), row in TABLE.items():
        for target, when in row.edges.items():
            assert when and when[0].islower() and not when.endswith("."), (source, event, target)
            assert STAY not in (source, event, target)


@pytest.mark.parametrize("phase", [one for one in PHASES if one not in ("Created", "Finished")])
def test_a_report_of_an_earlier_attempt_is_dropped_in_every_phase(phase: str) -> None:
    """A driver that was given up may report for as long as it likes."""
    job = in_phase(phase)
    late = _second_attempt(job)
    before = late.state
    for kind in EVENTS:
        for event in variants(kind, late.state):
            if hasattr(event, "attempt"):
                late.do(type(event)(**{**_fields(event), "attempt": event.attempt - 1}))
                assert late.state is before and late.effects == (), event


def _second_attempt(job: Job) -> Job:
    """The same state with one more attempt counted, as if another had been before."""
    job.state = replace(job.state, attempt=job.state.attempt + 1)
    return job


def _fields(event: Event) -> dict[str, object]:
    return {name: getattr(event, name) for name in type(event).__slots__}


@pytest.mark.parametrize("phase", [one for one in PHASES if one != "Finished"])
def test_a_report_of_an_attempt_that_was_never_started_is_refused(phase: str) -> None:
    job = in_phase(phase)
    with pytest.raises(InvalidTransition, match="never started"):
        step(job.state, AttemptRunning(job.state.attempt + 1), job.now_ms)


@pytest.mark.parametrize("phase", [one for one in PHASES if one != "Finished"])
def test_a_put_is_kept_in_every_phase(phase: str) -> None:
    """And its record ends or is open; in Created none is open yet, and the first one is for the new bounds."""
    job = in_phase(phase).put(1, 3, requested_by="ann")
    assert job.state.requirements.requested_by == "ann"
    assert job.state.requirements.version == 2
    if phase == "Created":
        job.do(StartScheduling())
        assert job.open.requirements_uuid == job.state.requirements.uuid
    elif phase in ("Failing", "Canceling"):
        assert job.records[-1].requested_by == "ann" and job.records[-1].end_ms == job.now_ms
    else:
        assert job.open.requested_by == "ann"
    if phase != "Created":
        closed = [one for one in job.records if one.reason is TerminatedReason.RESOURCE_REQUIREMENTS_UPDATED]
        assert len(closed) <= 1


@pytest.mark.parametrize(
    "phase", ["WaitingForResources", "CreatingExecutionGraph", "RetryingExecutionGraphCreation", "Restarting"]
)
def test_a_put_that_comes_before_the_attempt_runs_is_in_force_when_it_does(phase: str) -> None:
    job = in_phase(phase).put(1, 3).hold(9)
    for _ in range(20):
        if job.kind == "Executing":
            break
        if job.kind == "Restarting" and not job.state.phase.stopped:
            job.stops()
        elif job.kind == "CreatingExecutionGraph":
            job.starts()
        elif job.kind == "Rescaling":
            job.applied()
        else:
            job.wait(1_000)
    assert job.kind == "Executing"
    assert job.parallelism == [3, 3, 3]


@pytest.mark.parametrize("phase", ["Executing", "Rescaling"])
def test_a_put_while_an_attempt_runs_is_applied_in_place(phase: str) -> None:
    job = in_phase(phase).put(1, 3).hold(9).applied()
    if job.kind == "Rescaling":
        job.applied()
    assert job.parallelism == [3, 3, 3]
    assert (job.state.attempt, job.nothing_open) == (1, True)


def test_a_put_while_stopping_is_applied_when_the_stop_fails() -> None:
    job = in_phase("StopWithSavepoint").put(1, 1)
    job.do(AttemptStopped(1, driver_alive=True, error="the disk is full"))
    assert job.kind == "Rescaling"
    assert job.applied().parallelism == [1, 1, 1]
    assert job.ended()[-1] == ("UPDATE_REQUIREMENT", "SUCCEEDED", 1)


@pytest.mark.parametrize("phase", [one for one in PHASES if one not in ("Created", "Executing", "Finished")])
def test_a_phase_that_waits_holds_a_timer(phase: str) -> None:
    """So that a lost effect, or an answer that never comes, does not leave the job where it is for ever."""
    assert in_phase(phase).state.timers


def test_statuses_are_those_of_production_flink() -> None:
    assert {phase: status_of(in_phase(phase).state).value for phase in PHASES} == {
        "Created": "INITIALIZING",
        "WaitingForResources": "CREATED",
        "CreatingExecutionGraph": "CREATED",
        "RetryingExecutionGraphCreation": "CREATED",
        "Executing": "RUNNING",
        "Rescaling": "RUNNING",
        "StopWithSavepoint": "RUNNING",
        "Restarting": "RESTARTING",
        "Failing": "FAILING",
        "Canceling": "CANCELLING",
        "Finished": "CANCELED",
    }
