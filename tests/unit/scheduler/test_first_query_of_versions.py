"""New versions of programs: their trial begins with the first query, and state has to be gone on from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.documents.program import parse_program
from app.model.graphdoc_program import graph_of_version
from app.model.graphdoc_settings import MAX_BOUNDS
from app.model.job_state.versions import JobVersion
from app.model.jobgraph import NamedBounds, Role
from app.model.planned import PlannedVertex
from app.model.status import JobStatus
from app.model.value import evolve
from app.scheduler.adaptive import growth
from app.scheduler.adaptive.effects import StopAttempt, StopMode
from app.scheduler.adaptive.events import AttemptFailed, BatchCompleted, QueryEnded, VersionRequested
from app.scheduler.adaptive.trial import TRIAL_TIMER
from app.scheduler.explain import explain
from tests.unit.scheduler.driving import Job
from tests.unit.scheduler.programs import (
    AT_ONCE,
    COPYING,
    COUNTING,
    begins,
    begun,
    declared,
    limited,
    names,
    starts_query,
)

LIMIT = "slotwise.version.trial-period"
DAY_MS = 86_400_000
QUERY = ["in", "counts", "out"]
OTHER = (PlannedVertex("one", Role.SOURCE, "kafka"), PlannedVertex("two", Role.SINK, "json", ("one",)))
COPY = ["raw", "copy"]


def asked(job: Job, number: int = 2, limit: str = "10 s", **document: Any) -> VersionRequested:
    """As the worker makes the graph of a version."""
    program = parse_program(
        {"name": "words", "script": "job.py", "bounds": limited(2), "args": [str(number)], **document}
    )
    options = Job(options={**AT_ONCE, LIMIT: limit}).state.options
    return VersionRequested(JobVersion(number, graph_of_version(program, job.state.graph), options), "ann")


def fails(job: Job, **more: Any) -> Job:
    return job.do(AttemptFailed(job.state.attempt, "KeyError: k", stopped=True, **more))


def outcome(job: Job) -> str:
    """Of version 2."""
    return {note.number: note.outcome for note in job.state.versions.notes}[2]


def has_trial_timer(job: Job) -> bool:
    return any(timer.name == TRIAL_TIMER for timer in job.state.timers)


def running(*queries: tuple[PlannedVertex, ...]) -> Job:
    job = begun()
    for query in queries or (COUNTING,):
        starts_query(job, query)
    return job.commit()


def on_trial(*queries: tuple[PlannedVertex, ...], **document: Any) -> Job:
    """Version 2 has begun, and has started nothing yet."""
    job = running(*queries) if queries else begun()
    job.do(asked(job, **document)).stops()
    assert job.kind == "CreatingExecutionGraph" and job.state.versions.current == 2
    return begins(job)


def test_of_a_program_without_a_query_the_trial_begins_with_the_first_one() -> None:
    job = on_trial()
    assert (job.kind, job.status, names(job)) == ("Executing", JobStatus.CREATED, ["job"])
    when = "Version 2 of the job is on trial, for a time that begins with the first query of the program: if it fails, "
    assert f"{when}version 1 comes back." in explain(job.state, job.now_ms)[0]
    job.wait(DAY_MS)
    assert outcome(job) == "TRIAL" and not has_trial_timer(job)
    starts_query(job)
    assert job.status is JobStatus.RUNNING and job.timer_in_ms(TRIAL_TIMER) == 10_000
    assert "is on trial for 10 s at most: if it fails, version 1" in " ".join(
        explain(job.state, job.now_ms)[0]
    )
    job.applied()
    assert outcome(job) == "TRIAL"
    job.commit()
    assert outcome(job) == "IN_FORCE" and not has_trial_timer(job)
    assert (names(job), job.nothing_open) == (QUERY, True)


def test_the_trial_of_a_first_query_that_commits_nothing_ends_with_the_program_before() -> None:
    job = starts_query(on_trial())
    job.wait(11_000)
    assert job.kind == "Restarting" and job.effect(StopAttempt).mode is StopMode.KILL
    job.stops()
    assert (outcome(job), names(job), declared(job)) == ("TAKEN_BACK", ["job"], {"job": (1, 2)})
    assert job.state.graph.awaits_query and job.status is JobStatus.CREATED
    begins(job)
    assert (job.kind, job.status) == ("Executing", JobStatus.CREATED)
    starts_query(job, COPYING).commit()
    assert (job.status, names(job), job.nothing_open) == (JobStatus.RUNNING, COPY, True)


@pytest.mark.parametrize("rescaled", [False, True])
def test_what_was_done_before_the_first_query_is_no_part_of_the_trial(rescaled: bool) -> None:
    job = on_trial()
    if rescaled:
        job.graph = job.state.graph
        job.hold(4).put(1, 4).applied()
        assert outcome(job) == "TRIAL", "a program without a query has proven nothing"
    starts_query(job).commit()
    assert outcome(job) == "TRIAL", "the plan was applied before"
    job.applied()
    assert outcome(job) == "IN_FORCE"


def test_the_time_of_a_trial_is_that_of_the_attempt_that_runs() -> None:
    """The second attempt at a version takes its time before its queries, too."""
    job = starts_query(on_trial(COUNTING))
    assert job.timer_in_ms(TRIAL_TIMER) == 10_000
    begins(fails(job, outside=True).wait(1_000))
    assert (job.kind, outcome(job)) == ("Executing", "TRIAL") and not has_trial_timer(job)
    job.wait(DAY_MS)
    starts_query(job)
    assert (outcome(job), job.timer_in_ms(TRIAL_TIMER)) == ("TRIAL", 10_000)


def test_a_version_that_fails_before_the_known_queries_is_taken_back_at_once() -> None:
    job = fails(on_trial(COUNTING))
    assert (outcome(job), names(job), job.kind) == ("TAKEN_BACK", QUERY, "CreatingExecutionGraph")


def test_a_version_that_fails_before_its_first_query_is_taken_back_at_once() -> None:
    job = on_trial(script="other.py")
    assert names(job) == ["other"]
    fails(job)
    assert (outcome(job), names(job), job.kind) == ("TAKEN_BACK", ["job"], "CreatingExecutionGraph")


@pytest.mark.parametrize("script", ["in.py", "out.py"])
def test_the_way_back_to_a_program_with_the_name_of_a_vertex(script: str) -> None:
    job = begun(script=script, bounds={})
    job.do(asked(job, script=script)).stops()
    starts_query(begins(job))
    fails(job)
    assert (outcome(job), names(job)) == ("TAKEN_BACK", [script.removesuffix(".py")])
    starts_query(begins(job)).commit()
    assert job.status is JobStatus.RUNNING and names(job) == QUERY


def test_a_version_is_proven_when_each_query_with_state_was_started() -> None:
    job = on_trial(COUNTING, COPYING)
    assert not has_trial_timer(job)
    starts_query(job, COPYING)
    assert job.timer_in_ms(TRIAL_TIMER) == 10_000
    job.commit().applied()
    assert outcome(job) == "TRIAL", "nothing has gone on from the state"
    starts_query(job, COUNTING)
    assert outcome(job) == "TRIAL"
    job.commit()
    assert outcome(job) == "IN_FORCE"


def test_a_query_without_state_need_not_come_again() -> None:
    job = on_trial(COUNTING, COPYING)
    starts_query(job, COUNTING).commit().applied()
    assert outcome(job) == "IN_FORCE"


def test_a_query_with_state_that_does_not_come_again_is_waited_for_until_the_trial_is_over() -> None:
    job = on_trial(COUNTING, COPYING)
    starts_query(job, COPYING).commit().applied()
    job.wait(9_000)
    assert outcome(job) == "TRIAL"
    job.wait(2_000)
    assert (outcome(job), job.kind) == ("IN_FORCE", "Executing")


def test_a_query_with_state_that_has_ended_in_the_trial_is_not_waited_for() -> None:
    job = on_trial(COUNTING, COPYING)
    starts_query(job, COUNTING)
    job.do(QueryEnded(job.state.attempt, job.state.graph.by_name["out"].id))
    starts_query(job, COPYING).commit().applied()
    assert outcome(job) == "IN_FORCE"


def test_rows_are_needed_of_a_program_too() -> None:
    job = starts_query(on_trial())
    job.do(BatchCompleted(job.state.attempt, "q", 1, job.state.plan_version, has_rows=False)).applied()
    assert outcome(job) == "TRIAL"


@pytest.mark.parametrize("awaited", [True, False])
def test_a_query_that_is_started_before_the_version_comes_is_kept(awaited: bool) -> None:
    job = begun() if awaited else running(COUNTING)
    job.do(asked(job))
    assert job.kind == "Restarting"
    starts_query(job, COPYING)
    job.stops()
    assert job.state.versions.current == 2 and job.state.graph.program is not None
    assert job.state.graph.program.args == ("2",)
    assert names(job) == (COPY if awaited else QUERY + COPY)
    assert declared(job) == dict.fromkeys(names(job), (1, 2))
    begins(job)
    assert (job.kind, job.status) == ("Executing", JobStatus.CREATED)
    for query in [COPYING] if awaited else [COUNTING, COPYING]:
        starts_query(job, query)
    job.commit().applied()
    assert outcome(job) == "IN_FORCE"
    assert not awaited or job.status is JobStatus.RUNNING


def test_a_query_that_is_started_before_the_version_comes_is_kept_on_the_way_back() -> None:
    job = begun().do(asked(begun()))
    starts_query(job).stops().do(AttemptFailed(2, "KeyError: k", stopped=True))
    assert (outcome(job), names(job), job.kind) == ("TAKEN_BACK", QUERY, "CreatingExecutionGraph")
    assert job.state.graph.program is not None and job.state.graph.program.args == ()


def test_a_query_that_only_the_version_has_goes_with_it() -> None:
    job = on_trial(COUNTING)
    starts_query(job, COUNTING)
    starts_query(job, COPYING)
    fails(job)
    assert (outcome(job), names(job)) == ("TAKEN_BACK", QUERY)


def test_a_version_may_have_other_vertices_of_a_query() -> None:
    some = PlannedVertex("some", COUNTING[1].role, "Sample", ("in",))
    sampling = (COUNTING[0], some, replace(COUNTING[1], inputs=("some",)), COUNTING[2])
    job = on_trial(COUNTING, COPYING, bounds={"counts": {"upperBound": 1}, "some": {"upperBound": 2}})
    assert declared(job)["counts"] == (1, 1)
    starts_query(job, sampling)
    assert names(job) == [*COPY, "in", "some", "counts", "out"]
    assert declared(job) == {**dict.fromkeys(names(job), (1, 2)), "counts": (1, 1)}
    record = next(
        one for one in job.records if one.vertices[0].vertex_id == job.state.graph.by_name["some"].id
    )
    assert [one.post for one in record.vertices] == [2]
    starts_query(job, COPYING).commit().applied()
    assert outcome(job) == "IN_FORCE"
    # And back: the vertex that is gone has left the plan.
    starts_query(job, COUNTING)
    assert names(job) == [*COPY, *QUERY] and len(job.parallelism) == 5


def test_bounds_that_the_version_says_of_a_known_vertex_win_and_others_stay() -> None:
    job = running(COUNTING)
    job.put(1, 2).put_each(**{"in": (2, 2), "counts": (1, 2), "out": (1, 1)}).applied()
    job.do(asked(job, bounds={"counts": {"upperBound": 1}, "copy": {"upperBound": 1}})).stops()
    assert declared(job) == {"in": (2, 2), "counts": (1, 1), "out": (1, 1)}
    assert NamedBounds("copy", None, 1) in job.state.graph.bounds
    starts_query(begins(job), COPYING)
    assert declared(job)["copy"] == (1, 1)


def test_its_record_has_the_author_of_the_version_and_no_reason_of_the_bounds_before() -> None:
    job = running(COUNTING)
    assert "has started a query" in (job.state.requirements.reason or "")
    job.do(asked(job))
    assert (job.open.requested_by, job.open.request_reason) == ("ann", None)


@pytest.mark.parametrize("first", [True, False])
def test_bounds_wait_for_vertices_on_behind_those_of_the_version_which_are_the_last_ones(first: bool) -> None:
    job = begun() if first else running(COUNTING)
    many = tuple(NamedBounds(f"v{number}", None, 2) for number in range(MAX_BOUNDS))
    job.state = evolve(job.state, graph=replace(job.state.graph, bounds=many))
    job.do(asked(job, bounds={"raw": {"upperBound": 7}})).stops()
    assert job.state.graph.bounds == (*many[1:], NamedBounds("raw", None, 7))


def with_ended(monkeypatch: pytest.MonkeyPatch) -> Job:
    """Of two queries that have ended one may stay. Another version is asked for."""
    monkeypatch.setattr(growth, "ENDED_KEPT", 1)
    job = starts_query(running(COUNTING), COPYING).commit()
    job.put_each(**{name: (1, 1) for name in names(job)}).applied()
    for sink in ("copy", "out"):
        job.do(QueryEnded(job.state.attempt, job.state.graph.by_name[sink].id))
    return job.do(asked(job, bounds={}))


def test_bounds_of_a_vertex_that_leaves_and_comes_again_before_the_version_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = with_ended(monkeypatch)
    starts_query(job, OTHER)
    assert "raw" not in names(job)
    starts_query(job, COPYING).stops()
    assert job.state.versions.current == 2
    assert declared(job) == {**dict.fromkeys(QUERY + COPY, (1, 1)), "one": (1, 12), "two": (1, 12)}


def test_bounds_of_a_vertex_that_leaves_before_the_version_wait_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = with_ended(monkeypatch)
    starts_query(job, OTHER)
    assert "raw" not in names(job)
    starts_query(begins(job.stops()), COPYING)
    assert (declared(job)["raw"], declared(job)["copy"]) == ((1, 1), (1, 1))
