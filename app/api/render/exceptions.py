"""The exception history: what went wrong in a job, newest first, with what went wrong at the same time."""

from __future__ import annotations

from typing import Any

from app.api.render.jobs import exception_name
from app.scheduler.adaptive.state import Failure, JobState


def exception_history(state: JobState, max_exceptions: int | None = None) -> dict[str, Any]:
    """``max_exceptions``: at most so many roots."""
    groups = [group for group in reversed(state.failures) if group]
    shown = groups if max_exceptions is None else groups[:max_exceptions]
    # The core keeps as many as the option says and counts no more: a full history may have lost older ones.
    full = len(groups) >= state.options.exception_history_size
    return {
        "exceptionHistory": {
            "entries": [_root(group) for group in shown],
            "truncated": len(shown) < len(groups) or full,
        }
    }


def _root(group: tuple[Failure, ...]) -> dict[str, Any]:
    return {**_entry(group[0]), "concurrentExceptions": [_entry(failure) for failure in group[1:]]}


def _entry(failure: Failure) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "exceptionName": exception_name(failure.error),
        "stacktrace": failure.stack or failure.error,
        "timestamp": failure.at_ms,
        "failureLabels": _labels(failure),
        "message": failure.error,
        "attempt": failure.attempt,
    }
    if failure.vertex is not None:
        entry["taskName"] = failure.vertex
    return entry


def _labels(failure: Failure) -> dict[str, str]:
    labels = {"failover": "local"} if failure.local else {}
    return labels | ({"why": failure.why} if failure.why else {})
