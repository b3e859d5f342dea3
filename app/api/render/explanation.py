"""What counts for a job and why: its explanation, its scaling policy, and the answer of a dry run."""

from __future__ import annotations

from app.api.schema import declared
from app.api.schema import rescales as schema
from app.api.schema.base import made_of
from app.model.requirements import Bounds
from app.model.scaling_policy import FloorCeiling, ScalingPolicy
from app.scheduler.adaptive.bounds_declared import cancelable_of
from app.scheduler.adaptive.state import JobState
from app.worker.views import DryRun, Explanation


def explanation(value: Explanation) -> schema.Explanation:
    state = value.state
    bounds, counting = state.requirements.as_dict(), state.bounds.as_dict()
    return schema.Explanation(
        jid=state.job_id,
        name=state.graph.name,
        status=value.status,
        scheduler_state=state.phase.kind,
        requirements_version=state.requirements.version,
        slots=made_of(schema.SlotsExplained, value),
        slot_share=_slot_share(value),
        scaling_policy=policy_version(state.policy),
        executors=_executors(value),
        supply=made_of(schema.SupplyExplained, value.supply),
        vertices={
            vertex.id: schema.VertexExplained(
                name=vertex.name,
                lower_bound=bounds[vertex.id].lower,
                upper_bound=bounds[vertex.id].upper,
                effective_lower_bound=counting[vertex.id].lower,
                effective_upper_bound=counting[vertex.id].upper,
                max_parallelism=vertex.max_parallelism,
                attainable=None if value.attainable is None else value.attainable.get(vertex.id),
                in_force=None if value.in_force is None else value.in_force.get(vertex.id),
                tasks=value.tasks.get(vertex.id),
            )
            for vertex in state.graph.vertices
        },
        reactive=state.options.is_reactive,
        rollback=_rollback(state),
        on_trial_until_ms=None if state.trial.watch is None else state.trial.watch.until_ms,
        queued=_queued(state),
        cancelable_rescales=[one.record for one in cancelable_of(state)],
        sentences=list(value.sentences),
        violations=list(value.violations),
        last_batch_timestamp_ms=value.last_batch_ms,
    )


def policy(value: ScalingPolicy) -> declared.ScalingPolicy:
    return declared.ScalingPolicy(all_vertices=_limits(value.all_vertices), vertices=_vertices(value))


def policy_version(value: ScalingPolicy) -> declared.PolicyVersion:
    return made_of(
        declared.PolicyVersion, value, all_vertices=_limits(value.all_vertices), vertices=_vertices(value)
    )


def _vertices(value: ScalingPolicy) -> dict[str, declared.VertexLimits]:
    return {vertex: _limits(limits) for vertex, limits in value.vertices}


def _limits(limits: FloorCeiling) -> declared.VertexLimits:
    return made_of(declared.VertexLimits, limits)


def _executors(value: Explanation) -> schema.ExecutorsExplained | None:
    return None if value.executors is None else made_of(schema.ExecutorsExplained, value.executors)


def _slot_share(value: Explanation) -> declared.ShareExplained:
    share, allotment = value.state.share, value.allotment
    return made_of(
        declared.ShareExplained,
        share,
        share=None if allotment is None else allotment.share,
        allowed=None if allotment is None else allotment.allowed,
        why=None if allotment is None else declared.ShareReason(allotment.why.value),
        missing=0 if allotment is None else allotment.missing,
        due_timestamp_ms=None if allotment is None else allotment.due_ms,
    )


def _rollback(state: JobState) -> schema.RollbackExplained | None:
    taken = state.trial.taken_back
    if taken is None:
        return None
    return made_of(
        schema.RollbackExplained,
        taken,
        rescale=taken.record or None,
        tried=dict(taken.tried),
        good=dict(taken.good),
    )


def _queued(state: JobState) -> list[schema.QueuedExplained]:
    return [
        made_of(
            schema.QueuedExplained,
            one,
            rescale=one.record or None,
            bounds=_resolved(dict(one.bounds)),
            state_partitions=dict(one.partitions),
            begun=one.begun is not None,
            deadline_timestamp_ms=one.deadline.at_ms,
            on_timeout=one.deadline.on_timeout,
        )
        for one in state.queued
    ]


def _resolved(bounds: dict[str, Bounds]) -> dict[str, schema.ResolvedBounds]:
    return {vertex_id: made_of(schema.ResolvedBounds, own) for vertex_id, own in bounds.items()}


def dry_run(value: DryRun) -> schema.DryRun:
    return made_of(schema.DryRun, value, bounds=_resolved(value.bounds))
