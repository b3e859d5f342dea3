"""In the process that imports this, the invariants are checked after each step that the worker of a job makes."""

from __future__ import annotations

from app.scheduler.adaptive.effects import Effect
from app.scheduler.adaptive.events import Event
from app.scheduler.adaptive.journal import Told
from app.scheduler.adaptive.state import JobState
from app.scheduler.step import step
from app.worker.job import worker
from tests.invariants import validate


def _checked_step(
    state: JobState, event: Event, now_ms: int
) -> tuple[JobState, tuple[Effect, ...], tuple[Told, ...]]:
    new, effects, told = step(state, event, now_ms)
    if new is not state or effects:
        validate(new, told)
    return new, effects, told


worker.step = _checked_step  # type: ignore[attr-defined]
