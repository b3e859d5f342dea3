"""A query that comes with other vertices than it had: plans, bounds, records and what was taken back follow."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.model.jobgraph import Role
from app.model.planned import PlannedVertex
from app.model.rescale import TriggerCause
from app.model.state_partitions import numbers_of
from app.scheduler.adaptive.events import AttemptFailed
from tests.unit.scheduler.driving import Job
from tests.unit.scheduler.programs import COPYING, COUNTING, begun, declared, names, starts_query

SAMPLED = (
    COUNTING[0],
    PlannedVertex("some", Role.OPERATOR, "Sample", ("in",)),
    replace(COUNTING[1], inputs=("some",)),
    COUNTING[2],
)
FEWER = (COUNTING[0], replace(COUNTING[1], state_partitions=3, fixed="it is far away"), COUNTING[2])


def open_vertices(job: Job) -> list[tuple[str, int | None, int | None]]:
    name = {one.id: one.name for one in job.state.graph.vertices}
    return [(name[one.vertex_id], one.pre, one.post) for one in job.open.vertices]


@pytest.mark.parametrize(("before", "after"), [(COUNTING, SAMPLED), (SAMPLED, COUNTING)])
def test_an_open_record_goes_on_with_the_vertices_that_there_are(
    before: tuple[PlannedVertex, ...], after: tuple[PlannedVertex, ...]
) -> None:
    job = starts_query(begun(), before)
    starts_query(job, after)
    assert names(job) == [one.name for one in after] and job.parallelism == [2] * len(after)
    assert [name for name, _, _ in open_vertices(job)] == names(job)
    assert {(pre, post) for name, pre, post in open_vertices(job) if name != "some"} == {(None, 2)}
    assert (job.open.number, job.open.requirements_uuid) == (1, job.state.requirements.uuid)
    # Only a vertex that comes is told of.
    told = [(one.cause, len(one.vertices)) for one in job.records]
    assert told == ([(TriggerCause.INITIAL_SCHEDULE, 1)] if after is SAMPLED else [])
    assert job.commit().nothing_open
    assert job.ended()[-1] == ("INITIAL_SCHEDULE", "SUCCEEDED", 2 if after is SAMPLED else 1)


def test_state_with_fewer_partitions_limits_the_plan_and_the_bounds_and_is_not_redistributed() -> None:
    job = starts_query(begun(held=6, upper=6), parallelism=6).commit()
    assert (job.parallelism, declared(job)["counts"]) == ([6, 6, 6], (1, 6))
    job.graph = job.state.graph
    job.put(4, 6)
    starts_query(job, FEWER)
    assert job.parallelism == [6, 3, 6]
    assert declared(job) == {"in": (4, 6), "counts": (3, 3), "out": (4, 6)}
    assert job.kind == "Executing" and dict(numbers_of(job.state.graph)).popitem()[1] == 3
    assert job.commit().wait(3_600_000).state.partitions.repartition is None


def test_state_with_more_partitions_leaves_the_bounds_that_were_declared() -> None:
    job = starts_query(begun(held=2, upper=6), FEWER).commit()
    assert declared(job)["counts"] == (1, 3)
    starts_query(job, COUNTING)
    assert declared(job)["counts"] == (1, 3) and job.state.partitions.repartition is None


def test_what_was_taken_back_names_its_vertices_in_the_order_of_the_graph() -> None:
    """A query that comes with other vertices is behind the others."""
    job = starts_query(starts_query(begun(upper=4)), COPYING).commit()
    job.hold(4).applied()
    job.do(AttemptFailed(job.state.attempt, "Too many connections.", stopped=True)).starts()
    assert job.state.trial.taken_back is not None and job.parallelism == [2] * 5
    starts_query(job, SAMPLED)
    assert names(job) == ["raw", "copy", "in", "some", "counts", "out"]
    assert job.state.trial.taken_back is not None and len(job.state.trial.taken_back.good) == 5
    # The vertex that has come is free of it.
    job.commit()
    assert dict(zip(names(job), job.parallelism, strict=True))["counts"] == 2
