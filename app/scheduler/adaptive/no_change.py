"""Decisions to change nothing, with their reason.

There is one event for each reason (`app.worker.job.public_events`), and another at each power of ten of its
count, so slots that come and go for days cost few rows. A step that changes nothing else does not count,
because the state would have to be written only for the count.
"""

from __future__ import annotations

from typing import Final

from app.model.job_state.no_change import NoChange, NoChangeReason
from app.model.plan import parallelism_in_words
from app.model.value import evolve
from app.scheduler.adaptive import goal
from app.scheduler.adaptive.draft import Draft
from app.scheduler.adaptive.events import (
    Event,
    QueryEnded,
    QueryStarted,
    RequirementsUpdated,
    ScalingPolicyUpdated,
    SlotsChanged,
    SlotShareUpdated,
    StateRepartitioned,
    TimerFired,
)
from app.scheduler.adaptive.goal import attainable_now
from app.scheduler.adaptive.journal import LeftAsItIs
from app.scheduler.adaptive.queued_slots import QueuedSlots
from app.scheduler.adaptive.state import Executing, Finished, JobState, Manager, WaitingForResources

_LOOKS: Final = (
    RequirementsUpdated,
    ScalingPolicyUpdated,
    SlotShareUpdated,
    SlotsChanged,
    StateRepartitioned,
    QueryStarted,
    QueryEnded,
)
"""Under these, at timers of a phase, and when it enters Executing the scheduler looks at what the job could become."""


def versions_of(state: JobState) -> tuple[int, int, int]:
    """Of the requirements, of the scaling policy and of the newest plan: what was decided at others counts no more."""
    return state.requirements.version, state.policy.version, state.plan_version


def note_no_change(draft: Draft, before: JobState, event: Event) -> None:
    """Forget what was decided at other bounds or another plan; count what was decided now, if the scheduler has looked
    at what the job could become."""
    state = draft.state
    known = state.no_change
    if known:
        over, now = isinstance(state.phase, Finished), versions_of(state)
        kept = () if over else tuple(one for one in known if one.versions == now)
        if len(kept) < len(known):
            for one in known:
                if one not in kept:
                    draft.tell(LeftAsItIs(one, over=True))
            draft.set(no_change=kept)
    looked = isinstance(event, _LOOKS) or (isinstance(event, TimerFired) and draft.is_handled)
    began = draft.transitions > 0 and isinstance(state.phase, Executing)
    is_moved = state.requirements is not before.requirements
    found = _reason(draft) if looked or began or is_moved else None
    if found is not None:
        _count(draft, *found)


def _count(draft: Draft, reason: NoChangeReason, message: str) -> None:
    state, now_ms = draft.state, draft.now_ms
    others = [one for one in state.no_change if one.reason is not reason]
    if len(others) == len(state.no_change):
        version, policy_version, plan_version = versions_of(state)
        one = NoChange(reason, message, version, plan_version, 1, now_ms, now_ms, policy_version)
    else:
        known = next(one for one in state.no_change if one.reason is reason)
        one = evolve(known, message=message, count=known.count + 1, last_ms=now_ms)
    draft.tell(LeftAsItIs(one, over=False))
    draft.set(no_change=(*others, one))


def _reason(draft: Draft) -> tuple[NoChangeReason, str] | None:
    """Why nothing is changed now; None if something is, or if there is nothing to do and no request."""
    state, phase = draft.state, draft.state.phase
    # What is not decided yet of a BATCH job is decided when its region starts, whatever it holds now.
    if state.graph.runs_by_regions:
        return None
    if isinstance(phase, WaitingForResources):
        return _of_waiting(state, phase.manager)
    if isinstance(phase, Executing):
        return _of_executing(draft, phase.manager)
    return None


def _of_waiting(state: JobState, manager: Manager) -> tuple[NoChangeReason, str] | None:
    if state.driver.alive:
        return None
    if state.cluster_unreachable:
        return _UNREACHABLE
    missing = state.supply.minimal - state.usable_slots
    if missing > 0:
        sentence = f"{missing} more slot(s) are needed for the lower bounds, without which it is not started."
        return NoChangeReason.SLOTS_MISSING, sentence
    return NoChangeReason.STABILIZATION, "More of the slots that are wanted may come before it is started."


def _of_executing(draft: Draft, manager: Manager) -> tuple[NoChangeReason, str] | None:
    state = draft.state
    view = attainable_now(draft)
    if view.parallelism is None:
        sentence = f"The lower bounds need {state.supply.minimal} slots, and {view.goal.usable} can be used."
        if goal.comes_back_below(state, state.supply.minimal):
            sentence += " If the job has to be started again, it starts with what there is."
        return NoChangeReason.SLOTS_MISSING, sentence
    if view.rung is not None:
        if not view.outlook.sufficient:
            return _UNREACHABLE
        change = f"A change to {parallelism_in_words(state.graph, view.parallelism.items())} ({view.rung})"
        if manager.stage == "Cooldown":
            return NoChangeReason.COOLDOWN, f"{change} waits for the end of the cooldown."
        return (
            NoChangeReason.STABILIZATION,
            f"{change} waits until the slots have been stable, or for a batch.",
        )
    if state.trial.taken_back is not None:
        number = state.trial.taken_back.record
        what = f"Rescale {number}" if number else "A rescale"
        return (
            NoChangeReason.TAKEN_BACK,
            f"{what} was taken back, and is not tried again unless that is asked for.",
        )
    if waiting := [one for one in state.queued if one.begun is None]:
        wanted, usable = min(QueuedSlots.of(state).needed(one) for one in waiting), view.goal.usable
        sentence = f"{wanted} slots are waited for until the deadline, and {usable} can be used."
        return NoChangeReason.DEADLINE, sentence
    if view.goal.usable < view.goal.wanted:
        sentence = f"The upper bounds need {view.goal.wanted} slots, and {view.goal.usable} can be used."
        return NoChangeReason.SLOTS_MISSING, sentence
    if view.goal.wanted < state.supply.declared:
        sentence = f"The upper bounds need {state.supply.declared} slots, and the cap is {state.share.cap}."
        return NoChangeReason.CAP, sentence
    refused = state.partitions.refused
    if refused is not None and state.is_repartition_given_up:
        return NoChangeReason.REPARTITION_REFUSED, refused.error
    if draft.event_kind in ("RequirementsUpdated", "ScalingPolicyUpdated"):
        return NoChangeReason.BOUNDS_MET, "The bounds ask for no other parallelism than is in force."
    return None


_UNREACHABLE: Final = (
    NoChangeReason.CLUSTER_UNREACHABLE,
    "Nothing is started or stopped before the cluster is reachable again.",
)
