"""Failures that a job has met: the exception history."""

from __future__ import annotations

from typing import Final

from app.model.job_state.failures import Failure
from app.scheduler.adaptive.blame import ran_as_before
from app.scheduler.adaptive.draft import Draft
from app.scheduler.adaptive.events import (
    AttemptFailed,
    AttemptStartFailed,
    GlobalFailure,
    QueryFailed,
    RegionFailed,
)

MAX_CONCURRENT_FAILURES: Final = 32
"""Concurrent failures that are kept with one root failure."""

MAX_ERROR_CHARS: Final = 4_000
MAX_STACK_CHARS: Final = 40_000
"""What is kept of an error and of its stack, which are written with each state."""


def failure_of(
    draft: Draft, event: AttemptFailed | AttemptStartFailed | GlobalFailure | QueryFailed | RegionFailed
) -> Failure:
    """``event`` as an entry of the exception history."""
    vertex = stack = None
    why, on_trial, by_files = "", False, False
    if isinstance(event, AttemptFailed | QueryFailed | RegionFailed):
        vertex, stack, why = event.vertex, event.stack, event.why
    if isinstance(event, AttemptFailed | QueryFailed):
        on_trial, by_files = not ran_as_before(draft.state, event.plan_version), event.by_files
    return Failure(
        _shortened(event.error, MAX_ERROR_CHARS),
        draft.now_ms,
        draft.state.attempt,
        vertex,
        None if stack is None else _shortened(stack, MAX_STACK_CHARS),
        why=_shortened(why, MAX_ERROR_CHARS),
        on_trial=on_trial,
        by_files=by_files,
    )


def _shortened(text: str, limit: int) -> str:
    """Both ends of ``text``: Java names the cause first, Python last."""
    return text if len(text) <= limit else f"{text[: limit // 2]} ... {text[-limit // 2 :]}"


def note_failure(draft: Draft, event: GlobalFailure | QueryFailed) -> None:
    """The attempt is being ended already."""
    record_failure(draft, failure_of(draft, event))


def record_failure(draft: Draft, failure: Failure, *, root: bool = False) -> Failure:
    """Add ``failure`` to the history: to the entry of what ended its attempt, or (``root``) as a new one."""
    history = draft.state.recovery.failures
    last = history[-1][0] if history else None
    if last is not None and not root and last.attempt == failure.attempt and not last.local:
        if len(history[-1]) > MAX_CONCURRENT_FAILURES:
            return failure
        history = (*history[:-1], (*history[-1], failure))
    else:
        history = (*history, (failure,))
    draft.tell(failure)
    draft.set_part("recovery", failures=history[-draft.state.options.exception_history_size :])
    return failure
