"""Hooks for traces of a change of bounds, from the request to its first batch.

They do nothing unless tracing is on (`app.api.tracing`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from app.model.protocol import Report
from app.scheduler.adaptive.state import JobState
from app.store.writes import UnitOfWork
from app.worker.job.mailbox import RequestDecision

Decide = Callable[[JobState], RequestDecision]


class Tracing:
    """Of one control plane. All of it is called on the event loop."""

    def request(
        self, method: str, route: str, job_id: str, headers: Sequence[tuple[bytes, bytes]]
    ) -> contextlib.AbstractContextManager[object]:
        """Around the answer to a request. ``headers``: of the request, which may name a trace that it belongs to."""
        return contextlib.nullcontext()

    def decision(self, job_id: str, decide: Decide) -> Decide:
        """``decide``, which the worker of the job calls in its turn, as part of the request that is answered now."""
        return decide

    def committed(self, unit: UnitOfWork, seconds: float) -> None:
        """``unit`` is durable."""

    def ordered(self, job_id: str, plan_version: int) -> None:
        """A driver was answered that this plan is to be in force."""

    def batch(self, job_id: str, report: Report) -> None:
        """A driver reported a batch."""

    def close(self) -> None:
        """What is not sent yet is sent now, as far as that takes no longer than a moment."""


NO_TRACING = Tracing()
