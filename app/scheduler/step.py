"""The scheduler of a job as one pure function: `step(state, event, now_ms) -> (state, effects, told)`.

Rule 1: nothing here reads a clock, draws a number or waits. Time is what the caller hands in.
Rule 2: an event that changes nothing gives back the very same state object, no effects, and tells nothing.
Rule 3: an event that does not fit raises `InvalidTransition` and changes nothing.

Timers live in ``state.timers``; the caller fires them. There is no effect that arms one.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from app.model.job_state.changes import Trial
from app.model.jobgraph import JobGraph
from app.model.options import JobOptions
from app.model.requirements import Requirements
from app.model.slot_share import SlotShare
from app.model.status import JobStatus
from app.scheduler.adaptive import (
    bounds_queue,
    growth,
    local_failover,
    no_change,
    repeated_errors,
    slot_declaration,
    trial,
)
from app.scheduler.adaptive.draft import ENTRY, Draft, Handler, InvalidTransition, Row
from app.scheduler.adaptive.effects import Effect
from app.scheduler.adaptive.events import (
    BatchCompleted,
    BoundsUpdated,
    Event,
    PlanApplied,
    RequirementsUpdated,
    SlotsChanged,
    SlotShareUpdated,
    TimerFired,
)
from app.scheduler.adaptive.journal import Told
from app.scheduler.adaptive.state import Executing, JobState
from app.scheduler.adaptive.transition_manager import waits_for_change
from app.scheduler.transitions import PHASES, STAY, TRANSITIONS

EVENTS: Final = tuple(kind.__name__ for kind in Event.__args__)


def _expanded() -> dict[tuple[str, str], Row]:
    """A row per pair, in the order of the phases and events. That a pair is there twice is a mistake."""
    found: dict[tuple[str, str], Row] = {}
    for (phases, events, handlers), edges in TRANSITIONS.items():
        streaming, batched = handlers if isinstance(handlers, tuple) else (handlers, handlers)
        for phase in (phases,) if isinstance(phases, str) else phases:
            for event in events if isinstance(events, tuple) else (events,):
                pair = (phase, ENTRY if event is ENTRY else event.__name__)
                if pair in found:
                    raise ValueError(f"The transition table has {pair} twice.")
                targets = {phase if target == STAY else target: when for target, when in edges.items()}
                found[pair] = Row(streaming, batched, targets)
    order = (ENTRY, *EVENTS)
    return dict(sorted(found.items(), key=lambda one: (PHASES.index(one[0][0]), order.index(one[0][1]))))


TABLE: Final = _expanded()
"""(phase kind, event kind or ENTRY) -> its row."""


def initial_state(
    job_id: str, graph: JobGraph, options: JobOptions, requirements: Requirements, now_ms: int
) -> JobState:
    """A job that was just submitted, in Created."""
    weight, priority, cap = options.slots_weight, options.slots_priority, options.slots_cap
    who = requirements.requested_by
    return JobState(
        job_id=job_id,
        graph=graph,
        options=options,
        requirements=requirements,
        phase_since_ms=now_ms,
        status_since_ms=((JobStatus.INITIALIZING, now_ms),),
        share=SlotShare(1, weight, priority, cap, requested_by=who, changed_ms=now_ms),
        trial=Trial(unproven=True),
    )


def step(state: JobState, event: Event, now_ms: int) -> tuple[JobState, tuple[Effect, ...], tuple[Told, ...]]:
    """What ``event`` makes of the job, what is to be done about it, and what there is to tell of it.

    ``now_ms`` may go back; the time that counts here never goes back behind what the state has seen.

    Raises:
        InvalidTransition: the event does not fit the phase; nothing was changed.
    """
    phase = state.phase
    kind = type(event)
    if (
        kind is BatchCompleted
        and isinstance(phase, Executing)
        and event.attempt == state.attempt  # type: ignore[union-attr]
        and phase.first_batch
        and waits_for_change(phase.manager)
        and not event.not_followed  # type: ignore[union-attr]
        and not any(_USED_AT_BATCHES(state))
    ):
        # The hot path: a batch of a job that has nothing to do.
        return state, (), ()
    if kind in _OF_ATTEMPT:
        attempt: int = event.attempt  # type: ignore[union-attr]
        if attempt < state.attempt:
            return state, (), ()
        if attempt > state.attempt:
            raise InvalidTransition(state, kind.__name__, f"Attempt {attempt} was never started")
    elif isinstance(event, TimerFired) and not _is_due(state, event, now_ms):
        return state, (), ()
    row = TABLE.get((phase.kind, kind.__name__))
    if row is None:
        raise InvalidTransition(state, kind.__name__, f"A job in {phase.kind} does not take {kind.__name__}")
    handler = row.batch if state.graph.runs_by_regions else row.streaming
    if handler is None or _is_repetition(state, event):
        return state, (), ()
    draft = Draft(state, event, max(now_ms, _latest_ms(state)), TABLE)
    _work(draft, event, handler)
    if draft.state is not state:
        for enter, used in _AFTER:
            if not used or any([field_of(draft.state) or field_of(state) for field_of in used]):
                enter(draft, state, event)
    return draft.state, tuple(draft.effects), tuple(draft.told)


def _work(draft: Draft, event: Event, handler: Handler) -> None:
    """Give ``event`` to the rules that enter before the handler, and then to the handler, as far as they leave it."""
    everywhere = _TIMERS.get(event.name) if isinstance(event, TimerFired) else None
    if everywhere is not None:
        everywhere(draft)
        return
    for enter in _BEFORE.get(type(event), ()):
        enter(draft, event)
    if draft.left is not None:
        draft.is_handled = True
        handler(draft, draft.left)


def _is_due(state: JobState, event: TimerFired, now_ms: int) -> bool:
    """Whether the state still holds the timer and its time has come; else the event is stale."""
    return any(
        timer.name == event.name and timer.version == event.version and now_ms >= timer.at_ms
        for timer in state.timers
    )


def _is_repetition(state: JobState, event: Event) -> bool:
    """Whether ``event`` says only what the state knows: equal bounds, equal slots."""
    if isinstance(event, BoundsUpdated):
        # Another reason alone changes nothing: it is told with what it leads to. What was refused or taken back may be
        # asked for again.
        if state.partitions.refused is not None or state.trial.taken_back is not None:
            return False
        if isinstance(event, RequirementsUpdated):
            return event.undoes is None and state.requirements.same_as(event.requirements)
        return state.policy.same_as(event.policy)
    if isinstance(event, SlotShareUpdated):
        return event.share == state.share
    return isinstance(event, SlotsChanged) and (event.slots, event.allowed, event.cluster_unreachable) == (
        state.slots,
        state.supply.allowed,
        state.cluster_unreachable,
    )


def _latest_ms(state: JobState) -> int:
    """The latest instant that the state has seen; the clock of a host may be set back."""
    record = state.timeline.open
    return max(state.phase_since_ms, record.start_ms) if record else state.phase_since_ms


_OF_ATTEMPT: Final = frozenset(kind for kind in Event.__args__ if "attempt" in kind.__dataclass_fields__)


def _sort_bounds(draft: Draft, event: RequirementsUpdated) -> None:
    """Bounds without a deadline, while none wait, are the handler's."""
    if draft.state.queued or event.deadline is not None or event.undoes is not None:
        draft.left = bounds_queue.sort_declared_bounds(draft, event)


@dataclass(frozen=True, slots=True)
class Rule:
    """What is decided beside the handlers of the phases.

    It enters a step at places of its own: ``before`` the handler of some kinds of events, to which it may leave less
    (`Draft.left`); ``after`` it, with the state before the step; and at ``timers`` that mean the same in every phase.
    ``uses``: the fields of the state that are empty, before and behind the step, of a job that does not need the rule.
    """

    before: Mapping[type, Callable[[Draft, Any], None]] = field(default_factory=dict)
    after: Callable[[Draft, JobState, Event], None] | None = None
    uses: tuple[str, ...] = ()
    timers: Mapping[str, Callable[[Draft], None]] = field(default_factory=dict)


RULES: Final = (
    Rule(before={BatchCompleted: repeated_errors.forget_passed}, uses=("recovery.user_errors",)),
    # Bounds that wait are applied by handlers, so every other rule sees what came of that.
    Rule(
        before={RequirementsUpdated: _sort_bounds},
        after=bounds_queue.apply_what_has_slots,
        uses=("queued",),
        timers={bounds_queue.DEADLINE_TIMER: bounds_queue.end_deadline},
    ),
    Rule(
        before={BatchCompleted: trial.note_batch, PlanApplied: trial.note_batch},
        after=trial.settle_trial,
        uses=("trial.watch", "spare", "trial.unproven"),
        timers={trial.TRIAL_TIMER: trial.end_version_trial},
    ),
    Rule(
        after=local_failover.hold_local_timer,
        uses=("recovery.local",),
        timers={local_failover.LOCAL_TIMER: local_failover.restart_or_escalate},
    ),
    Rule(after=growth.hold_late_timer, uses=("driver.started",)),
    # Which slots are asked for and which are surplus follows from all that was decided.
    Rule(
        after=slot_declaration.declare_slots,
        timers={slot_declaration.IDLE_TIMER: slot_declaration.release_idle},
    ),
    # Last, because it says why nothing was decided.
    Rule(after=no_change.note_no_change),
)
"""In the order in which they enter at each place."""

_BEFORE: Final[dict[type, tuple[Callable[[Draft, Any], None], ...]]] = {
    kind: tuple(rule.before[kind] for rule in RULES if kind in rule.before)
    for kind in {kind for rule in RULES for kind in rule.before}
}
_USED_AT_BATCHES: Final[Callable[[JobState], tuple[object, ...]]] = operator.attrgetter(
    *(name for rule in RULES if BatchCompleted in rule.before for name in rule.uses)
)
"""What makes a rule look at each batch."""
_AFTER: Final = tuple(
    (rule.after, [operator.attrgetter(name) for name in rule.uses])
    for rule in RULES
    if rule.after is not None
)
_TIMERS: Final = {name: due for rule in RULES for name, due in rule.timers.items()}
