"""Local failover: of a job with several queries only the one that failed is restarted (FLIP-160's first extension).

FLIP-160 sketches a state "Restarting locally". Here it is a part of Executing and of Rescaling, because the other
queries run on and are rescaled meanwhile: `Recovery.local` has one entry per query that was restarted so in the current
attempt. The driver reports the failure and holds the query until it is ordered to start it again. Parallelism does not
change, so there is no rescale record; one that is open gets a sentence.

It becomes a global failover when the query fails again before it has committed a batch, or has not committed one in its
time, or when the job has too few slots for its lower bounds, or a rescale is to blame. Its time is counted by those who
hear the driver: a control plane that takes the job up begins anew when the driver has called.
"""

from __future__ import annotations

from typing import Final

from app.model.job_state.failures import Failure, LocalRestart
from app.model.option_values import LOCAL_TIMEOUT
from app.model.sentences import duration_in_words
from app.model.value import evolve
from app.scheduler.adaptive import repeated_errors, restart_strategy, timeline
from app.scheduler.adaptive.blame import is_excused, trial_of
from app.scheduler.adaptive.draft import Draft
from app.scheduler.adaptive.effects import RestartQuery
from app.scheduler.adaptive.events import DriverContact, Event, QueryFailed, QueryRecovered
from app.scheduler.adaptive.failover import handle_failure
from app.scheduler.adaptive.failures import failure_of, record_failure
from app.scheduler.adaptive.goal import goal_of
from app.scheduler.adaptive.journal import Restarted
from app.scheduler.adaptive.state import Executing, JobState, Rescaling

LOCAL_TIMER: Final = "local-restart"
"""When the next query is to be started again, or is to have committed a batch."""


def due_ms(state: JobState) -> int | None:
    """When something is to be done about a query that was restarted alone; None if nothing is."""
    pending = [_due_ms(state, one) for one in state.recovery.local if not one.over]
    return min([at_ms for at_ms in pending if at_ms is not None], default=None)


def _due_ms(state: JobState, one: LocalRestart) -> int | None:
    if not one.ordered:
        return one.restart_ms
    return None if one.unheard else one.restart_ms + _allowed_ms(state, one)


def _allowed_ms(state: JobState, one: LocalRestart) -> int:
    """How long it may take to commit a batch: else one with long batches would be restarted twice each time."""
    return max(state.options.local_timeout_ms, 2 * one.longest_batch_ms)


# ---- what drivers report, in Executing and in Rescaling


def query_failed(draft: Draft, event: QueryFailed) -> None:
    """Restart the query alone, or the whole job, or fail."""
    state = draft.state
    known = next((one for one in state.recovery.local if one.query == event.query), None)
    if known is not None and event.number <= known.number:
        return
    failure = failure_of(draft, event)
    obstacle = _obstacle(draft, event, failure, known)
    if obstacle is not None:
        why = f"{event.why} {obstacle}".strip()
        _escalate(draft, evolve(failure, why=why), event)
        return
    error = repeated_errors.of_event(state, event)
    if error is not None:
        repeated_errors.note(draft, error)
    decision = restart_strategy.of_job(state, draft.now_ms)
    assert decision.delay_ms is not None
    record_failure(draft, evolve(failure, local=True), root=True)
    timeline.note(draft, f"A query failed and is restarted alone: {failure.error}")
    restart_ms = draft.now_ms + decision.delay_ms
    one = LocalRestart(
        event.query,
        event.number,
        draft.now_ms,
        restart_ms,
        failure.error,
        longest_batch_ms=event.longest_batch_ms,
    )
    draft.set_part(
        "recovery",
        strategy=decision.state,
        num_restarts=state.recovery.num_restarts + 1,
        local=(*[other for other in state.recovery.local if other.query != event.query], one),
    )
    if decision.delay_ms == 0:
        restart_or_escalate(draft)
    if isinstance(draft.state.phase, Executing | Rescaling):
        # Else another query has had the whole job restarted.
        draft.tell(Restarted(event.query, event.number, decision.delay_ms))


def query_recovered(draft: Draft, event: QueryRecovered) -> None:
    """The query has committed a batch since it was started again, or has nothing to do."""
    draft.set_part(
        "recovery",
        local=tuple(
            evolve(one, over=True) if one.query == event.query and one.number == event.number else one
            for one in draft.state.recovery.local
        ),
    )


def event_of_takeover(state: JobState) -> DriverContact | None:
    """What a control plane tells a job that it has taken up with its driver; None if it makes no difference."""
    return DriverContact(state.attempt, heard=False) if state.is_query_restarting else None


def event_of_first_call(state: JobState) -> DriverContact | None:
    """What is to be told when the driver has called for the first time."""
    return (
        DriverContact(state.attempt, heard=True) if any(one.unheard for one in state.recovery.local) else None
    )


def driver_contact(draft: Draft, event: DriverContact) -> None:
    """Time in which the driver could not be reached does not count for the timeout of an order."""

    def seen(one: LocalRestart) -> LocalRestart:
        if one.over or one.unheard is not event.heard:
            return one
        begins = event.heard and one.ordered
        return evolve(one, unheard=not event.heard, restart_ms=draft.now_ms if begins else one.restart_ms)

    known = tuple(seen(one) for one in draft.state.recovery.local)
    if known != draft.state.recovery.local:
        draft.set_part("recovery", local=known)


def _obstacle(draft: Draft, event: QueryFailed, failure: Failure, known: LocalRestart | None) -> str | None:
    """Why the query cannot be restarted alone, in a sentence, which is empty where the failure says it all."""
    state, options = draft.state, draft.state.options
    sinks = {vertex.id for vertex in state.graph.vertices if vertex.is_sink}
    if options.local_timeout_ms == 0 or len(sinks) < 2 or event.query not in sinks or not event.recoverable:
        return ""
    if restart_strategy.of_job(state, draft.now_ms).delay_ms is None:
        return ""
    if repeated_errors.exhausted(state, repeated_errors.of_event(state, event)) is not None:
        return ""
    at_ms = draft.now_ms if event.at_ms is None else min(event.at_ms, draft.now_ms)
    by_job = not event.outside and not is_excused(state, failure)
    if by_job and trial_of(state, at_ms, event.plan_version) is not None:
        return ""
    if known is not None and not known.over:
        return "The query was restarted alone and failed again before it had committed a batch."
    return _missing_slots(draft)


def _missing_slots(draft: Draft) -> str | None:
    minimal, usable = goal_of(draft).now.minimal, draft.state.usable_slots
    if usable >= minimal:
        return None
    return (
        f"The query is not restarted alone: the lower bounds need {minimal} slots and the job has {usable}."
    )


# ---- time


def restart_or_escalate(draft: Draft) -> None:
    """Order what has waited for its backoff, and give up what has not got going in its time."""
    for one in draft.state.recovery.local:
        due_at_ms = None if one.over else _due_ms(draft.state, one)
        if due_at_ms is None or due_at_ms > draft.now_ms:
            continue
        late = _late(draft.state, one) if one.ordered else _missing_slots(draft)
        if late is not None:
            failure = Failure(f"{late} It had failed with: {one.error}", draft.now_ms, draft.state.attempt)
            _escalate(draft, evolve(failure, vertex=_sink(draft.state, one)), None)
            return
        begun = evolve(one, ordered=True, restart_ms=draft.now_ms)
        draft.set_part(
            "recovery", local=tuple(begun if other is one else other for other in draft.state.recovery.local)
        )
        draft.emit(RestartQuery(draft.state.attempt, one.query, one.number))


def _late(state: JobState, one: LocalRestart) -> str:
    return (
        f"The query of sink {_sink(state, one)} was restarted alone and has not committed a batch within "
        f"{_allowed_ms(state, one)} ms ({LOCAL_TIMEOUT}), so the whole job is restarted."
    )


def _escalate(draft: Draft, failure: Failure, event: QueryFailed | None) -> None:
    recoverable = event is None or event.recoverable
    handle_failure(draft, failure, stopped=False, recoverable=recoverable, cause=event)


def hold_local_timer(draft: Draft, _: JobState, __: Event) -> None:
    """Bring the timer in line at the end of a step; what was restarted alone is over with its attempt."""
    state = draft.state
    if not isinstance(state.phase, Executing | Rescaling):
        if state.recovery.local:
            draft.set_part("recovery", local=())
        return
    draft.keep(LOCAL_TIMER, due_ms(state))


# ---- other phases


def stopping_query_failed(draft: Draft, event: QueryFailed) -> None:
    """A query that is down cannot be drained."""
    _escalate(draft, failure_of(draft, event), event)


# ---- in words


def in_words(state: JobState, now_ms: int) -> list[str]:
    sentences = []
    for one in state.recovery.local:
        if one.over:
            continue
        then = _then(state, one, now_ms)
        sentences.append(
            f"The query of sink {_sink(state, one)} failed and is restarted alone, the others run on. {then} "
            f"It failed with: {one.error}"
        )
    return sentences


def _then(state: JobState, one: LocalRestart, now_ms: int) -> str:
    at_ms = _due_ms(state, one)
    if at_ms is None:
        return "It was ordered to start again. This server has just taken the job up and not heard its driver yet."
    left = duration_in_words(at_ms - now_ms)
    if one.ordered:
        return f"It was started again and has {left} to commit a batch, or the whole job is restarted."
    return f"It is started again in {left}."


def _sink(state: JobState, one: LocalRestart) -> str:
    return state.graph.by_id[one.query].name
