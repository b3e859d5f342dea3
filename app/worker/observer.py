"""The hook for what is told of jobs as it happens, and is no part of what they do: who counts, traces or samples.

The control plane has any number of observers (`Observers`) and knows none of them.
"""

from __future__ import annotations

from collections.abc import Callable
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


class Observers(tuple[Observer, ...]):
    """Those of one control plane."""

    def decision(self, job_id: str, decide: Decide) -> Decide:
        for each in self:
            decide = each.decision(job_id, decide)
        return decide

    def tell(self, tell: Callable[[Observer], T]) -> list[T]:
        """What ``tell`` gives for each of them. A defect of one is logged, and the jobs and the others go on."""
        found = []
        for each in self:
            try:
                found.append(tell(each))
            except Exception:
                log.exception("an observer of jobs met a defect", observer=type(each).__name__)
        return found
