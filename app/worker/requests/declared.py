"""PUTs of what is declared for a job: accepted or refused by the state at the moment when each is processed. Those of
the scaling policy and of the slot share are here, with the effect of a cap on bounds; requirements have a module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from app.model.jobgraph import JobGraph
from app.model.options import JobOptions
from app.model.requirements import Requirements
from app.model.scaling_policy import NO_LIMITS, FloorCeiling, ScalingPolicy, faults, in_graph, within
from app.model.slot_share import SlotShare, beyond_cap
from app.model.status import JobStatus
from app.model.value import evolve
from app.scheduler.adaptive.bounds_declared import bounds_with_queue
from app.scheduler.adaptive.draft import status_of
from app.scheduler.adaptive.events import ScalingPolicyUpdated, SlotShareUpdated
from app.scheduler.adaptive.goal import needed_beyond_cap
from app.scheduler.adaptive.state import JobState
from app.scheduler.slots import Demand
from app.worker.job.mailbox import RequestDecision
from app.worker.refusals import InvalidRequest, StaleVersion, StateConflict
from app.worker.views import RequirementsResult, Update


@dataclass(frozen=True, slots=True)
class ScalingPolicyUpdate(Update):
    """A PUT of a scaling policy, or a DELETE, which sets no limits. Keys of ``vertices`` are ids of vertices, or what
    was given in the place of one."""

    subject: ClassVar[str] = "the scaling policy is"
    refusal: ClassVar[str] = "its scaling policy cannot be changed"

    all_vertices: FloorCeiling = NO_LIMITS
    vertices: Mapping[str, FloorCeiling] = field(default_factory=dict)

    def parts(self) -> list[object]:
        vertices = sorted((vertex, own.floor, own.ceiling) for vertex, own in self.vertices.items())
        everywhere = (self.all_vertices.floor, self.all_vertices.ceiling)
        return ["scaling-policy", everywhere, vertices, self.if_match, self.reason]


@dataclass(frozen=True, slots=True)
class SlotShareUpdate(Update):
    """A PUT of a slot share. Its numbers are within their ranges."""

    subject: ClassVar[str] = "the slot share is"
    refusal: ClassVar[str] = "its slot share cannot be changed"

    weight: int
    priority: int
    cap: int | None

    def parts(self) -> list[object]:
        return ["slot-share", self.weight, self.priority, self.cap, self.if_match, self.reason]


def refuse_ended(job_id: str, status: JobStatus, refusal: str) -> None:
    """Raises StateConflict: the job is over."""
    if status.is_globally_terminal:
        raise StateConflict(f"Job {job_id} has reached the terminal state {status.value}: {refusal}.")


def refuse_stale(update: Update, version: int) -> None:
    """Raises StaleVersion: If-Match names another version than ``version``, the one in force."""
    if update.if_match is not None and update.if_match != version:
        it = "them" if update.subject.endswith("are") else "it"
        raise StaleVersion(
            f"If-Match names version {update.if_match}, but {update.subject} at version {version}: "
            f"read {it} again and decide again."
        )


def next_policy(state: JobState, update: ScalingPolicyUpdate, now_ms: int) -> ScalingPolicy:
    """The policy that ``update`` makes; that of ``state`` if it sets exactly the same limits.

    Raises:
        StateConflict: the job has ended, or its cap does not allow the floors.
        StaleVersion: If-Match names another version than the one in force.
        InvalidRequest: the limits do not fit the job.
    """
    known = state.policy
    refuse_ended(state.job_id, status_of(state), update.refusal)
    refuse_stale(update, known.version)
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
    for declared in (changed.requirements, bounds_with_queue(changed)):
        if (refused := refusal_by_cap(changed, declared)) is not None:
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
    """Raises like `next_policy`."""
    policy = next_policy(state, update, now_ms)
    if policy is state.policy:
        return RequestDecision(None, RequirementsResult(policy.version, changed=False))
    return RequestDecision(ScalingPolicyUpdated(policy), RequirementsResult(policy.version, changed=True))


def decide_share(state: JobState, update: SlotShareUpdate, now_ms: int) -> RequestDecision:
    """
    Raises:
        StateConflict: the job has ended, or the cap is below its lower bounds, those that hold or those that wait.
        StaleVersion: If-Match names another version than the one in force.
    """
    known = state.share
    refuse_ended(state.job_id, status_of(state), update.refusal)
    refuse_stale(update, known.version)
    if known.asks(update.weight, update.priority, update.cap):
        return RequestDecision(None, RequirementsResult(known.version, changed=False))
    waiting = within(state.policy, state.graph, bounds_with_queue(state))
    conflict = beyond_cap(
        max(_least_slots(state.graph, each) for each in (state.bounds, waiting)), update.cap
    )
    if conflict is not None:
        raise StateConflict(conflict)
    version = known.version + 1
    share = SlotShare(
        version, update.weight, update.priority, update.cap, update.requested_by, update.reason, now_ms
    )
    return RequestDecision(SlotShareUpdated(share), RequirementsResult(version, changed=True))


def refusal_by_cap(state: JobState, requirements: Requirements) -> str | None:
    """Why the cap in force does not allow ``requirements``; None if it does."""
    needed = needed_beyond_cap(state, requirements)
    if needed is None:
        return None
    return (
        f"The lower bounds need {needed} slot(s), and the cap of the job is {state.share.cap}: ask for lower ones, "
        f"or have the cap raised first (PUT /jobs/{state.job_id}/slot-share)."
    )


def refusal_at_submission(graph: JobGraph, requirements: Requirements, options: JobOptions) -> list[str]:
    """A sentence if the cap of a graph is below its own lower bounds."""
    conflict = beyond_cap(_least_slots(graph, requirements), options.slots_cap)
    return [] if conflict is None else [f"config: Option slotwise.slots.cap: {conflict}"]


def _least_slots(graph: JobGraph, requirements: Requirements) -> int:
    """The slots of the lower bounds, also of those that wait for vertices of a program."""
    waiting = [one.lower or 0 for one in graph.bounds if one.vertex not in graph.by_name]
    return max([Demand.of(graph, requirements).minimal, *waiting])
