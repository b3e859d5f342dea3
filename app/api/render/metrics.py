"""Metrics of jobs and vertices under Flink's names, from the scheduler's state and the last batch of each
query.

Rates of a vertex are over the last minute, so they fall to 0 when no batch is committed any more; what is no
rate is that of the last committed micro-batch, whose time is told with it. Spark gives totals of a stage, not
values per task: `sum` and `avg` are known, `min`, `max` and `skew` are left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from app.api.schema.jobs import AggregatedMetric, Metric
from app.model.protocol import Report, VertexBatch
from app.model.status import JobStatus
from app.worker.job.batches_seen import Window, window
from app.worker.views import JobView, TaskManager

AGGREGATIONS = ("min", "max", "sum", "avg", "skew")

# Name to the field of a vertex's batch.
_RATES = {
    "numRecordsInPerSecond": "records_in",
    "numRecordsOutPerSecond": "records_out",
    "busyTimeMsPerSecond": "busy_ms",
}

_STATE_TIMES = {
    "initializingTime": JobStatus.INITIALIZING,
    "createdTime": JobStatus.CREATED,
    "runningTime": JobStatus.RUNNING,
    "restartingTime": JobStatus.RESTARTING,
    "failingTime": JobStatus.FAILING,
    "cancellingTime": JobStatus.CANCELLING,
}


def job_metrics(view: JobView, now_ms: int) -> dict[str, str]:
    """Name to value. Times are milliseconds in the present status; 0 for every other status."""
    state = view.state
    since = dict(state.status_since_ms)
    present_ms = max(0, now_ms - since.get(view.status, now_ms))
    running = view.status is JobStatus.RUNNING
    metrics = {name: present_ms if view.status is status else 0 for name, status in _STATE_TIMES.items()}
    metrics["uptime"] = present_ms if running else 0
    metrics["downtime"] = 0 if running or view.status.is_globally_terminal else present_ms
    metrics["numRestarts"] = state.num_restarts
    metrics["numRescales"] = state.num_rescales
    metrics["lastCheckpointDuration"] = -1
    if view.last_batches:
        last = max(view.last_batches.values(), key=lambda report: report.at_ms)
        metrics["lastCheckpointDuration"] = max(0, last.at_ms - last.started_ms)
        metrics["lastBatchTimestamp"] = last.at_ms
        metrics["lastCompletedCheckpointId"] = min(report.batch_id for report in view.last_batches.values())
    return {name: str(value) for name, value in metrics.items()}


def server_metrics(managers: Sequence[TaskManager], views: Sequence[JobView]) -> dict[str, str]:
    """Name to value, of the control plane as a whole."""
    return {
        "taskSlotsTotal": str(sum(manager.slots for manager in managers)),
        "taskSlotsAvailable": str(sum(manager.free_slots for manager in managers)),
        "numRegisteredTaskManagers": str(len(managers)),
        "numRunningJobs": str(sum(1 for view in views if not view.status.is_globally_terminal)),
    }


def metric_list(metrics: dict[str, str], wanted: Iterable[str] | None) -> list[Metric]:
    """Ids only when no names are asked for, as Flink does; names that are not known are left out."""
    if wanted is None:
        return [Metric(id=name) for name in metrics]
    return [Metric(id=name, value=metrics[name]) for name in dict.fromkeys(wanted) if name in metrics]


def vertex_metrics(view: JobView, vertex_id: str, now_ms: int) -> dict[str, tuple[float, int]]:
    """Name to (sum over the subtasks, number of subtasks) for the vertex; empty before its first batch."""
    found = _last_batch(view, vertex_id)
    if found is None:
        return {}
    report, batch = found
    tasks = batch.tasks if batch.tasks is not None else batch.parallelism
    metrics: dict[str, tuple[float, int]] = {}
    if batch.tasks is not None:
        metrics["numTasksObserved"] = (float(batch.tasks), 1)
    over = window(view.batches[report.query_id], now_ms)
    for name, field in _RATES.items():
        if getattr(batch, field) is not None:
            metrics[name] = (_total(over, vertex_id, field) * 1000 / over.length_ms, max(1, tasks))
    if report.backlog_rows is not None and vertex_id == _first_source(view, report):
        metrics["pendingRecords"] = (float(report.backlog_rows), 1)
    metrics["lastBatchTimestamp"] = (float(report.at_ms), 1)
    return metrics


def _total(over: Window, vertex_id: str, field: str) -> float:
    return sum(
        share * (getattr(batch, field) or 0)
        for report, share in over.shares
        for batch in report.vertices
        if batch.vertex_id == vertex_id
    )


def aggregated_metrics(
    metrics: dict[str, tuple[float, int]], wanted: Iterable[str] | None, aggregations: Collection[str]
) -> list[AggregatedMetric]:
    if wanted is None:
        return [AggregatedMetric(id=name) for name in metrics]
    result = []
    for name in dict.fromkeys(wanted):
        if name not in metrics:
            continue
        total, subtasks = metrics[name]
        known = {"sum": total, "avg": total / subtasks}
        values = {aggregation: value for aggregation, value in known.items() if aggregation in aggregations}
        if values:
            result.append(AggregatedMetric(id=name, **values))
    return result


def _last_batch(view: JobView, vertex_id: str) -> tuple[Report, VertexBatch] | None:
    latest: tuple[Report, VertexBatch] | None = None
    for report in view.last_batches.values():
        for batch in report.vertices:
            if batch.vertex_id == vertex_id and (latest is None or report.at_ms > latest[0].at_ms):
                latest = (report, batch)
    return latest


def _first_source(view: JobView, report: Report) -> str | None:
    """The source that a query's backlog is told at: a query counts it over all of its sources."""
    part = {batch.vertex_id for batch in report.vertices}
    return next(
        (vertex.id for vertex in view.state.graph.vertices if vertex.is_source and vertex.id in part), None
    )
