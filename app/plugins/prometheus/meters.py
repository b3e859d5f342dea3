"""Counters of this server: requests, commits, and the committed events of jobs.

Every label has a fixed set of values, whatever clients send: routes are templates, methods those of HTTP.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection
from typing import Final

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from starlette.types import Scope

from app.api.plugin import Plugin
from app.model.plan import Rung
from app.model.protocol import Report
from app.model.public_event import PublicEvent, PublicEventType
from app.model.rescale import TerminalState, TriggerCause
from app.model.status import TERMINAL_STATUSES
from app.store.errors import LeaseLost, StoreError, StoreUnavailable
from app.store.writes import AddEvents, UnitOfWork
from app.worker.job.job import Job

# When a counter began is what nobody asks here, and it doubles the number of series.
prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]

_NO_ROUTE: Final = "none"
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_OTHER_METHOD: Final = "other"
_NO_RUNG: Final = "none"

_REQUEST_BUCKETS_S: Final = (0.002, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0)
_COMMIT_BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
_RESCALE_BUCKETS_S: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


# They are not written with the changes of a job.
_NOT_OF_JOBS: Final = {
    PublicEventType.JOB_FORGOTTEN,
    PublicEventType.MEMBER_JOINED,
    PublicEventType.MEMBER_LEFT,
}


class _Registry(CollectorRegistry):
    """Makes meters: the series of each by the values of its labels. Each time that a meter itself is asked, it takes a
    lock and makes texts of the values."""

    def counter(self, name: str, text: str, *labels: str) -> Callable[..., Counter]:
        return functools.cache(Counter(name, text, labels, registry=self).labels)

    def histogram(
        self, name: str, text: str, buckets: tuple[float, ...], *labels: str
    ) -> Callable[..., Histogram]:
        return functools.cache(Histogram(name, text, labels, buckets=buckets, registry=self).labels)


class Meters(Plugin):
    """Of one server. ``registry`` is what a scrape reads. ``batches`` and ``records``: what drivers have reported."""

    def __init__(self) -> None:
        self.batches = self.records = 0
        self.registry = registry = _Registry()
        ProcessCollector(registry=registry)
        self._jobs = _JobMeters(registry)
        self._requests = registry.counter(
            "slotwise_http_requests", "Requests that were answered.", "method", "route", "status"
        )
        self._request_seconds = registry.histogram(
            "slotwise_http_request_seconds",
            "Time until the answer to a request began.",
            _REQUEST_BUCKETS_S,
            "method",
            "route",
        )
        self._commit_seconds = Histogram(
            "slotwise_store_commit_seconds",
            "Time from a change of a job until it was durable.",
            buckets=_COMMIT_BUCKETS_S,
            registry=registry,
        )
        self._failed_commits = registry.counter(
            "slotwise_store_commit_failures", "Changes that could not be written.", "reason"
        )
        # From the start, here and below: of a series that begins with 1 Prometheus sees no increase.
        for reason in ("unavailable", "lease-lost", "refused"):
            self._failed_commits(reason)

    def request_answered(self, scope: Scope, status: int, seconds: float) -> None:
        route = scope.get("route")
        path = _NO_ROUTE if route is None else route.path
        method = scope["method"] if scope["method"] in _METHODS else _OTHER_METHOD
        self._requests(method, path, status).inc()
        self._request_seconds(method, path).observe(seconds)

    def batch_reported(self, job: Job, attempt: int, report: Report, jobs: int) -> None:
        self.batches += 1
        self.records += report.input_rows

    def committed(self, unit: UnitOfWork, seconds: float) -> None:
        self._commit_seconds.observe(seconds)
        for write in unit.writes:
            if isinstance(write, AddEvents):
                self._jobs.note(write.events)

    def not_committed(self, error: StoreError) -> None:
        reason = "refused"
        if isinstance(error, StoreUnavailable):
            reason = "unavailable"
        elif isinstance(error, LeaseLost):
            reason = "lease-lost"
        self._failed_commits(reason).inc()


class _JobMeters:
    """What the events tell of all jobs."""

    def __init__(self, registry: _Registry) -> None:
        self._events = registry.counter("slotwise_events_written", "Events that were stored.", "type")
        self._submitted = Counter(
            "slotwise_jobs_submitted", "Jobs that were submitted here.", registry=registry
        )
        self._ended = registry.counter(
            "slotwise_jobs_ended", "Jobs that reached a terminal status.", "status"
        )
        self._rescales = registry.counter(
            "slotwise_rescales", "Rescale records that ended.", "cause", "outcome", "rung"
        )
        self._rescale_seconds = registry.histogram(
            "slotwise_rescale_seconds",
            "Time from the cause of a completed rescale to the first batch after it.",
            _RESCALE_BUCKETS_S,
            "rung",
        )
        self._gap_seconds = registry.histogram(
            "slotwise_rescale_output_gap_seconds", "Output gap of rescales.", _RESCALE_BUCKETS_S, "rung"
        )
        self._restarts = registry.counter(
            "slotwise_restarts", "Restarts of jobs or of single queries.", "scope"
        )
        self._failures = Counter(
            "slotwise_failures", "Failures that were added to exception histories.", registry=registry
        )
        self._attempts = registry.counter("slotwise_attempts_ended", "Attempts that ended.", "outcome")
        for kind in set(PublicEventType) - _NOT_OF_JOBS:
            self._events(kind.value)
        for status in TERMINAL_STATUSES:
            self._ended(status.value)
        for scope in ("job", "query"):
            self._restarts(scope)
        for labels in itertools.product(TriggerCause, TerminalState, (*Rung, _NO_RUNG)):
            self._rescales(*labels)
        for rung in Rung:
            self._rescale_seconds(rung)
            self._gap_seconds(rung)
        for outcome in ("finished", "drained", "stopped", "start-failed", "failed", "given-up"):
            self._attempts(outcome)

    def note(self, events: Collection[PublicEvent]) -> None:
        for event in events:
            self._events(event.type).inc()
            self._note(event)

    def _note(self, event: PublicEvent) -> None:
        fields = event.fields
        match event.type:
            case PublicEventType.STATUS:
                if fields["previousStatus"] is None:
                    self._submitted.inc()
                elif fields["status"] in TERMINAL_STATUSES:
                    self._ended(fields["status"]).inc()
            case PublicEventType.RESCALE_ENDED:
                rung, outcome = fields["rung"] or _NO_RUNG, fields["terminalState"]
                self._rescales(fields["triggerCause"], outcome, rung).inc()
                if outcome == TerminalState.COMPLETED:
                    self._rescale_seconds(rung).observe(fields["durationInMillis"] / 1000)
                if fields["outputGapInMillis"] is not None:
                    self._gap_seconds(rung).observe(fields["outputGapInMillis"] / 1000)
            case PublicEventType.RESTART:
                self._restarts(fields["scope"]).inc()
            case PublicEventType.FAILURE:
                self._failures.inc()
            case PublicEventType.ATTEMPT_ENDED:
                self._attempts(fields["outcome"]).inc()
            case _:
                pass
