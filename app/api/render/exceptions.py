"""The exception history of a job, newest first, with concurrent failures."""

from __future__ import annotations

from typing import Any

from app.api.render.jobs import exception_name
from app.api.schema.jobs import ExceptionHistory, ExceptionInfo, JobExceptions, RootExceptionInfo
from app.scheduler.adaptive.state import Failure, JobState


def exception_history(state: JobState, max_exceptions: int | None = None) -> JobExceptions:
    """``max_exceptions``: the most root exceptions."""
    groups = [group for group in reversed(state.failures) if group]
    shown = groups if max_exceptions is None else groups[:max_exceptions]
    # The core keeps as many as the option says and counts no more: a full history may have lost older ones.
    full = len(groups) >= state.options.exception_history_size
    history = ExceptionHistory(
        entries=[_root(group) for group in shown], truncated=len(shown) < len(groups) or full
    )
    return JobExceptions(exception_history=history)


def _root(group: tuple[Failure, ...]) -> RootExceptionInfo:
    concurrent = [ExceptionInfo(**_fields(failure)) for failure in group[1:]]
    return RootExceptionInfo(**_fields(group[0]), concurrent_exceptions=concurrent)


def _fields(failure: Failure) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "exception_name": exception_name(failure.error),
        "stacktrace": failure.stack or failure.error,
        "timestamp": failure.at_ms,
        "failure_labels": _labels(failure),
        "message": failure.error,
        "attempt": failure.attempt,
    }
    if failure.vertex is not None:
        fields["task_name"] = failure.vertex
    return fields


def _labels(failure: Failure) -> dict[str, str]:
    labels = {"failover": "local"} if failure.local else {}
    return labels | ({"why": failure.why} if failure.why else {})
