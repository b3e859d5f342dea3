"""States of jobs in which a part is another one."""

from __future__ import annotations

from typing import Any

from app.model.value import evolve
from app.scheduler.adaptive.state import JobState


def with_part(state: JobState, part: str, **changes: Any) -> JobState:
    """``state`` with ``changes`` made in one of its parts, such as ``trial``."""
    return evolve(state, **{part: evolve(getattr(state, part), **changes)})
