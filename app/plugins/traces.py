"""Traces of rescales for OpenTelemetry: from the PUT through decision, order and restart to the first batch.

A rescale takes longer than its request, and its record says when the scheduler was in which state. So the spans of a
rescale are made when its record ends, with the times of the record, below the span of the request that caused it. A
rescale that no request caused, or whose request an earlier owner of the job has answered, is a trace of its own.
"""

from __future__ import annotations

import time
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Final

import structlog
from cachetools import LRUCache
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue
from starlette.types import Scope

from app.api.plugin import Plugin
from app.model.plan import Rung
from app.model.protocol import Report
from app.model.rescale import RescaleRecord, TerminalState
from app.scheduler.adaptive.events import RequirementsUpdated
from app.scheduler.adaptive.state import JobState
from app.store.writes import AddRequirements, PutRescale, UnitOfWork
from app.worker.job.job import Job
from app.worker.job.mailbox import RequestDecision
from app.worker.observer import Decide

log = structlog.get_logger()

JOBS_KEPT: Final = 10_000
"""Jobs of which the last change is remembered."""
_TRACE_HEADERS: Final = frozenset({b"traceparent", b"tracestate"})
_FLUSH_MS: Final = 2_000
_ROUTE: Final = "/jobs/{jobid}/resource-requirements"
_MS: Final = 1_000_000
"""In nanoseconds."""
_ORDER_STATES: Final = frozenset({"Rescaling", "CreatingExecutionGraph"})
"""States of the scheduler in which a driver is told of a plan."""

Attributes = dict[str, AttributeValue]


@dataclass(slots=True)
class _Cause:
    """A request that declared ``version`` of the bounds, with the uuid ``requirements``. ``context``: its own.
    ``is_durable``: they are stored."""

    version: int
    requirements: str
    context: Context
    decided_ns: int
    is_durable: bool = False


@dataclass(frozen=True, slots=True)
class _Batch:
    number: int
    started_ms: int
    ended_ms: int
    rows: int


@dataclass(frozen=True, slots=True)
class _Rescaled:
    """A record that has ended. ``inside``: the context of its span."""

    inside: Context
    rung: Rung | None
    end_ms: int


@dataclass(slots=True)
class _Job:
    """``causes``: of records that have not ended, by their uuids. ``ordered_ms``: when a driver was told of the newest
    plan, of which ``batch`` was the first. ``without_batch``: the record that this plan has ended, until its first
    batch is reported."""

    causes: dict[str, _Cause] = field(default_factory=dict)
    plan_version: int = 0
    ordered_ms: int = 0
    batch: _Batch | None = None
    without_batch: _Rescaled | None = None


_SCOPE: Final[ContextVar[Scope | None]] = ContextVar("traced_scope", default=None)
"""Of the request that is answered now. Its span is kept in it, and why it was refused."""
_SPAN: Final = "slotwise.span"
_ERROR: Final = "slotwise.span.error"


class OpenTelemetry(Plugin):
    """Hands spans to ``processor``."""

    def __init__(self, processor: SpanProcessor) -> None:
        # What OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES say has precedence.
        own = Resource({SERVICE_NAME: "slotwise", SERVICE_VERSION: version("slotwise")})
        resource = Resource.get_empty().merge(own).merge(OTELResourceDetector().detect())
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("slotwise")
        self._propagator = TraceContextTextMapPropagator()
        self._jobs: LRUCache[str, _Job] = LRUCache(JOBS_KEPT)

    def request_began(self, scope: Scope) -> None:
        _SCOPE.set(scope)

    def request_answered(self, scope: Scope, status: int, seconds: float) -> None:
        if (span := scope.pop(_SPAN, None)) is not None:
            if status >= 400:
                span.set_status(Status(StatusCode.ERROR, scope.get(_ERROR)))
            span.end()

    def decision(self, job_id: str, decide: Decide) -> Decide:
        scope = _SCOPE.get()
        context = Context() if scope is None else self._begin(scope, job_id)

        def traced(state: JobState) -> RequestDecision:
            began_ns = time.time_ns()
            outcome: RequestDecision | Exception
            try:
                outcome = decide(state)
                return outcome
            except Exception as error:
                outcome = error
                if scope is not None:
                    scope[_ERROR] = f"{type(error).__name__}: {error}"
                raise
            finally:
                try:
                    self._decided(job_id, context, began_ns, outcome)
                except Exception:
                    log.exception("a trace met a defect")

        return traced

    def _begin(self, scope: Scope, job_id: str) -> Context:
        """Begin the span of a request, below the one that its headers may name; the context inside it."""
        headers = scope["headers"]
        carrier = {
            name.decode(): value.decode("latin-1") for name, value in headers if name in _TRACE_HEADERS
        }
        span = scope[_SPAN] = self._tracer.start_span(
            f"PUT {_ROUTE}",
            self._propagator.extract(carrier, Context()),
            SpanKind.SERVER,
            {"http.request.method": "PUT", "http.route": _ROUTE, "slotwise.job.id": job_id},
        )
        return set_span_in_context(span, Context())

    def _decided(
        self, job_id: str, context: Context, began_ns: int, outcome: RequestDecision | Exception
    ) -> None:
        if isinstance(outcome, Exception):
            self._span("decision", context, began_ns, time.time_ns(), error=str(outcome))
        elif outcome.event is None:
            self._span("decision", context, began_ns, time.time_ns(), {"slotwise.changed": False})
        elif isinstance(outcome.event, RequirementsUpdated):
            cause = _Cause(outcome.answer.version, outcome.event.requirements.uuid, context, began_ns)
            self._of(job_id).causes[outcome.answer.rescale] = cause

    def committed(self, unit: UnitOfWork, seconds: float) -> None:
        # Not those of the record alone: another version of the job may have replaced them in this very unit.
        written = {write.requirements.uuid for write in unit.writes if isinstance(write, AddRequirements)}
        for record in [write.record for write in unit.writes if isinstance(write, PutRescale)]:
            causes = self._of(unit.job_id).causes
            cause = causes.get(record.uuid)
            if cause is not None and not cause.is_durable:
                cause.is_durable = cause.requirements in written | {record.requirements_uuid}
                if cause.is_durable:
                    attributes: Attributes = {"slotwise.requirements.version": cause.version}
                    self._span("decision", cause.context, cause.decided_ns, time.time_ns(), attributes)
                else:
                    # The request could not be written, and something else has led to the next record.
                    del causes[record.uuid]
            if not record.is_open:
                self._rescaled(unit.job_id, record)

    def ordered(self, job_id: str, plan_version: int) -> None:
        job = self._of(job_id)
        if plan_version > job.plan_version:
            job.plan_version, job.ordered_ms = plan_version, time.time_ns() // _MS
            job.batch = job.without_batch = None

    def batch_reported(self, job: Job, attempt: int, report: Report, jobs: int) -> None:
        own = self._of(job.job_id)
        if own.batch is None and report.whole_plan and report.plan_version >= own.plan_version:
            own.batch = _Batch(report.batch_id, report.started_ms, report.at_ms, report.input_rows)
            if own.without_batch is not None:
                self._first_batch(own, own.batch, own.without_batch)
                own.without_batch = None

    def close(self) -> None:
        self._provider.force_flush(_FLUSH_MS)
        self._provider.shutdown()

    # -- inside

    def _of(self, job_id: str) -> _Job:
        """What is remembered of a job; the one that was looked at longest ago is forgotten."""
        job = self._jobs.get(job_id)
        if job is None:
            job = self._jobs[job_id] = _Job()
        return job

    def _rescaled(self, job_id: str, record: RescaleRecord) -> None:
        """The spans of a record that has ended."""
        assert record.reason is not None and record.end_ms is not None
        job, end_ms = self._of(job_id), record.end_ms
        cause = job.causes.pop(record.uuid, None)
        span = self._tracer.start_span(
            "rescale",
            Context() if cause is None else cause.context,
            attributes=_attributes(job_id, record),
            start_time=record.start_ms * _MS,
        )
        inside = set_span_in_context(span, Context())
        for each in record.spans:
            left_ms = end_ms if each.leave_ms is None else each.leave_ms
            self._span(each.state, inside, each.enter_ms * _MS, left_ms * _MS, error=each.exception)
        if record.start_ms <= job.ordered_ms <= end_ms:
            told_from_ms = max(
                (
                    each.enter_ms
                    for each in record.spans
                    if each.state in _ORDER_STATES and each.enter_ms <= job.ordered_ms
                ),
                default=job.ordered_ms,
            )
            self._span(
                "order",
                inside,
                told_from_ms * _MS,
                job.ordered_ms * _MS,
                {"slotwise.plan.version": job.plan_version},
            )
            ended = _Rescaled(inside, record.rung, end_ms)
            if job.batch is not None:
                self._first_batch(job, job.batch, ended)
            elif record.reason.terminal_state is TerminalState.COMPLETED:
                # A driver says that a plan is in force, and then of its batch: the two may come in two requests.
                job.without_batch = ended
        if record.reason.terminal_state is TerminalState.FAILED:
            span.set_status(Status(StatusCode.ERROR, record.message))
        span.end(end_ms * _MS)

    def _first_batch(self, job: _Job, batch: _Batch, ended: _Rescaled) -> None:
        if batch.started_ms > ended.end_ms:
            # The plan came into force while there was nothing to do.
            return
        if ended.rung is not None:
            began_ms = max(job.ordered_ms, batch.started_ms)
            self._span(f"change {ended.rung.value}", ended.inside, job.ordered_ms * _MS, began_ms * _MS)
        attributes: Attributes = {
            "slotwise.batch.id": batch.number,
            "slotwise.batch.records": batch.rows,
        }
        self._span("first batch", ended.inside, batch.started_ms * _MS, batch.ended_ms * _MS, attributes)

    def _span(
        self,
        name: str,
        context: Context,
        start_ns: int,
        end_ns: int,
        attributes: Attributes | None = None,
        *,
        error: str | None = None,
    ) -> None:
        span = self._tracer.start_span(name, context, attributes=attributes, start_time=start_ns)
        if error is not None:
            span.set_status(Status(StatusCode.ERROR, error))
        span.end(end_ns)


def _attributes(job_id: str, record: RescaleRecord) -> Attributes:
    assert record.reason is not None
    found: dict[str, AttributeValue | None] = {
        "slotwise.job.id": job_id,
        "slotwise.rescale.uuid": record.uuid,
        "slotwise.rescale.number": record.number,
        "slotwise.rescale.cause": record.cause.value,
        "slotwise.rescale.outcome": record.reason.terminal_state.value,
        "slotwise.rescale.reason": record.reason.value,
        "slotwise.rescale.rung": None if record.rung is None else record.rung.value,
        "slotwise.rescale.message": record.message,
        "slotwise.rescale.output_gap_ms": record.output_gap_ms,
        "slotwise.rescale.reprocessed_records": record.reprocessed_records,
        "slotwise.parallelism.before": [f"{one.vertex_id}={one.pre}" for one in record.vertices],
        "slotwise.parallelism.after": [f"{one.vertex_id}={one.post}" for one in record.vertices],
        "slotwise.requested_by": record.requested_by,
        "slotwise.requested_because": record.request_reason,
    }
    return {name: value for name, value in found.items() if value is not None}


def exporting() -> OpenTelemetry:
    """Sends them over OTLP to where OTEL_EXPORTER_OTLP_ENDPOINT and its like say, in the background."""
    return OpenTelemetry(BatchSpanProcessor(OTLPSpanExporter()))
