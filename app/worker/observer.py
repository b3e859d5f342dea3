"""The hook for what is told of jobs as it happens, and is no part of what they do: who counts, traces or samples.

The control plane has any number of observers (`Observers`) and knows none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import structlog

from app.model.protocol import Report
from app.model.public_event import PublicEvent
from app.scheduler.adaptive.state import JobState
from app.store.errors import StoreError
from app.store.writes import UnitOfWork
from app.worker.job.mailbox import RequestDecision

if TYPE_CHECKING:
    from app.worker.job.job import Job

log = structlog.get_logger()

Decide = Callable[[JobState], RequestDecision]
T = TypeVar("T")


class Observer:
    """Of one control plane. All of it is called on the event loop, and must not wait."""

    def committed(self, unit: UnitOfWork, seconds: float) -> None:
        """``unit`` is durable. ``seconds``: how long that took."""

    def not_committed(self, error: StoreError) -> None:
        """A unit could not be written."""

    def batch_reported(self, job: Job, attempt: int, report: Report, jobs: int) -> PublicEvent | None:
        """A driver reported a batch. ``jobs``: how many this server has. An event becomes durable with the
        acknowledgement of the report."""

    def ordered(self, job_id: str, plan_version: int) -> None:
        """A driver was answered that this plan is to be in force."""

    def decision(self, job_id: str, decide: Decide) -> Decide:
        """What is called in place of ``decide``, and decides the same: it may note what is decided for a request for
        bounds. It is asked for in the context of that request, and called by the worker of the job in its turn."""
        return decide


class Observers(Observer):
    """Several as one. A defect of one of them is logged, and changes nothing for the jobs and the others."""

    def __init__(self, observers: Sequence[Observer] = ()) -> None:
        self._observers = tuple(observers)

    def committed(self, unit: UnitOfWork, seconds: float) -> None:
        self._tell(lambda each: each.committed(unit, seconds))

    def not_committed(self, error: StoreError) -> None:
        self._tell(lambda each: each.not_committed(error))

    def batch_events(self, job: Job, attempt: int, report: Report, jobs: int) -> tuple[PublicEvent, ...]:
        """What all of them want to be told of the job's batches."""
        found = self._tell(lambda each: each.batch_reported(job, attempt, report, jobs))
        return tuple(event for event in found if event is not None)

    def ordered(self, job_id: str, plan_version: int) -> None:
        self._tell(lambda each: each.ordered(job_id, plan_version))

    def decision(self, job_id: str, decide: Decide) -> Decide:
        def take_note(each: Observer) -> None:
            nonlocal decide
            decide = each.decision(job_id, decide)

        self._tell(take_note)
        return decide

    def _tell(self, tell: Callable[[Observer], T]) -> list[T]:
        found = []
        for each in self._observers:
            try:
                found.append(tell(each))
            except Exception:
                log.exception("an observer of jobs met a defect", observer=type(each).__name__)
        return found
