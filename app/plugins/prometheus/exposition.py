"""The answer to a scrape: figures of this server and of the jobs that it owns, read from memory. It is made in pieces,
so that it does not delay other requests if there are many jobs.

Unknown figures are left out, never reported as 0.
"""

from __future__ import annotations

import asyncio
import gzip
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from prometheus_client import Metric
from prometheus_client.exposition import choose_encoder

from app.api.render.metrics import batch_figures
from app.load.reported import total_backlog
from app.model.jobgraph import JobVertex
from app.model.status import JobStatus
from app.plugins.prometheus.meters import Meters
from app.scheduler.adaptive.state import JobState
from app.worker.views import Census, JobView

KEPT_S: Final = 1.0
"""For this time after a scrape other scrapes get its answer, which bounds their cost."""
VERTICES_PER_JOB: Final = 10
"""This number, times the limit of jobs, is the limit of vertices with their own figures."""
NAME_CHARS: Final = 100
"""Of names that users give."""
_JOBS_AT_ONCE: Final = 10
_SERIES_AT_ONCE: Final = 500
_END: Final = b"# EOF\n"

_GZIP_LEVEL: Final = 1

_Encode = Callable[[Any], bytes]


_FORMATS: Final = {
    is_openmetrics: choose_encoder(accept)
    for is_openmetrics, accept in ((False, ""), (True, "application/openmetrics-text; version=1.0.0"))
}
"""There is no other, whatever version is asked for: one answer of each is kept."""


def _wants_openmetrics(accept: str) -> bool:
    try:
        return choose_encoder(accept)[1].startswith("application/openmetrics-text")
    except (TypeError, ValueError):
        # It asks for a version that is none.
        return False


class Answer(NamedTuple):
    """``made_s``: by the clock of the event loop."""

    made_s: float
    content_type: str
    text: bytes
    compressed: bytes


class Exposition:
    """Of one server. ``jobs_max``: of at most so many jobs there are figures of their own, of the others sums.
    ``streams``: how many clients follow events.
    """

    def __init__(
        self,
        meters: Meters,
        census: Callable[[], Census],
        streams: Callable[[], int],
        *,
        jobs_max: int,
        version: str,
    ) -> None:
        self._meters = meters
        self._census, self._streams = census, streams
        self._jobs_max = jobs_max
        self._version = version
        self._one_at_a_time = asyncio.Lock()
        self._kept: dict[str, Answer] = {}

    async def answer(self, accept: str, now_ms: int) -> Answer:
        """By what the header Accept asks for."""
        encode, content_type = _FORMATS[_wants_openmetrics(accept)]
        async with self._one_at_a_time:
            now_s = asyncio.get_running_loop().time()
            kept = self._kept.get(content_type)
            if kept is None or now_s - kept.made_s >= KEPT_S:
                text = b"".join([part async for part in self._parts(encode, now_ms)])
                compressed = await asyncio.to_thread(gzip.compress, text, _GZIP_LEVEL)
                kept = self._kept[content_type] = Answer(now_s, content_type, text, compressed)
            return kept

    async def _parts(self, encode: _Encode, now_ms: int) -> AsyncIterator[bytes]:
        whole = encode(self._meters.registry)
        yield whole.removesuffix(_END)
        for metric in await self._metrics(now_ms):
            head, samples = Metric(metric.name, metric.documentation, metric.type), metric.samples
            head_text = _text(encode, head)
            yield head_text
            for start in range(0, len(samples), _SERIES_AT_ONCE):
                head.samples = samples[start : start + _SERIES_AT_ONCE]
                yield _text(encode, head)[len(head_text) :]
                await asyncio.sleep(0)
        if whole.endswith(_END):
            yield _END

    async def _metrics(self, now_ms: int) -> Iterable[Metric]:
        census = self._census()
        metrics, sums = _Metrics(), Sums()
        vertices_left = self._jobs_max * VERTICES_PER_JOB
        without_jobs = without_vertices = 0
        for number, view in enumerate(census.views):
            if number % _JOBS_AT_ONCE == 0:
                await asyncio.sleep(0)
            sums.add(view)
            count = len(view.state.graph.vertices)
            if number >= self._jobs_max:
                without_jobs += 1
            elif count > vertices_left:
                without_vertices += count
                metrics.add_job(view, now_ms)
            else:
                vertices_left -= count
                metrics.add_job(view, now_ms)
                metrics.add_vertices(view)
        own = {
            "jobs_without_series": without_jobs,
            "vertices_without_series": without_vertices,
            "event_streams": self._streams(),
            "batches_total": self._meters.batches,
            "records_total": self._meters.records,
        }
        metrics.add(SERVER_FAMILIES, {}, server_figures(census, sums) | own)
        for status in JobStatus:
            if not status.is_globally_terminal:
                metrics.add(SERVER_FAMILIES, {"status": status.value}, {"jobs": sums.statuses[status]})
        for kind, drivers in (("job", sums.drivers), ("warm", census.warm_drivers)):
            metrics.add(SERVER_FAMILIES, {"kind": kind}, {"drivers": drivers})
        metrics.add(SERVER_FAMILIES, {"version": self._version}, {"info": 1})
        return metrics.by_family.values()


class _Metrics:
    """Samples by family."""

    def __init__(self) -> None:
        families = (SERVER_FAMILIES, JOB_FAMILIES, VERTEX_FAMILIES)
        self.by_family = {
            family.name: Metric(family.name.removesuffix("_total"), family.text, family.kind)
            for each in families
            for family in each.values()
        }

    def add(self, families: Mapping[str, Family], labels: dict[str, str], figures: Figures) -> None:
        for name, value in figures.items():
            family = families[name].name
            self.by_family[family].add_sample(family, labels, value)

    def add_job(self, view: JobView, now_ms: int) -> None:
        labels = {"job_id": view.job_id, "job_name": _label(view.state.graph.name)}
        self.add(JOB_FAMILIES, labels, job_figures(view, now_ms))

    def add_vertices(self, view: JobView) -> None:
        for vertex, figures in vertex_figures(view):
            labels = {"job_id": view.job_id, "vertex_id": vertex.id, "vertex_name": _label(vertex.name)}
            self.add(VERTEX_FAMILIES, labels, figures)


def _text(encode: _Encode, metric: Metric) -> bytes:
    # As a registry that has one metric.
    return encode(SimpleNamespace(collect=lambda: (metric,))).removesuffix(_END)


def _label(name: str) -> str:
    """A name that a user gave, bounded, and without the lone surrogates that have no UTF-8 form."""
    return name[:NAME_CHARS].encode("utf-8", "replace").decode()


class Family(NamedTuple):
    """One metric; ``name`` has the ending of its kind."""

    name: str
    kind: str
    text: str
    labels: tuple[str, ...] = ()


Figures = dict[str, float]
"""By the name of the family."""

_JOB: Final = ("job_id", "job_name")
_VERTEX: Final = ("job_id", "vertex_id", "vertex_name")


def _families(prefix: str, labels: tuple[str, ...], rows: Mapping[str, str]) -> dict[str, Family]:
    return {
        name: Family(prefix + name, "counter" if name.endswith("_total") else "gauge", text, labels)
        for name, text in rows.items()
    }


JOB_FAMILIES: Final = _families(
    "slotwise_job_",
    _JOB,
    {
        "running": "1 while the job is RUNNING, else 0.",
        "slots_wanted": "Slots that the job wants.",
        "slots_held": "Slots that the job holds.",
        "slots_used": "Slots that the plan in force uses.",
        "restarts_total": "Restarts of the job or of single queries, since it was submitted.",
        "rescales_total": "Rescales, since it was submitted.",
        "rescale_open_seconds": "Age of the rescale record that is open; 0 without one.",
        "records_per_second": "Records that batches read, over the last minute.",
        "pending_records": "Backlog of all queries that know it.",
        "pending_seconds": "The longest backlog of a query, as the time in which its records arrived, if known.",
        "batch_time_ratio": "Share of the last minute in which a batch ran, of the busiest query.",
        "last_batch_seconds": "Duration of the last batch.",
        "last_batch_timestamp_seconds": "When the last batch ended, in seconds since 1970.",
        "watermark_lag_seconds": "The server's clock less the watermark that is furthest behind.",
        "state_rows": "Rows of state, of all queries.",
        "executors": "Executors that report; without a cluster the driver is the one.",
        "heap_used_bytes": "Used heap of the executors.",
        "heap_max_bytes": "Largest heap of the executors.",
        "disk_used_bytes": "Blocks on the disks of the executors.",
    },
)
VERTEX_FAMILIES: Final = _families(
    "slotwise_vertex_",
    _VERTEX,
    {
        "parallelism": "Parallelism in force.",
        "tasks": "Tasks in the last batch; fewer than the parallelism where a source has fewer files or partitions.",
        "records_in_total": "Records in.",
        "records_out_total": "Records out.",
        "bytes_in_total": "Bytes in, as Spark counts them.",
        "bytes_out_total": "Bytes out, as Spark counts them.",
        "busy_seconds_total": "Run time of tasks, of all slots of the vertex.",
        "pending_records": "Backlog of a source that tells its own.",
        "state_rows": "Rows of state after the last batch.",
        "state_bytes": "Bytes of state after the last batch.",
    },
)
SERVER_FAMILIES: Final = _families(
    "slotwise_",
    (),
    {
        "batches_total": "Batches that drivers reported.",
        "records_total": "Records that batches read.",
        "pending_records": "Backlog of all jobs that know it.",
        "rescales_open": "Jobs with an open rescale record.",
        "jobs_without_series": "Jobs that have no figures of their own here, because of metrics_jobs_max.",
        "vertices_without_series": "Vertices of jobs with figures that have none of their own.",
        "jobs_unreadable": "Jobs that this server cannot read.",
        "slots_offered": "Slots of the pool.",
        "slots_free": "Slots of the pool that can be given out now.",
        "slots_wanted": "Slots that jobs want.",
        "slots_held": "Slots that jobs hold.",
        "slots_used": "Slots that plans in force use.",
        "leases_held": "Jobs that this server owns.",
        "leases_certain": "1 if no other server can have a lease of this one now, else 0.",
        "members": "Servers that share the jobs, as of the last look.",
        "event_streams": "Clients that follow events.",
        "store_transactions_total": "Transactions that wrote changes of jobs; one has all that waited.",
    },
) | {
    "info": Family("slotwise_info", "gauge", "Always 1.", ("version",)),
    "jobs": Family("slotwise_jobs", "gauge", "Jobs that are not over, by status.", ("status",)),
    "drivers": Family("slotwise_drivers", "gauge", "Driver processes: of jobs, or warm.", ("kind",)),
}

_OF_BATCHES: Final = {
    "records_per_second": ("numRecordsInPerSecond", 1),
    "pending_records": ("pendingRecords", 1),
    "pending_seconds": ("pendingTimeMs", 1000),
    "batch_time_ratio": ("batchTimeMsPerSecond", 1000),
    "last_batch_seconds": ("lastCheckpointDuration", 1000),
    "last_batch_timestamp_seconds": ("lastBatchTimestamp", 1000),
    "watermark_lag_seconds": ("watermarkLag", 1000),
    "state_rows": ("stateRows", 1),
}
"""Name to that of the REST API (docs/metrics.md), and how many of its units are one of ours."""


def job_figures(view: JobView, now_ms: int) -> Figures:
    """Of one job. ``now_ms``: by the server's clock."""
    state, now_ms = view.state, now_ms + view.ahead_ms
    record = state.timeline.open
    figures: Figures = {
        "running": view.status is JobStatus.RUNNING,
        "slots_wanted": state.declared_within_cap,
        "slots_held": len(state.slots),
        "slots_used": _used_slots(state),
        "restarts_total": state.recovery.num_restarts,
        "rescales_total": state.num_rescales,
        "rescale_open_seconds": 0 if record is None else max(0, now_ms - record.start_ms) / 1000,
    }
    if view.load.queries:
        of_batches = batch_figures(view, now_ms)
        for name, (known_as, units) in _OF_BATCHES.items():
            if known_as in of_batches:
                figures[name] = of_batches[known_as] / units
    if (told := view.executors_load) is not None:
        executors = told.now
        figures["executors"] = len(executors)
        figures["heap_used_bytes"] = sum(each.heap_used_bytes for each in executors)
        figures["heap_max_bytes"] = sum(each.heap_max_bytes for each in executors)
        figures["disk_used_bytes"] = sum(each.disk_used_bytes for each in executors)
    return figures


def vertex_figures(view: JobView) -> Iterator[tuple[JobVertex, Figures]]:
    """Of each vertex of a job."""
    state = view.state
    parallelism = dict(state.plan.parallelism) if state.plan else {}
    # What each vertex did in the last batch that it was part of.
    reports = sorted(view.last_batches.values(), key=lambda report: report.at_ms)
    last = {batch.vertex_id: batch for report in reports for batch in report.vertices}
    for vertex in state.graph.vertices:
        known: dict[str, float | None] = {"parallelism": parallelism.get(vertex.id)}
        if (totals := view.load.totals(vertex.id, whole_life=True)) is not None:
            work = totals.work
            known |= {
                "records_in_total": work.records_in,
                "records_out_total": work.records_out,
                "bytes_in_total": work.bytes_in,
                "bytes_out_total": work.bytes_out,
                "busy_seconds_total": totals.busy_ms / 1000,
            }
        if (batch := last.get(vertex.id)) is not None:
            known |= {
                "tasks": batch.tasks,
                "pending_records": batch.backlog_rows,
                "state_rows": batch.state_rows,
                "state_bytes": batch.state_bytes,
            }
        yield vertex, {name: value for name, value in known.items() if value is not None}


@dataclass(slots=True)
class Sums:
    """Of all jobs of the server. ``pending``: None if of none of them it is known."""

    statuses: Counter[JobStatus] = field(default_factory=Counter)
    drivers: int = 0
    rescales_open: int = 0
    slots_wanted: int = 0
    slots_held: int = 0
    slots_used: int = 0
    pending: int | None = None

    def add(self, view: JobView) -> None:
        state = view.state
        self.statuses[view.status] += 1
        self.drivers += view.driver_pid is not None
        self.rescales_open += state.timeline.open is not None
        self.slots_wanted += state.declared_within_cap
        self.slots_held += len(state.slots)
        self.slots_used += _used_slots(state)
        if (backlog := total_backlog(view.load.queries.values())) is not None:
            self.pending = (self.pending or 0) + backlog


def server_figures(census: Census, sums: Sums) -> Figures:
    """Of the server, and of all jobs that it owns together."""
    figures: Figures = {
        "rescales_open": sums.rescales_open,
        "jobs_unreadable": census.unreadable,
        "slots_offered": census.slots,
        "slots_free": census.free_slots,
        "slots_wanted": sums.slots_wanted,
        "slots_held": sums.slots_held,
        "slots_used": sums.slots_used,
        "leases_held": sums.statuses.total(),
        "leases_certain": census.is_sure,
        "members": census.members,
        "store_transactions_total": census.transactions,
    }
    if sums.pending is not None:
        figures["pending_records"] = sums.pending
    return figures


def _used_slots(state: JobState) -> int:
    return state.plan.slot_count if state.plan else 0
