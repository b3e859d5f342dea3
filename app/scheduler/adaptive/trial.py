"""The trial of what was changed, a rescale (ADR 20) or a version of the job (ADR 35): begun, proven, or taken back.

Each knows what was good, what is tried in its place, and until when. Batches prove it, or its time once it has run. If
the job fails of itself before, what was good comes back: no restart strategy is asked, and no backoff runs. A failure
is blamed on the version first, because everything else is tried within it, and then on the rescale; `blame` has the
rules for that one. A redistribution of state is tried before an attempt runs, and leaves the state before as it was:
`repartition.failed_try` counts what fails in it, and nothing else is to blame meanwhile.
"""

from __future__ import annotations

from typing import Final

from app.model.analysis import queries
from app.model.job_state.changes import Pace, TakenBack, Watch
from app.model.job_state.failures import Failure
from app.model.job_state.versions import Replacement
from app.model.plan import Plan, change_in_words, parallelism_in_words
from app.model.rescale import TerminatedReason, TriggerCause
from app.model.value import evolve
from app.scheduler.adaptive import timeline, version_outcome
from app.scheduler.adaptive.blame import (
    capped_by_partitions,
    collapse,
    is_excused,
    is_over,
    is_raise,
    is_watched,
    last_taken_back,
    parallelism_filled_from,
    record_of,
    slots_for,
    trial_of,
    watch_with_batch,
)
from app.scheduler.adaptive.draft import Draft
from app.scheduler.adaptive.events import AttemptFailed, BatchCompleted, Event, PlanApplied, QueryFailed
from app.scheduler.adaptive.failures import record_failure
from app.scheduler.adaptive.goal import goal_of
from app.scheduler.adaptive.state import (
    Executing,
    Finished,
    JobState,
    Phase,
    Rescaling,
    Restarting,
)
from app.scheduler.adaptive.stops import break_off_stop

TRIAL_TIMER: Final = "version-trial"

MOST_FAILED: Final = 3
"""Attempts at a new version that are ended from outside before it has committed a batch: then it is taken back too."""


def put_on_trial(draft: Draft, plan: Plan, before: Plan | None, pace: tuple[Pace, ...], *, ran: bool) -> None:
    """``plan`` has come into force in the place of ``before``. Its watch begins if it is another parallelism.

    ``ran``: as in `Watch`. A plan for fewer slots than ``before`` is no choice, and not on trial, if slots were lost.
    What it goes back to is the last parallelism that has passed. A job that is restarted for another reason during the
    watch is watched anew. While something is taken back nothing is on trial, nor is it if the job has never run well:
    there is nothing better to go back to.
    """
    state = draft.state
    watch, period_ms = state.trial.watch, state.options.rollback_watch_ms
    good = None if before is None or state.trial.unproven else before.parallelism
    if watch is not None:
        good, pace = watch.good, watch.before or pace
    if good is not None:
        good = capped_by_partitions(state.graph, good)
    new: Watch | None = None
    if is_watched(state) and good is not None and state.trial.taken_back is None and plan.parallelism != good:
        # An attempt may have been started with slots that it has to give back by now: it is at work with them.
        forced = max(state.usable_slots, plan.slot_count) < slots_for(state, good)
        if watch is not None or not forced:
            record, cause = record_of(state)
            if watch is not None and watch.tried == plan.parallelism:
                record, cause = watch.record, watch.cause
            pace = pace if is_raise(good, plan.parallelism) else ()
            until_ms = draft.now_ms + period_ms
            new = Watch(good, plan.parallelism, record, cause, draft.now_ms, until_ms, pace, ran=ran)
    if new is not watch:
        draft.set_part("trial", watch=new)


def settle_trial(draft: Draft, before: JobState, _: Event) -> None:
    """The program starts its first query: what it did before at what is on trial does not count. Bring the timer of a
    version in line with the state."""
    state = draft.state
    if before.is_before_query and not state.is_before_query:
        if state.trial.watch is not None:
            until_ms = draft.now_ms + state.options.rollback_watch_ms
            draft.set_part("trial", watch=evolve(state.trial.watch, since_ms=draft.now_ms, until_ms=until_ms))
        begin_of_version(draft)
    if isinstance(draft.state.phase, Finished):
        version_outcome.drop(draft)
        return
    one = _version_on_trial(draft.state)
    running = isinstance(draft.state.phase, Executing | Rescaling)
    draft.keep(TRIAL_TIMER, one.until_ms if one is not None and running else None)


def end_watch_if_over(draft: Draft, grace_ms: int = 0) -> None:
    """The job runs. The rescale on trial has passed if its time was over ``grace_ms`` ago."""
    watch = draft.state.trial.watch
    if watch is not None and is_over(watch, draft.now_ms - grace_ms):
        draft.set_part("trial", watch=None)


def note_batch(draft: Draft, event: BatchCompleted | PlanApplied) -> None:
    """A batch is committed, or its queries have nothing to do: what is on trial has run, whatever the handler makes of
    it."""
    _note_run(draft, event)
    if draft.state.spare is not None:
        _note_progress(draft, event)


def _note_run(draft: Draft, event: BatchCompleted | PlanApplied) -> None:
    """The job has run at the plan in force; also if another one is on its way by now.

    A batch of the plan on its way proves nothing before it is in force: `timeline.complete_record` notes it then.
    """
    state = draft.state
    plan, coming, watch = state.plan, state.coming_plan, state.trial.watch
    if plan is None or event.plan_version < plan.version or state.is_before_query:
        return
    if coming is not None and event.plan_version >= coming.version:
        return
    if state.trial.unproven:
        draft.set_part("trial", unproven=False)
    if watch is not None and not watch.ran:
        draft.set_part("trial", watch=evolve(watch, ran=True))


def blamed(
    draft: Draft, failure: Failure, event: AttemptFailed | QueryFailed | None, *, recoverable: bool
) -> Replacement | Watch | None:
    """What is to blame for a failure of the running attempt.

    A process that was killed, or is gone for an unknown reason, is not the fault of what is on trial. Nor is it the
    fault of a rescale what `is_excused`, or what a program does before its first query.
    """
    found = _rescale_to_blame(draft, failure, event)
    by_job = not recoverable or (event is not None and not event.outside)
    return version_to_blame(draft, by_job=by_job) or found


def blamed_for_start(
    draft: Draft, failure: Failure, *, outside: bool, recoverable: bool
) -> Replacement | Watch | None:
    """What is to blame for an attempt that could not be started. ``outside``: that is not the job's own doing."""
    found = version_to_blame(draft, by_job=not outside or not recoverable)
    if found is not None or outside or draft.state.partitions.repartition is not None:
        return found
    return None if is_excused(draft.state, failure) else trial_of(draft.state, draft.now_ms)


def take_back(draft: Draft, found: Replacement | Watch, failure: Failure, phase: Phase) -> bool:
    """Enter ``phase``, on the way back to what was good before ``found``; False if the job would not change by that.

    So a failure that is final for an attempt is none for the job, which was well before.
    """
    if isinstance(found, Replacement):
        _take_version_back(draft, failure.error, phase)
    elif not _take_rescale_back(draft, found, failure, phase):
        return False
    break_off_stop(draft, failure.error)
    draft.begin()
    return True


# ---- of a rescale


def _rescale_to_blame(
    draft: Draft, failure: Failure, event: AttemptFailed | QueryFailed | None
) -> Watch | None:
    period_ms = draft.state.options.rollback_watch_ms
    if event is None or event.outside or draft.state.is_before_query:
        end_watch_if_over(draft, grace_ms=period_ms)
        return None
    at_ms = draft.now_ms if event.at_ms is None else min(event.at_ms, draft.now_ms)
    found = trial_of(draft.state, at_ms, event.plan_version)
    if found is None and draft.state.trial.watch is not None and is_over(draft.state.trial.watch, at_ms):
        draft.set_part("trial", watch=None)
    return None if is_excused(draft.state, failure) else found


def condemn(draft: Draft, found: Watch, why: str) -> TakenBack | None:
    """From now on the parallelism before is an upper limit. None if the job would not change by that.

    Slots that only the rescale wanted are not declared any more, and free for others.
    """
    state = draft.state
    before = state.trial.watch
    taken = TakenBack(found.good, found.tried, found.record, found.cause, draft.now_ms, why)
    draft.set_part("trial", taken_back=taken, watch=None)
    wish = goal_of(draft).now.parallelism(state.usable_slots)
    if wish is not None and tuple(wish.items()) == found.tried:
        draft.set_part("trial", taken_back=None, watch=before)
        return None
    return taken


def _take_rescale_back(draft: Draft, found: Watch, failure: Failure, phase: Phase) -> bool:
    taken = condemn(draft, found, failure.error)
    if taken is None:
        return False
    _close_failed(draft, taken, failure)
    draft.enter(phase, failure.error)
    open_rollback(draft, taken)
    return True


def _close_failed(draft: Draft, taken: TakenBack, failure: Failure) -> None:
    """End the record that is open: as failed if it is that of the rescale, else as one that a failover cut short."""
    record = draft.state.timeline.open
    if record is None:
        return
    back = parallelism_in_words(draft.state.graph, taken.good)
    own = record.number == taken.record
    timeline.close_record(
        draft,
        TerminatedReason.EXCEPTION_OCCURRED if own else TerminatedReason.JOB_FAILOVER_RESTARTING,
        message=f"Taken back, to {back}: {failure.error}" if own else failure.error,
        exception=failure.error,
    )


def open_rollback(draft: Draft, taken: TakenBack) -> None:
    """Begin the record of the way back. None may be open."""
    change = change_in_words(draft.state.graph, taken.good, taken.tried)
    timeline.open_record(
        draft,
        TriggerCause.RECOVERABLE_FAILOVER,
        message=f"Takes back rescale {taken.record} ({change}): {taken.why}",
        rollback_of=taken.record or None,
    )


def weigh(draft: Draft, event: BatchCompleted) -> str | None:
    """Count a batch of a job that runs at what is on trial; why it is to be taken back if its pace has collapsed."""
    end_watch_if_over(draft)
    state = draft.state
    watch, plan, least = state.trial.watch, state.plan, state.options.rollback_min_throughput
    if watch is None or not watch.before or event.pace is None or least == 0:
        return None
    if plan is None or event.plan_version < plan.version or plan.parallelism != watch.tried:
        return None
    watch = watch_with_batch(watch, event.pace)
    draft.set_part("trial", watch=watch)
    found = collapse(watch, least)
    # In the first half of the watch a host may still be busy with the change itself.
    if found is None or 2 * (draft.now_ms - watch.since_ms) < watch.until_ms - watch.since_ms:
        return None
    before, after = found
    return (
        f"The throughput fell from {before:,.0f} to {after:,.0f} rows per second of running batches while more rows "
        f"waited, below {least:g} of what it was (slotwise.rollback.min-throughput)."
    )


def allow_retry(draft: Draft) -> None:
    """What was taken back may be tried again.

    If what it goes back to is not in force yet, the last plan is a bad one: it must not be taken for what has passed.
    """
    state = draft.state
    if any(one.begun is not None and one.begun.taken_back is not None for one in state.queued):
        draft.set(
            queued=tuple(
                evolve(one, begun=one.begun and evolve(one.begun, taken_back=None)) for one in state.queued
            )
        )
    if (change := state.timeline.change) is not None and change.taken_back is not None:
        draft.set_timeline(change=evolve(change, taken_back=None))
    taken = state.trial.taken_back
    if taken is None:
        return
    watch: Watch | None = None
    last = state.last_plan
    now = None if state.plan is None else state.plan.parallelism
    on_the_way = now is None or now == parallelism_filled_from(taken.tried, now)
    if on_the_way and not state.trial.unproven and last is not None:
        good = parallelism_filled_from(taken.good, last.parallelism)
        until_ms = draft.now_ms + state.options.rollback_watch_ms
        if last.parallelism != good:
            watch = Watch(good, last.parallelism, taken.record, taken.cause, draft.now_ms, until_ms)
    draft.set_part("trial", taken_back=None, watch=watch)


def allow_retry_if_cluster_changed(draft: Draft) -> None:
    """What slots that came had led to may be tried again once the job has lost some: those that come then are others.

    Declared bounds stay refused: they were refused for all numbers of slots.
    """
    state = draft.state
    taken = last_taken_back(state)
    if taken is None or taken.cause.is_asked:
        return
    if state.usable_slots < slots_for(state, taken.good):
        allow_retry(draft)


# ---- of a version


def _take_version_back(draft: Draft, why: str, phase: Phase) -> None:
    """The version before comes once nothing of the attempt is alive."""
    one = draft.state.versions.replacement
    assert one is not None
    timeline.close_failed(draft, TerminatedReason.EXCEPTION_OCCURRED, why)
    version_outcome.change_replacement(draft, stage="Back", why=why, until_ms=None)
    draft.enter(phase, why)
    message = f"Takes back version {one.number} of the job, to version {one.before}: {why}"
    timeline.open_record(draft, TriggerCause.RECOVERABLE_FAILOVER, message=message)


def _version_on_trial(state: JobState) -> Replacement | None:
    return state.versions.replacement if state.versions.is_on_trial else None


def begin_of_version(draft: Draft) -> None:
    """An attempt at what is on trial runs: its time begins. That of a program begins with its first query: what it does
    before may take what time it wants."""
    limit_ms = draft.state.options.version_trial_ms
    if _version_on_trial(draft.state) is not None:
        is_limited = limit_ms > 0 and not draft.state.is_before_query
        version_outcome.change_replacement(
            draft, batch=False, applied=False, until_ms=draft.now_ms + limit_ms if is_limited else None
        )


def _note_progress(draft: Draft, event: BatchCompleted | PlanApplied) -> None:
    """A version has proven itself when a batch with rows is committed, and each query has committed one or has nothing
    to do. A batch without rows calls few of the functions of a job. Each query that keeps state has to be there."""
    one, plan = _version_on_trial(draft.state), draft.state.plan
    if one is None or plan is None or event.plan_version < plan.version:
        return
    version_outcome.change_replacement(
        draft,
        batch=one.batch or (isinstance(event, BatchCompleted) and event.has_rows),
        applied=one.applied or isinstance(event, PlanApplied),
    )
    now = _version_on_trial(draft.state)
    if now is not None and now.batch and now.applied and not _waits_for_state(draft.state):
        version_outcome.prove(draft)


def version_to_blame(draft: Draft, *, by_job: bool) -> Replacement | None:
    """The version on trial if the failure of an attempt is its own. ``by_job``: it is the job's own doing.

    An end of an attempt from outside is not the version's fault, but is not retried for ever.
    """
    one = _version_on_trial(draft.state)
    if one is None or by_job or one.failed + 1 >= MOST_FAILED:
        return one
    version_outcome.change_replacement(draft, failed=one.failed + 1, until_ms=None)
    return None


def end_version_trial(draft: Draft) -> None:
    """A version that has nothing to do stays; one that has committed nothing in all its time does not."""
    draft.disarm(TRIAL_TIMER)
    one = draft.state.versions.replacement
    if one is None:
        return
    if one.applied:
        version_outcome.prove(draft)
        return
    limit_ms = draft.state.options.version_trial_ms
    error = (
        f"It has not committed a batch of each query within {limit_ms} ms (slotwise.version.trial-period)."
    )
    failure = record_failure(draft, Failure(error, draft.now_ms, draft.state.attempt))
    take_back(draft, one, failure, Restarting(0, failures=(failure,)))


def _waits_for_state(state: JobState) -> bool:
    """Whether the program has not started a query yet whose state it is to go on from."""
    known = {*state.driver.started, *state.graph.ended}
    return state.graph.program is not None and any(
        query.stateful and query.key not in known for query in queries(state.graph)
    )
