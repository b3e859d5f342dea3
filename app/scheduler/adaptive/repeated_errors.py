"""The limit for consecutive equal errors of a job's own code, which would be raised again (ADR 22).

Errors are counted per query, and those outside of any query per job (the query id is empty), across restarts.
Failures that the cluster causes do not count. A committed batch at or after the failed one ends the row, even if its
report was lost: the next failure is then one of a later batch. Outside of queries any batch or region does that.
"""

from __future__ import annotations

from app.model.job_state.failures import UserError
from app.model.option_values import USER_CODE_ATTEMPTS
from app.model.value import evolve
from app.scheduler.adaptive.draft import Draft
from app.scheduler.adaptive.events import AttemptFailed, BatchCompleted, QueryFailed
from app.scheduler.adaptive.state import JobState


def error_counted(state: JobState, query_id: str, what: str, batch_id: int) -> UserError:
    """The error ``what`` of a query in its batch ``batch_id`` (-1 if unknown), with the number of times in a row."""
    for known in state.recovery.user_errors:
        if known.query_id == query_id and known.what == what and batch_id <= known.batch_id:
            return evolve(known, times=known.times + 1)
    return UserError(query_id, what, batch_id)


def of_event(state: JobState, event: AttemptFailed | QueryFailed | None) -> UserError | None:
    """What ``event`` adds; None if it is no error of the user's code."""
    if event is None or event.user_error is None or event.outside:
        return None
    return error_counted(state, event.query_id, event.user_error, event.batch_id)


def note(draft: Draft, error: UserError) -> None:
    """Take ``error`` down, in the place of what the query failed with before."""
    others = [one for one in draft.state.recovery.user_errors if one.query_id != error.query_id]
    draft.set_part("recovery", user_errors=(*others, error))


def exhausted(state: JobState, error: UserError | None) -> str | None:
    """A sentence if ``error`` has come too often."""
    limit = state.options.user_code_attempts
    if error is None or limit == 0 or error.times < limit:
        return None
    times = "once" if error.times == 1 else f"{error.times} times in a row"
    return (
        f"The same error ({error.what}) came {times} without the query getting further, and the same input raises "
        f"it again ({USER_CODE_ATTEMPTS} is {limit})."
    )


def forget_passed(draft: Draft, event: BatchCompleted) -> None:
    """A query that has committed a batch has got over what it failed with before that."""
    if draft.state.recovery.user_errors:
        forget(draft, event.query_id, event.batch_id)


def forget(draft: Draft, query_id: str, batch_id: int | None = None) -> None:
    """A query has got further, up to ``batch_id``; None if it is done, whatever it failed with. The job has, too."""
    kept = tuple(
        one
        for one in draft.state.recovery.user_errors
        if one.query_id not in ("", query_id)
        or (one.query_id and batch_id is not None and batch_id < one.batch_id)
    )
    if len(kept) < len(draft.state.recovery.user_errors):
        draft.set_part("recovery", user_errors=kept)


def in_words(state: JobState) -> list[str]:
    limit = state.options.user_code_attempts
    if limit == 0:
        return []
    return [
        f"{one.what} came {one.times} time(s) in a row without getting further; after {limit} the job fails."
        for one in state.recovery.user_errors
    ]
