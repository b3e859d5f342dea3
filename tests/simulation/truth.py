"""What is known of a job from outside, and how a broken promise is told."""

from __future__ import annotations

import traceback
from dataclasses import dataclass, field
from pathlib import Path

from app.model.requirements import Bounds, Requirements
from app.model.rescale import RescaleRecord
from app.scheduler.adaptive.repartition_state import Repartition
from app.scheduler.adaptive.state import JobState
from app.worker.views import RequirementsResult


def described(error: BaseException) -> str:
    """An error that is not a violation: of the simulator itself, or one that the control plane let through."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"error: {error!r} at {Path(last.filename).name}:{last.lineno}"


class Violation(AssertionError):
    """A promise was broken. ``promise`` names it."""

    def __init__(self, promise: str, detail: str) -> None:
        super().__init__(f"{promise}: {detail}")
        self.promise = promise


@dataclass
class JobTruth:
    """What is known of a job from outside. ``stored``: requirements by version, as committed. ``attempted``: what PUTs
    ask for, by mark.

    ``answers``: to requests with an Idempotency-Key, with the request and who gave the answer, by key.
    ``may_end_otherwise``: a client canceled it, or a driver said that its failure is not recoverable.
    """

    stored: dict[int, Requirements] = field(default_factory=dict)
    attempted: dict[str, dict[str, Bounds]] = field(default_factory=dict)
    promised: dict[int, dict[str, Bounds]] = field(default_factory=dict)
    newest_promised: int = 0
    answers: dict[str, tuple[object, RequirementsResult, object]] = field(default_factory=dict)
    records: dict[int, RescaleRecord] = field(default_factory=dict)
    open: int | None = None
    state: JobState | None = None
    may_end_otherwise: bool = False
    repartition: Repartition | None = None
    end_counted: bool = False
    no_changes: dict[tuple[str, int, int, int], int] = field(default_factory=dict)
    """The highest count of decisions not to act, by reason, version of the requirements, first instant and version of
    the scaling policy."""

    def is_as_asked(self, wanted: Requirements, bounds: dict[str, Bounds], *, changed: bool = True) -> bool:
        """Whether ``wanted`` has ``bounds``, and what they leave out as it was: vertices of a program's queries that do
        not run."""
        before = self.stored[wanted.version - 1].as_dict() if changed else wanted.as_dict()
        return wanted.as_dict() == {**before, **bounds}
