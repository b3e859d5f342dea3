"""Figures of this server and of the jobs that it owns, read from memory at a scrape.

Unknown figures are left out, never reported as 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from app.api.render.metrics import batch_figures
from app.model.jobgraph import JobVertex
from app.model.protocol import VertexBatch
from app.model.status import JobStatus
from app.scheduler.adaptive.state import JobState
from app.worker.job.load import total_backlog
from app.worker.views import Census, JobView


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
        "pending_seconds": "The longest backlog of a query, as the time in which its records arrived.",
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
        "slots_wanted": state.wanted_slots,
        "slots_held": len(state.slots),
        "slots_used": _used_slots(state),
        "restarts_total": state.num_restarts,
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
    last = _last_batches(view)
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
                "pending_records": batch.backlog_rows,
                "state_rows": batch.state_rows,
                "state_bytes": batch.state_bytes,
            }
        yield vertex, {name: value for name, value in known.items() if value is not None}


def _last_batches(view: JobView) -> dict[str, VertexBatch]:
    """What each vertex did in the last batch that it was part of."""
    reports = sorted(view.last_batches.values(), key=lambda report: report.at_ms)
    return {batch.vertex_id: batch for report in reports for batch in report.vertices}


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
        self.slots_wanted += state.wanted_slots
        self.slots_held += len(state.slots)
        self.slots_used += _used_slots(state)
        if (backlog := total_backlog(view.load.queries.values())) is not None:
            self.pending = (self.pending or 0) + backlog


def server_figures(census: Census, sums: Sums) -> Figures:
    """Of the server, and of all jobs that it owns together."""
    figures: Figures = {
        "batches_total": census.batches,
        "records_total": census.records,
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
