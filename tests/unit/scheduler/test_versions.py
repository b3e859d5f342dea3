"""A new version of a running job: into force when nothing of the attempt before is alive, on trial, and taken back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.model.job_state.versions import JobVersion
from app.model.jobgraph import JobGraph
from app.model.requirements import Bounds
from app.model.state_partitions import numbers_of, with_partitions
from app.scheduler.adaptive.draft import InvalidTransition
from app.scheduler.adaptive.effects import StartAttempt, StopAttempt, StopMode
from app.scheduler.adaptive.events import (
    AttemptFailed,
    AttemptFinished,
    AttemptStartFailed,
    BatchCompleted,
    CancelRequested,
    VersionRequested,
)
from tests.unit.scheduler.driving import Job, chain, vertex
from tests.unit.scheduler.test_state_repartition import AGG, begun, done, partitions, put, running, stateful

OLD = ["source", "agg", "sink"]
NEW = ["source", "filter", "agg", "sink"]
LIMIT = "slotwise.version.trial-period"


def another(number: int = 2, **options: object) -> VersionRequested:
    """The chain with one vertex more, and other bounds for the source."""
    source, _, sink = chain().vertices
    vertices = (replace(source, parallelism=3), vertex("filter", ["source"]), vertex("agg", ["filter"]), sink)
    graph = JobGraph("under-test", chain().type, vertices)
    return VersionRequested(JobVersion(number, graph, Job(options=dict(options)).state.options), "alice")


def failed(job: Job, **more: object) -> AttemptFailed:
    return AttemptFailed(job.state.attempt, "KeyError: k", stopped=True, **more)  # type: ignore[arg-type]


def outcomes(job: Job) -> list[tuple[int, str]]:
    return [(note.number, note.outcome) for note in job.state.versions.notes]


def in_force(job: Job) -> list[str]:
    return [one.name for one in job.state.graph.vertices]


def declared(job: Job) -> dict[str, tuple[int, int]]:
    bounds = job.state.requirements.as_dict()
    return {one.name: (bounds[one.id].lower, bounds[one.id].upper) for one in job.state.graph.vertices}


def on_trial(**options: object) -> Job:
    """Version 2 runs and has committed nothing."""
    return Job(upper=2).run().do(another(**options)).stops().starts()


def test_the_attempt_ends_at_a_batch_boundary_and_the_new_version_starts() -> None:
    job = Job(upper=2).run()
    job.do(another())
    assert job.kind == "Restarting"
    assert job.effect(StopAttempt).mode is StopMode.DRAIN
    assert in_force(job) == OLD and job.state.versions.current == 1
    job.commit()
    assert in_force(job) == OLD
    job.stops()
    assert job.kind == "CreatingExecutionGraph"
    start = job.effect(StartAttempt)
    assert not start.reuse_driver and in_force(job) == NEW
    assert job.state.spare is not None and job.state.spare.number == 1
    job.starts()
    assert job.kind == "Executing" and outcomes(job) == [(1, "IN_FORCE"), (2, "TRIAL")]
    job.commit()
    assert outcomes(job)[1] == (2, "TRIAL"), "each query has to have committed one"
    job.applied()
    assert outcomes(job) == [(1, "REPLACED"), (2, "IN_FORCE")]
    assert job.state.spare is None and job.state.versions.current == 2
    record = job.records[-1]
    assert record.message is not None and "Version 2 of the job, in the place of version 1" in record.message
    assert record.requirements_uuid == job.state.requirements.uuid


def test_a_batch_without_rows_proves_nothing() -> None:
    job = on_trial()
    job.do(BatchCompleted(job.state.attempt, "query", 7, job.state.plan_version, has_rows=False)).applied()
    assert outcomes(job)[1] == (2, "TRIAL")
    job.do(failed(job))
    assert outcomes(job)[1] == (2, "TAKEN_BACK")


def test_bounds_are_kept_unless_the_document_has_changed_them() -> None:
    job = Job(upper=2).run()
    job.put(1, 2).put_each(source=(1, 2), agg=(2, 2), sink=(1, 1))
    job.applied()
    job.do(another()).stops()
    assert declared(job) == {"source": (1, 3), "filter": (1, 1), "agg": (2, 2), "sink": (1, 1)}
    assert job.state.requirements.version > 3


def test_a_failure_before_the_first_batch_takes_it_back_at_once() -> None:
    job = on_trial()
    before = job.state.requirements.version
    job.do(failed(job, recoverable=False))
    assert job.kind == "CreatingExecutionGraph" and in_force(job) == OLD
    assert outcomes(job) == [(1, "IN_FORCE"), (2, "TAKEN_BACK")]
    assert job.state.versions.notes[1].why == "KeyError: k"
    assert job.state.versions.replacement is None and job.state.versions.current == 1
    assert job.state.requirements.version == before + 1
    assert declared(job) == {"source": (1, 2), "agg": (1, 2), "sink": (1, 2)}
    assert job.open.message is not None and "Takes back version 2" in job.open.message
    job.starts().commit().applied()
    assert job.kind == "Executing" and job.nothing_open
    job.do(failed(job))
    assert in_force(job) == OLD, "the next failure is that of version 1"


def test_the_attempt_that_failed_is_dead_before_the_version_before_comes_back() -> None:
    job = on_trial()
    job.do(AttemptFailed(job.state.attempt, "KeyError: k", stopped=False))
    assert job.kind == "Restarting" and in_force(job) == NEW
    assert job.effect(StopAttempt).mode is StopMode.KILL
    job.stops()
    assert job.kind == "CreatingExecutionGraph" and in_force(job) == OLD


def test_what_cannot_be_started_is_taken_back() -> None:
    job = Job(upper=2).run().do(another()).stops()
    job.do(AttemptFailed(job.state.attempt, "no module named x", stopped=True))
    assert job.kind == "CreatingExecutionGraph" and in_force(job) == OLD
    assert outcomes(job)[1] == (2, "TAKEN_BACK")


def test_a_start_that_fails_for_good_is_taken_back() -> None:
    job = Job(upper=2).run().do(another()).stops()
    job.do(AttemptStartFailed(job.state.attempt, "there is no such environment", recoverable=False))
    assert in_force(job) == OLD and job.kind == "CreatingExecutionGraph"


def test_a_version_that_needs_more_slots_than_there_are_is_taken_back() -> None:
    wanted = another()
    big = replace(wanted.version.graph.vertices[0], lower_bound=9, parallelism=9)
    graph = replace(wanted.version.graph, vertices=(big, *wanted.version.graph.vertices[1:]))
    job = Job(upper=2).run().do(replace(wanted, version=replace(wanted.version, graph=graph))).stops()
    assert job.kind == "WaitingForResources" and in_force(job) == NEW
    job.wait(job.state.options.submission_wait_ms + 1)
    assert job.kind == "CreatingExecutionGraph" and in_force(job) == OLD
    assert "Not enough slots" in job.state.versions.notes[1].why


def test_what_ends_it_from_outside_is_tried_again_but_not_for_ever() -> None:
    job = on_trial()
    for _ in range(2):
        job.do(failed(job, outside=True))
        assert in_force(job) == NEW
        job.wait(60_000)
        job.starts()
    job.do(failed(job, outside=True))
    assert in_force(job) == OLD and outcomes(job)[1] == (2, "TAKEN_BACK")


def test_the_attempt_after_that_has_to_show_anew_what_proves_the_version() -> None:
    job = on_trial().commit()
    job.do(failed(job, outside=True)).wait(60_000).starts().applied()
    assert outcomes(job)[1] == (2, "TRIAL"), "the batch was one of the attempt before"
    job.commit()
    assert outcomes(job)[1] == (2, "IN_FORCE")


def test_a_version_that_commits_nothing_in_its_time_is_taken_back() -> None:
    job = on_trial(**{LIMIT: "10 s"})
    job.wait(9_000)
    assert outcomes(job)[1] == (2, "TRIAL")
    job.wait(2_000)
    assert job.kind == "Restarting" and job.effect(StopAttempt).mode is StopMode.KILL
    job.stops()
    assert in_force(job) == OLD and "slotwise.version.trial-period" in job.state.versions.notes[1].why


def test_a_version_whose_plan_was_applied_stays_when_its_trial_is_over() -> None:
    job = on_trial(**{LIMIT: "10 s"})
    job.applied()
    assert outcomes(job)[1] == (2, "TRIAL")
    job.wait(11_000)
    assert outcomes(job)[1] == (2, "IN_FORCE") and job.kind == "Executing"


def test_without_a_limit_it_may_take_its_time() -> None:
    job = on_trial(**{LIMIT: "0 ms"})
    job.wait(3_600_000)
    assert outcomes(job)[1] == (2, "TRIAL")


def test_one_at_a_time() -> None:
    job = Job(upper=2).run().do(another())
    with pytest.raises(InvalidTransition, match="Version 2 of the job has not proven itself"):
        job.do(another(3))
    job.stops().starts()
    with pytest.raises(InvalidTransition, match="has not proven itself"):
        job.do(another(3))
    job.commit().applied()
    job.do(another(3))
    assert job.kind == "Restarting"


def test_bounds_that_are_declared_meanwhile_count_for_both_versions() -> None:
    job = Job(upper=2).run(held=4).do(another())
    job.put_each(source=(1, 2), agg=(1, 4), sink=(1, 2))
    job.stops()
    assert declared(job)["agg"] == (1, 4)
    job.starts()
    pairs = {one.name: Bounds(1, 4) for one in job.state.graph.vertices}
    job.graph = job.state.graph
    job.version = job.state.requirements.version
    job.put_each(**{name: (one.lower, one.upper) for name, one in pairs.items()})
    job.do(failed(job))
    job.wait(1)
    if job.state.driver.alive and job.kind == "Restarting":
        job.stops()
    assert in_force(job) == OLD
    assert declared(job) == {"source": (1, 4), "agg": (1, 4), "sink": (1, 4)}


def test_a_job_that_waits_for_slots_takes_it_at_once() -> None:
    job = Job(lower=2, upper=2)
    job.submit(held=1)
    assert job.kind == "WaitingForResources"
    job.do(another())
    assert in_force(job) == NEW and job.kind == "WaitingForResources"


def test_a_start_in_progress_is_given_up_for_it() -> None:
    job = Job(upper=2).submit()
    assert job.kind == "CreatingExecutionGraph"
    job.do(another())
    assert job.kind == "WaitingForResources" and job.effect(StopAttempt).mode is StopMode.KILL
    assert in_force(job) == OLD
    job.stops()
    assert in_force(job) == NEW and job.kind == "CreatingExecutionGraph"


def test_a_job_that_keeps_failing_is_mended_by_it() -> None:
    job = Job(upper=2).run()
    job.do(failed(job))
    assert job.kind == "Restarting" and job.state.phase.stopped
    job.do(another())
    assert in_force(job) == NEW and job.kind == "CreatingExecutionGraph"


def test_a_change_on_its_way_is_left() -> None:
    job = Job(upper=2).run(held=4)
    job.put(1, 4)
    assert job.kind == "Rescaling"
    job.do(another()).stops().starts().commit().applied()
    assert in_force(job) == NEW and outcomes(job)[1] == (2, "IN_FORCE")


def test_a_job_that_ends_first_keeps_its_version() -> None:
    job = Job(upper=2).run().do(another())
    job.do(AttemptFinished(job.state.attempt))
    assert job.status.value == "FINISHED" and in_force(job) == OLD
    assert outcomes(job)[1] == (2, "DROPPED") and job.state.spare is None


def test_a_cancel_during_the_trial() -> None:
    job = on_trial()
    job.do(CancelRequested()).stops()
    assert job.status.value == "CANCELED" and job.state.versions.replacement is None


@pytest.mark.parametrize("documented", [8, 12])
def test_state_that_was_redistributed_keeps_its_partitions_when_a_version_is_taken_back(
    documented: int,
) -> None:
    """Its document still has 8 for the server that takes the job over. That of the version tried may have either."""
    job = done(begun(running(held=12)), 12).applied()
    tried = replace(stateful(documented), artifacts=("bad.py",))
    job.do(VersionRequested(JobVersion(2, tried, job.state.options), "ann")).stops().starts()
    assert partitions(job) == 12
    job.do(failed(job))
    assert outcomes(job)[1] == (2, "TAKEN_BACK") and partitions(job) == 12
    read_back = with_partitions(stateful(8), job.state.partitions.numbers)
    assert numbers_of(read_back) == numbers_of(job.state.graph)


def test_state_as_its_document_says_counts_as_such_when_a_version_is_taken_back() -> None:
    job = running()
    tried = replace(stateful(8), artifacts=("bad.py",))
    job.do(VersionRequested(JobVersion(2, tried, job.state.options), "ann")).stops().starts().do(failed(job))
    assert outcomes(job)[1] == (2, "TAKEN_BACK")
    assert job.state.partitions.numbers == (), "another number in the next document is refused"


@pytest.mark.parametrize(("upper", "asked"), [(2, 12), (12, None)])
def test_state_partitions_that_are_asked_for_meanwhile_end_with_the_change_and_the_record_says_so(
    upper: int, asked: int | None
) -> None:
    job = running()
    tried = replace(stateful(8), artifacts=("other.py",))
    job.do(VersionRequested(JobVersion(2, tried, job.state.options), "ann"))
    put(job, upper, asked).stops()
    assert partitions(job) == 8 and job.state.requirements.state_partitions == ()
    assert job.state.requirements[AGG] == Bounds(1, min(upper, 8))
    sentence = "The state of agg stays at 8 partitions: ask for 12 again."
    assert job.open.message is not None and sentence in job.open.message
    job.starts().do(AttemptFailed(job.state.attempt, "KeyError: k", stopped=False))
    put(job, upper, asked).stops()
    assert outcomes(job)[1] == (2, "TAKEN_BACK") and partitions(job) == 8
    assert sentence in (job.open.message or "")


def test_a_change_of_version_says_nothing_of_state_that_has_the_partitions_asked_for() -> None:
    job = done(begun(running(held=12)), 12).applied()
    tried = replace(stateful(8), artifacts=("other.py",))
    job.do(VersionRequested(JobVersion(2, tried, job.state.options), "ann")).stops()
    assert "stays at" not in (job.open.message or "")
