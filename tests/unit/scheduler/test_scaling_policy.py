"""A scaling policy in the core: floor and ceiling hold when a decision is made, and its changes rescale the job."""

from __future__ import annotations

from typing import Any

from app.model.job_state.partitions import RepartitionRefused
from app.model.job_state.versions import JobVersion
from app.model.jobgraph import JobGraph
from app.model.requirements import Bounds, Deadline, OnTimeout
from app.model.rescale import TriggerCause
from app.model.scaling_policy import FloorCeiling, ScalingPolicy
from app.model.value import evolve
from app.scheduler.adaptive.effects import DeclareResources, SendPlan
from app.scheduler.adaptive.events import CancelRequested, ScalingPolicyUpdated, VersionRequested
from app.scheduler.explain import explain
from tests.parts import with_part
from tests.unit.scheduler.driving import Job, group_graph, restarting_job, vertex
from tests.unit.scheduler.test_rollback import back_to_work, fail


def set_policy(job: Job, floor: int | None = None, ceiling: int | None = None, **who: Any) -> Job:
    """Limits for all vertices."""
    return job.do(
        ScalingPolicyUpdated(
            ScalingPolicy(
                job.state.policy.version + 1, FloorCeiling(floor, ceiling), changed_ms=job.now_ms, **who
            )
        )
    )


def settled(job: Job) -> Job:
    """What was sent is applied."""
    if job.kind == "Rescaling":
        job.applied()
    return job


def test_a_ceiling_lowers_what_runs_and_the_requirements_stay_as_they_were_declared() -> None:
    job = Job(upper=4).run(held=4)
    declared = job.state.requirements
    set_policy(job, ceiling=2, requested_by="olga", reason="the database")
    assert job.effect(SendPlan).plan.parallelism == tuple((one.id, 2) for one in job.graph.vertices)
    job.applied()
    assert job.parallelism == [2, 2, 2]
    assert job.state.requirements is declared
    record = job.records[-1]
    assert (record.cause, record.requested_by, record.request_reason) == (
        TriggerCause.UPDATE_POLICY,
        "olga",
        "the database",
    )
    assert [(one.pre, one.post, one.desired) for one in record.vertices] == [(4, 2, 2)] * 3


def test_a_floor_wins_over_an_upper_bound_that_is_declared_later() -> None:
    """What Flink's autoscaler does every ten seconds."""
    job = set_policy(Job(upper=4).run(held=4), floor=3)
    job.put(1, 1)
    assert settled(job).parallelism == [3, 3, 3]
    assert job.state.requirements.as_dict() == {one.id: Bounds(1, 1) for one in job.graph.vertices}
    (told,) = {one for one in explain(job.state, job.now_ms)[0] if one.startswith("agg may run")}
    assert told == "agg may run at 3 to 3; 1 to 1 was declared. That is the floor 3 of the scaling policy."


def test_a_job_that_waits_needs_the_slots_of_its_floor() -> None:
    job = Job(upper=4).submit(held=0)
    set_policy(job, floor=3)
    assert job.effect(DeclareResources) == DeclareResources(4, 3)
    assert job.hold(2).kind == "WaitingForResources"
    assert job.hold(3).wait(60_000).starts().parallelism == [3, 3, 3]


def test_a_running_job_without_the_slots_of_its_floor_goes_on_and_says_so() -> None:
    job = set_policy(Job(upper=4).run(held=2), floor=3, requested_by="olga", reason="peak")
    assert job.parallelism == [2, 2, 2]
    sentences, violations = explain(job.state, job.now_ms)
    assert violations[0].startswith("source runs at 2, below its lower bound 3")
    assert "The scaling policy is version 2, by olga: peak" in sentences


def test_a_change_that_changes_nothing_for_the_job_leaves_a_record_that_says_so() -> None:
    job = set_policy(Job(upper=4).run(held=4), ceiling=9)
    assert job.ended()[-1] == ("UPDATE_POLICY", "NO_RESOURCES_OR_PARALLELISMS_CHANGE", 2)


def test_equal_limits_change_nothing() -> None:
    job = set_policy(Job(upper=4).run(held=4), ceiling=2)
    before = job.state
    job.do(ScalingPolicyUpdated(evolve(before.policy, version=3, reason="again")))
    assert job.state is before and job.effects == ()


def test_removing_it_lets_the_declared_bounds_count() -> None:
    job = settled(set_policy(Job(upper=4).run(held=4), ceiling=2))
    assert settled(set_policy(job)).parallelism == [4, 4, 4]
    assert not job.state.policy and job.state.policy.version == 3


def test_it_needs_a_restart_where_bounds_would() -> None:
    job = restarting_job(cooldown="0 s", stabilization="0 s", max_delay="0 s")
    set_policy(job, ceiling=1).wait(1)
    assert job.kind == "Restarting"


def test_a_rescale_that_a_policy_led_to_is_taken_back_and_the_job_says_that_it_is_below_its_floor() -> None:
    job = set_policy(Job(upper=2).run(held=4), floor=3)
    assert job.kind == "Rescaling"
    assert back_to_work(fail(job)).parallelism == [2, 2, 2]
    assert (
        job.state.trial.taken_back is not None
        and job.state.trial.taken_back.cause is TriggerCause.UPDATE_POLICY
    )
    _, violations = explain(job.state, job.now_ms)
    assert violations[0].startswith("source runs at 2, below its lower bound 3: rescale 2 was taken back")
    # As with declared bounds, slots that come and go do not lift it, and another change does.
    job.hold(1).hold(4)
    assert job.state.trial.taken_back is not None
    assert settled(set_policy(job, floor=1)).state.trial.taken_back is None


def test_a_job_is_not_taken_back_above_a_ceiling() -> None:
    job = set_policy(Job(upper=4).run(held=4), ceiling=2)
    assert job.kind == "Rescaling"
    fail(job).wait(60_000)
    assert job.starts().parallelism == [2, 2, 2]


def test_a_job_that_ends_keeps_it_for_the_record() -> None:
    job = Job().run().do(CancelRequested("ann"))
    set_policy(job, ceiling=1)
    assert job.ended()[-1][:2] == ("UPDATE_POLICY", "JOB_CANCELED")


def test_limits_of_a_vertex_that_a_new_version_lacks_are_dropped_when_it_has_proven_itself() -> None:
    job = Job(upper=4).run(held=4)
    agg = job.graph.vertices[1].id
    limits = ((agg, FloorCeiling(None, 2)),)
    job.do(ScalingPolicyUpdated(ScalingPolicy(2, FloorCeiling(None, 3), limits))).applied()
    assert job.parallelism == [3, 2, 3]
    vertices = (job.graph.vertices[0], vertex("sink", ["source"]))
    new = JobGraph("under-test", job.graph.type, vertices)
    job.do(VersionRequested(JobVersion(2, new, job.state.options), "ann")).stops()
    assert job.state.policy.version == 2, "the version before may come back"
    assert job.starts().parallelism == [3, 3]
    job.applied().commit()
    policy = job.state.policy
    assert (policy.version, policy.vertices, policy.all_vertices) == (3, (), FloorCeiling(None, 3))
    assert policy.reason == f"Version 2 of the job does not have {agg}."


# ---- bounds and limits that change nothing


def taken_back_below(ceiling: int) -> Job:
    """10 is declared, and 4 under a ceiling failed: 2 is back in force."""
    job = set_policy(Job(upper=2).run(held=2), ceiling=ceiling)
    job.put(1, 10).hold(ceiling)
    assert job.kind == "Rescaling"
    job = back_to_work(fail(job))
    assert job.state.trial.taken_back is not None
    return job.hold(ceiling)


def test_bounds_that_differ_beyond_the_ceiling_only_try_nothing_again() -> None:
    job = taken_back_below(4).put(1, 12).put(1, 11)
    assert (job.kind, job.parallelism) == ("Executing", [2, 2, 2])
    assert job.state.trial.taken_back is not None


def test_bounds_that_differ_below_the_ceiling_do() -> None:
    job = taken_back_below(4).put(1, 3)
    assert (job.kind, job.state.trial.taken_back) == ("Rescaling", None)


def test_and_so_do_the_bounds_that_are_declared_already() -> None:
    job = taken_back_below(4).put(1, 10)
    assert (job.kind, job.state.trial.taken_back) == ("Rescaling", None)


def test_a_policy_that_changes_no_bounds_tries_nothing_again() -> None:
    job = taken_back_below(4)
    other = ScalingPolicy(3, FloorCeiling(None, 4), ((job.graph.vertices[0].id, FloorCeiling(1)),))
    job.do(ScalingPolicyUpdated(other))
    assert job.state.policy is other and job.state.trial.taken_back is not None
    set_policy(job, ceiling=5)
    assert job.state.trial.taken_back is None


def test_nor_does_it_try_a_redistribution_again_that_was_given_up() -> None:
    job = Job(upper=2).run(held=2)
    refused = RepartitionRefused(job.state.requirements.uuid, "Spark could not redistribute it.")
    job.state = with_part(job.state, "partitions", refused=refused)
    set_policy(job, ceiling=64)
    assert job.state.partitions.refused == refused
    job.put(1, 80)
    set_policy(job, ceiling=32)
    assert job.state.partitions.refused is None


def test_bounds_beyond_the_ceiling_do_not_try_it_again_either() -> None:
    job = set_policy(Job(upper=2).run(held=2), ceiling=2)
    refused = RepartitionRefused(job.state.requirements.uuid, "Spark could not redistribute it.")
    job.state = with_part(job.state, "partitions", refused=refused)
    job.put(1, 3)
    assert job.state.partitions.refused == evolve(refused, requirements_uuid=job.state.requirements.uuid)


def test_a_ceiling_counts_at_once_while_bounds_of_another_vertex_wait_for_their_deadline() -> None:
    job = Job(group_graph(["a", "b"]), upper=2).run(held=4)
    job.put_each(Deadline(job.now_ms + 60_000, OnTimeout.ROLLBACK), a=(1, 4), b=(1, 2))
    ceiling = ((job.graph.vertices[1].id, FloorCeiling(None, 1)),)
    job.do(ScalingPolicyUpdated(ScalingPolicy(2, vertices=ceiling))).wait(100)
    assert job.applied().parallelism == [2, 1] and job.state.queued
