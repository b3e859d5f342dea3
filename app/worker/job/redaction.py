"""Failures without the secrets of the job, as they may be kept and shown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from app.model.jobgraph import JobGraph
from app.model.secret_texts import secrets_of, without_secrets
from app.scheduler.adaptive.events import (
    AttemptFailed,
    AttemptStartFailed,
    AttemptStopped,
    Event,
    GlobalFailure,
    QueryFailed,
    RegionFailed,
)

# What drivers say of a failure: their exceptions name URLs, options and values.
_FAILURE_TEXTS = ("error", "stack", "why", "user_error")
_LONG_CHARS = 100_000

E = TypeVar("E", bound=Event)


def redacted(event: E, graph: JobGraph) -> E:
    """``event`` without the secrets of the job. One that is redacted already stays as it is."""
    texts: dict[str, str | None]
    match event:
        case AttemptFailed() | QueryFailed() | RegionFailed():
            texts = {name: getattr(event, name) for name in _FAILURE_TEXTS}
        case AttemptStartFailed() | GlobalFailure() | AttemptStopped():
            texts = {"error": event.error}
        case _:
            return event
    if not any(texts.values()):
        return event
    known = secrets_of(graph)
    changed: dict[str, Any] = {
        name: without_secrets(_ends_of(text), known) for name, text in texts.items() if text
    }
    return replace(event, **changed)


def _ends_of(text: str) -> str:
    """The beginning and the end of a long text: less than that is kept, so more need not be searched."""
    return text if len(text) <= 2 * _LONG_CHARS else f"{text[:_LONG_CHARS]} ... {text[-_LONG_CHARS:]}"
