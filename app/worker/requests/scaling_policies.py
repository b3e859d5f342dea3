"""A PUT of a job's scaling policy: accepted or refused by the state at the moment when it is processed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from app.model.scaling_policy import NO_LIMITS, FloorCeiling, ScalingPolicy, faults, in_graph
from app.scheduler.adaptive.events import ScalingPolicyUpdated
from app.scheduler.adaptive.evolve import evolve
from app.scheduler.adaptive.state import JobState
from app.scheduler.step import status_of
from app.worker.job.idempotency import request_hash_of
from app.worker.job.mailbox import RequestDecision
from app.worker.requests.slot_shares import refusal_by_cap
from app.worker.views import InvalidRequest, RequirementsResult, StaleVersion, StateConflict


@dataclass(frozen=True, slots=True)
class ScalingPolicyUpdate:
    """A PUT of a scaling policy, or a DELETE, which sets no limits. Keys of ``vertices`` are ids of vertices, or what
    was given in the place of one. ``if_match`` is the version of If-Match."""

    all_vertices: FloorCeiling = NO_LIMITS
    vertices: Mapping[str, FloorCeiling] = field(default_factory=dict)
    if_match: int | None = None
    requested_by: str | None = None
    reason: str | None = None
    idempotency_key: str | None = None


def policy_hash(update: ScalingPolicyUpdate) -> str:
    """What makes two requests with one Idempotency-Key the same request."""
    vertices = sorted((vertex, own.floor, own.ceiling) for vertex, own in update.vertices.items())
    everywhere = (update.all_vertices.floor, update.all_vertices.ceiling)
    return request_hash_of(["scaling-policy", everywhere, vertices, update.if_match, update.reason])


def next_policy(state: JobState, update: ScalingPolicyUpdate, now_ms: int) -> ScalingPolicy:
    """The policy that ``update`` makes; that of ``state`` if it sets exactly the same limits.

    Raises:
        StateConflict: the job has ended, or its cap does not allow the floors.
        StaleVersion: If-Match names another version than the one in force.
        InvalidRequest: the limits do not fit the job.
    """
    status, known = status_of(state), state.policy
    if status.is_globally_terminal:
        raise StateConflict(
            f"Job {state.job_id} has reached the terminal state {status.value}: "
            "its scaling policy cannot be changed."
        )
    if update.if_match is not None and update.if_match != known.version:
        raise StaleVersion(
            f"If-Match names version {update.if_match}, but the scaling policy is at version {known.version}: "
            "read it again and decide again."
        )
    gone = known.gone_from(state.graph)
    if errors := faults(state.graph, update.all_vertices, update.vertices, gone):
        raise InvalidRequest(*errors)
    policy = ScalingPolicy(
        known.version + 1,
        update.all_vertices,
        in_graph(state.graph, update.vertices.items(), gone),
        update.requested_by,
        update.reason,
        now_ms,
    )
    if policy.same_as(known):
        return known
    changed = evolve(state, policy=policy)
    if (refused := refusal_by_cap(changed, changed.bounds)) is not None:
        raise StateConflict(refused)
    return policy


def with_policy(
    state: JobState, update: ScalingPolicyUpdate, now_ms: int
) -> tuple[JobState, tuple[str, ...]]:
    """``state`` as ``update`` would make it, and why it would be refused; raises like `next_policy` if it is stale."""
    try:
        return evolve(state, policy=next_policy(state, update, now_ms)), ()
    except (InvalidRequest, StateConflict) as refused:
        return state, tuple(refused.errors)


def decide_policy(state: JobState, update: ScalingPolicyUpdate, now_ms: int) -> RequestDecision:
    """What a PUT of a scaling policy does; raises like `next_policy`."""
    policy = next_policy(state, update, now_ms)
    if policy is state.policy:
        return RequestDecision(None, RequirementsResult(policy.version, changed=False))
    return RequestDecision(ScalingPolicyUpdated(policy), RequirementsResult(policy.version, changed=True))
