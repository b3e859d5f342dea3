"""A redistribution of state that waits for queries which a program starts later."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.model import ids
from app.model.job_state.versions import JobVersion
from app.model.jobgraph import JobGraph
from app.model.state_partitions import numbers_of
from app.scheduler.adaptive.draft import InvalidTransition
from app.scheduler.adaptive.events import (
    AttemptFailed,
    AttemptRunning,
    AttemptStopped,
    QueryEnded,
    QueryStarted,
    StateRepartitioned,
    VersionRequested,
)
from app.scheduler.adaptive.repartition import MAX_TRIES, is_left_to_idle
from app.scheduler.explain import explain
from tests.unit.scheduler.driving import COOLDOWN, Job, vertex
from tests.unit.scheduler.test_state_repartition import AT_ONCE, SINK, stateful

LATE = ids.vertex_id("under-test", "sink-late")
SINK_LATE = {"sink-late": (1, 2)}


def two_queries() -> JobGraph:
    """Each with an aggregate and a sink."""
    late = replace(vertex("again", ["source"], maximum=8), stateful=True)
    return replace(stateful(), vertices=(*stateful().vertices, late, vertex("sink-late", ["again"])))


def late(upper: int = 12, cooldown: str = "0 s") -> Job:
    """The state of both is to get 12 partitions, and the program has not started one of them yet."""
    job = Job(two_queries(), upper=2, options={**AT_ONCE, COOLDOWN: cooldown}).run(held=12)
    if cooldown != "0 s":
        job.wait(600_000)
    job.put_each(source=(1, 2), agg=(1, upper), sink=(1, 2), again=(1, upper), **SINK_LATE)
    job.stops(driver_alive=True)
    return starts_one(job)


def starts_one(job: Job) -> Job:
    job.do(StateRepartitioned(job.state.attempt, ((SINK, 12),)))
    job.do(AttemptRunning(job.state.attempt))
    return job.commit()


def numbers(job: Job) -> list[int]:
    return [number for _, number in numbers_of(job.state.graph)]


def test_it_is_done_when_a_query_that_its_program_starts_late_has_it_too() -> None:
    job = late()
    assert job.kind == "Executing" and job.state.partitions.repartition is not None
    words = " ".join(explain(job.state, job.now_ms)[0])
    assert "is done when the program starts its query: the state of again from 8 to 12 partitions." in words
    job.put_each(source=(1, 2), agg=(1, 20), sink=(1, 2), again=(1, 12), **SINK_LATE)
    assert job.kind != "Restarting", "20 have to wait"
    job.do(StateRepartitioned(job.state.attempt, ((LATE, 12),)))
    assert (job.kind, job.state.partitions.repartition) == ("Restarting", None)
    job.stops(driver_alive=True)
    assert numbers(job) == [20, 12]


def of_program() -> Job:
    """The same of a program, which has begun and has started no query yet."""
    job = Job(two_queries(), upper=2, options=AT_ONCE).run(held=12)
    job.put_each(source=(1, 2), agg=(1, 12), sink=(1, 2), again=(1, 12), **SINK_LATE)
    job.stops(driver_alive=True)
    return job.do(AttemptRunning(job.state.attempt, begun=True))


def test_a_program_that_has_begun_redistributes_with_each_query_that_it_starts() -> None:
    job = of_program()
    begun = job.state.partitions.repartition
    assert (job.kind, numbers(job)) == ("Executing", [12, 12]) and begun is not None
    assert set(begun.late) == {SINK, LATE}
    assert "the state of again from 8 to 12 partitions" in " ".join(explain(job.state, job.now_ms)[0])
    for key, left in ((LATE, (SINK,)), (SINK, None)):
        job.do(QueryStarted(job.state.attempt, key, job.state.graph, ()))
        job.do(StateRepartitioned(job.state.attempt, ((key, 12),)))
        now = job.state.partitions.repartition
        assert (None if now is None else now.late) == left
    assert (job.commit().kind, numbers(job), job.nothing_open) == ("Executing", [12, 12], True)
    assert "Redistributed the state of agg from 8 to 12" in (job.records[-1].message or "")


def test_a_program_that_fails_before_its_queries_has_their_state_redistributed_by_the_next_attempt() -> None:
    job = of_program()
    job.do(AttemptFailed(job.state.attempt, "no route to host", stopped=True)).wait(60_000)
    begun = job.state.partitions.repartition
    assert (job.kind, numbers(job)) == ("CreatingExecutionGraph", [12, 12])
    assert begun is not None and begun.failed == 1


def test_a_program_whose_state_cannot_be_redistributed_goes_on_with_what_it_had() -> None:
    job = of_program()
    job.do(AttemptFailed(job.state.attempt, "no space", stopped=True, repartition=True))
    assert (job.kind, job.state.partitions.repartition, numbers(job)) == (
        "CreatingExecutionGraph",
        None,
        [8, 8],
    )
    job.do(AttemptRunning(job.state.attempt, begun=True)).commit()
    assert (job.kind, job.nothing_open) == ("Executing", True)
    sentence = "so the state stays as it is: no space. To try it again, declare"
    assert sentence in " ".join(explain(job.state, job.now_ms)[0])


def test_an_attempt_that_ends_before_a_late_query_has_it_is_followed_by_one_that_is_to_do_it() -> None:
    job = late()
    job.do(AttemptFailed(job.state.attempt, "killed", stopped=True)).wait(60_000)
    assert job.kind == "CreatingExecutionGraph"
    begun = job.state.partitions.repartition
    assert begun is not None and (begun.failed, numbers(job)) == (1, [12, 12])
    starts_one(job)
    assert job.kind == "Executing"
    job.do(StateRepartitioned(job.state.attempt, ((LATE, 12),)))
    assert job.state.partitions.repartition is None and numbers(job) == [12, 12]


def test_what_is_left_to_a_query_that_does_not_run_holds_up_no_new_version() -> None:
    job = late()
    version = VersionRequested(JobVersion(2, job.state.graph, job.state.options))
    with pytest.raises(InvalidTransition, match="being redistributed"):
        job.do(version)
    job.do(QueryStarted(job.state.attempt, SINK, job.state.graph, ()))
    assert is_left_to_idle(job.state), "the other one is absent"
    job.do(version)
    assert (job.kind, job.state.partitions.repartition, numbers(job)) == ("Restarting", None, [12, 8])


def test_what_is_left_to_a_query_that_does_not_run_holds_up_no_other_number_of_one_that_runs() -> None:
    job = late()
    job.do(QueryStarted(job.state.attempt, SINK, job.state.graph, ()))
    job.put_each(source=(1, 2), agg=(1, 12), sink=(1, 2), again=(1, 12), **SINK_LATE)
    assert is_left_to_idle(job.state), "it asks for nothing that has to wait"
    job.put_each(source=(1, 2), agg=(1, 20), sink=(1, 2), again=(1, 12), **SINK_LATE)
    assert (job.kind, job.state.partitions.repartition, numbers(job)) == ("Restarting", None, [12, 8])
    job.stops(driver_alive=True)
    assert numbers(job) == [20, 12], "that of the absent one is asked for on"
    job.do(StateRepartitioned(job.state.attempt, ((SINK, 20),)))
    job.do(AttemptRunning(job.state.attempt))
    job.commit()
    assert job.kind == "Executing" and job.state.partitions.repartition is not None


@pytest.mark.parametrize("stopped", [True, False])
def test_a_late_one_that_cannot_be_done_is_given_up(stopped: bool) -> None:
    job = late()
    attempt = job.state.attempt
    job.do(AttemptFailed(attempt, "no space", stopped=stopped, recoverable=False, repartition=True))
    if not stopped:
        assert job.kind == "Restarting"
        job.do(AttemptStopped(attempt))
    assert job.state.partitions.repartition is None
    assert numbers(job) == [12, 8], "that of the other is done"
    assert job.kind == "CreatingExecutionGraph", "no backoff"
    starts_one(job)
    assert (job.kind, job.parallelism) == ("Executing", [2, 12, 2, 8, 2])
    sentence = "It was not possible to redistribute the state of again from 8 to 12 partitions"
    assert sentence in (job.records[-1].message or "")
    assert sentence in " ".join(explain(job.state, job.now_ms)[0])


def test_a_late_one_that_kills_one_attempt_after_the_other_is_given_up() -> None:
    job = late()
    for _ in range(MAX_TRIES):
        assert numbers(job) == [12, 12]
        job.do(AttemptFailed(job.state.attempt, "out of memory", stopped=True)).wait(120_000)
        starts_one(job)
    assert job.state.partitions.repartition is None and numbers(job) == [12, 8]


def test_a_late_query_that_is_redistributed_while_its_attempt_makes_way_for_a_version_is_not_forgotten() -> (
    None
):
    job = late()
    job.do(QueryStarted(job.state.attempt, SINK, job.state.graph, ()))
    job.do(VersionRequested(JobVersion(2, job.state.graph, job.state.options)))
    assert (job.kind, numbers(job)) == ("Restarting", [12, 8])
    job.do(StateRepartitioned(job.state.attempt, ((LATE, 12),)))
    assert (job.kind, numbers(job)) == ("Restarting", [12, 12]), "its driver was told before"
    job.stops()
    assert (job.state.versions.current, numbers(job)) == (2, [12, 12])


def leaves() -> tuple[Job, JobGraph]:
    """The late query leaves the graph before it is started; and the graph with it."""
    job = late()
    whole = job.state.graph
    gone = tuple(one for one in whole.vertices if one.name not in ("again", "sink-late"))
    job.do(QueryStarted(job.state.attempt, SINK, replace(whole, vertices=gone), ()))
    assert numbers(job) == [12]
    return job, whole


def test_what_was_left_to_a_query_that_leaves_the_graph_is_not_left_to_it_in_the_next_attempt() -> None:
    job, whole = leaves()
    job.do(AttemptFailed(job.state.attempt, "killed", stopped=True)).wait(60_000)
    assert (job.kind, job.state.partitions.repartition) == ("CreatingExecutionGraph", None)
    starts_one(job)
    back = tuple(replace(one, max_parallelism=8) if one.name == "again" else one for one in whole.vertices)
    job.do(QueryStarted(job.state.attempt, LATE, replace(whole, vertices=back), ()))
    assert numbers(job) == [12, 8], "as it was found"
    assert job.state.partitions.numbers == numbers_of(job.state.graph), "who takes the job over knows it"


def test_it_is_given_up_for_a_query_that_comes_back_in_the_attempt_that_has_the_order() -> None:
    job, whole = leaves()
    attempt = job.state.attempt
    # Its driver tells the number that was ordered, and redistributes then.
    job.do(QueryStarted(attempt, LATE, whole, ()))
    assert job.state.partitions.repartition is not None and numbers(job) == [12, 12]
    job.do(AttemptFailed(attempt, "no space", stopped=True, recoverable=False, repartition=True))
    assert (job.kind, job.state.partitions.repartition, numbers(job)) == (
        "CreatingExecutionGraph",
        None,
        [12, 8],
    )


def test_an_order_that_was_passed_over_meanwhile_can_still_fail() -> None:
    job = late(cooldown="60 s")
    attempt = job.state.attempt
    job.do(QueryStarted(attempt, SINK, job.state.graph, ()))
    job.put_each(source=(1, 2), agg=(1, 20), sink=(1, 2), again=(1, 12), **SINK_LATE)
    assert (job.kind, job.state.partitions.repartition) == ("Executing", None), (
        "it comes when the cooldown is over"
    )
    job.do(AttemptFailed(attempt, "no space", stopped=True, recoverable=False, repartition=True))
    assert job.kind == "CreatingExecutionGraph", "no backoff, and no end"


def test_what_is_passed_over_while_an_attempt_starts_is_no_part_of_its_plan() -> None:
    job = late()
    attempt = job.state.attempt
    job.do(QueryStarted(attempt, SINK, job.state.graph, ()))
    job.do(QueryStarted(attempt, LATE, job.state.graph, ()))
    job.do(QueryEnded(attempt, LATE))
    job.do(AttemptFailed(attempt, "killed", stopped=True, outside=True)).wait(60_000)
    assert job.kind == "CreatingExecutionGraph" and job.state.partitions.repartition is not None
    job.put_each(source=(1, 2), agg=(1, 20), sink=(1, 2), again=(1, 12), **SINK_LATE)
    assert job.state.partitions.repartition is None and numbers(job) == [12, 8]
    job.do(AttemptRunning(job.state.attempt)).commit()
    assert job.kind != "CreatingExecutionGraph" and job.parallelism[3] <= 8
