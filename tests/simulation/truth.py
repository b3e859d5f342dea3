"""What is known of a job from outside, and how a broken promise is told."""

from __future__ import annotations

import traceback
from dataclasses import dataclass, field
from pathlib import Path

from app.model.job_state.partitions import Repartition
from app.model.requirements import Bounds, Requirements
from app.model.rescale import RescaleRecord
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
    ask for, by mark; ``numbered``: of which vertices they ask for a number of state partitions.

    ``answers``: to requests with an Idempotency-Key, with the request and who gave the answer, by key.
    ``may_end_otherwise``: a client canceled it, or a driver said that its failure is not recoverable.
    """

    stored: dict[int, Requirements] = field(default_factory=dict)
    attempted: dict[str, dict[str, Bounds]] = field(default_factory=dict)
    numbered: dict[str, set[str]] = field(default_factory=dict)
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

    @staticmethod
    def is_as_asked(wanted: Requirements, bounds: dict[str, Bounds], queued: dict[str, Bounds]) -> bool:
        """Whether ``wanted`` has ``bounds``, or they were ``queued`` then. What they leave out, vertices of a program's
        queries that do not run, is as it was, or `Deadlines` complains."""
        held = wanted.as_dict()
        return all(own in (held.get(vertex), queued.get(vertex)) for vertex, own in bounds.items())
