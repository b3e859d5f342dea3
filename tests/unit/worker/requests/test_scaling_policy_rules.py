"""A PUT of a scaling policy while a new version of the job is on trial that lacks a vertex of it."""

from __future__ import annotations

import pytest

from app.model.job_state.versions import JobVersion
from app.model.jobgraph import JobGraph
from app.model.scaling_policy import FloorCeiling, ScalingPolicy
from app.scheduler.adaptive.events import ScalingPolicyUpdated, VersionRequested
from app.scheduler.adaptive.state import JobState
from app.worker.refusals import InvalidRequest
from app.worker.requests.declared import ScalingPolicyUpdate, next_policy
from tests.unit.scheduler.driving import Job, vertex


@pytest.fixture
def on_trial() -> tuple[JobState, str]:
    """A job whose version on trial lacks a vertex that has a ceiling, and the id of that."""
    job = Job(upper=4).run(held=4)
    agg = job.graph.vertices[1].id
    job.do(ScalingPolicyUpdated(ScalingPolicy(2, vertices=((agg, FloorCeiling(None, 2)),)))).applied()
    new = JobGraph("under-test", job.graph.type, (job.graph.vertices[0], vertex("sink", ["source"])))
    job.do(VersionRequested(JobVersion(2, new, job.state.options), "ann")).stops().starts()
    assert agg not in job.state.graph.by_id
    return job.state, agg


def test_what_get_answers_can_be_put_with_a_change(on_trial: tuple[JobState, str]) -> None:
    state, agg = on_trial
    kept, source = dict(state.policy.vertices), state.graph.vertices[0].id
    same = next_policy(state, ScalingPolicyUpdate(vertices=kept), 7)
    assert same is state.policy
    changed = next_policy(state, ScalingPolicyUpdate(vertices={**kept, source: FloorCeiling(1, 3)}), 7)
    assert changed.vertices == ((source, FloorCeiling(1, 3)), (agg, FloorCeiling(None, 2)))
    assert next_policy(state, ScalingPolicyUpdate(), 7).vertices == (), "leaving it out removes it"


def test_what_no_version_has_and_what_contradicts_itself_is_refused(on_trial: tuple[JobState, str]) -> None:
    state, agg = on_trial
    with pytest.raises(InvalidRequest) as refused:
        wrong = {"f" * 32: FloorCeiling(1), agg: FloorCeiling(3)}
        next_policy(state, ScalingPolicyUpdate(FloorCeiling(None, 2), wrong), 7)
    assert list(refused.value.errors) == [
        f"Job vertex {'f' * 32} was not found in the job graph.",
        f"For job vertex {agg}, the floor 3 is above the ceiling 2.",
    ]
