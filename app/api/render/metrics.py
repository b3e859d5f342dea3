"""Metrics of jobs, of vertices, of executors and of the server under Flink's names, and some of our own
(docs/metrics.md).

Rates are over the last minute, so they fall to 0 when no batch is committed any more. Counters are over the time that
this server has had the job. Most other metrics of a vertex are those of the last committed micro-batch, and
`lastBatchTimestamp` says when it ended; `taskTimeSkew` is over the last minute, `watermarkLag` that of now.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from app.api.schema.base import made_of
from app.api.schema.jobs import AggregatedMetric, Executor, Executors, LoadHistory, LongBatch, Metric
from app.load.figures import WINDOW_MS, VertexRates, trend_of, vertex_rates
from app.load.reported import ExecutorsLoad, Load, total_backlog
from app.model.jobgraph import JobVertex
from app.model.measured import ExecutorLoad, VertexBatch
from app.model.protocol import Report
from app.model.status import JobStatus
from app.worker.requests import long_batches
from app.worker.views import JobView, TaskManager

_STATE_TIMES = {
    "initializingTime": JobStatus.INITIALIZING,
    "createdTime": JobStatus.CREATED,
    "runningTime": JobStatus.RUNNING,
    "restartingTime": JobStatus.RESTARTING,
    "failingTime": JobStatus.FAILING,
    "cancellingTime": JobStatus.CANCELLING,
}
AGGREGATIONS: Final = ("min", "max", "sum", "avg", "skew")

_NO_WORD = re.compile(r"[^A-Za-z0-9_-]")
_OF_SOURCES: Final = (
    "numRecordsIn", "numRecordsOut", "numRecordsInPerSecond", "numRecordsOutPerSecond", "pendingRecords",
    "currentInputWatermark", "watermarkLag",
)  # fmt: skip
"""They stand twice, as in Flink: with the name of the operator before them too."""

_RATES: Final = {
    "numRecordsInPerSecond": "records_in",
    "numRecordsOutPerSecond": "records_out",
    "numBytesInPerSecond": "bytes_in",
    "numBytesOutPerSecond": "bytes_out",
}
_COUNTERS: Final = {
    "numRecordsIn": "records_in",
    "numRecordsOut": "records_out",
    "numBytesIn": "bytes_in",
    "numBytesOut": "bytes_out",
}
_BUSY, _HELD, _IDLE = "busyTimeMsPerSecond", "backPressuredTimeMsPerSecond", "idleTimeMsPerSecond"
MEASURED: Final = frozenset({*_COUNTERS, *_RATES, _BUSY, _HELD, _IDLE})
"""What is measured of each task that runs."""


def job_metrics(view: JobView, now_ms: int) -> dict[str, str]:
    """Name to value. Times are milliseconds in the present status; 0 for every other status."""
    state = view.state
    since = dict(state.status_since_ms)
    present_ms = max(0, now_ms - since.get(view.status, now_ms))
    running = view.status is JobStatus.RUNNING
    metrics: dict[str, float] = {
        name: present_ms if view.status is status else 0 for name, status in _STATE_TIMES.items()
    }
    metrics["uptime"] = present_ms if running else 0
    metrics["downtime"] = 0 if running or view.status.is_globally_terminal else present_ms
    metrics["numRestarts"] = state.recovery.num_restarts
    metrics["numRescales"] = state.num_rescales
    metrics["lastCheckpointDuration"] = -1
    if view.last_batches:
        metrics |= batch_figures(view, now_ms)
    return {name: str(value) for name, value in metrics.items()}


def batch_figures(view: JobView, now_ms: int) -> dict[str, float]:
    """Name to value, of a job that has had a batch."""
    reports = list(view.last_batches.values())
    last = max(reports, key=lambda report: report.at_ms)
    metrics: dict[str, float] = {
        "lastCheckpointDuration": max(0, last.at_ms - last.started_ms),
        "lastBatchTimestamp": last.at_ms,
        "lastCompletedCheckpointId": min(report.batch_id for report in reports),
    }
    metrics["isIdle"] = int(all(view.load.is_idle(query) for query in view.load.queries.values()))
    trends = [trend_of(query, now_ms) for query in view.load.queries.values()]
    metrics["numRecordsInPerSecond"] = round(sum(each.rows_per_second for each in trends), 3)
    metrics["batchTimeMsPerSecond"] = round(max(each.batch_ms_per_second for each in trends), 3)
    if (backlog := total_backlog(view.load.queries.values())) is not None:
        metrics["pendingRecords"] = backlog
    if waits := [each.backlog_ms for each in trends if each.backlog_ms is not None]:
        metrics["pendingTimeMs"] = max(waits)
    if growths := [each.growth_per_second for each in trends if each.growth_per_second is not None]:
        metrics["pendingRecordsGrowthPerSecond"] = round(sum(growths), 3)
    if marks := [report.watermark_ms for report in reports if report.watermark_ms]:
        metrics["currentInputWatermark"] = min(marks)
        metrics["watermarkLag"] = max(0, now_ms - view.ahead_ms - min(marks))
    if states := [report.state_rows for report in reports if report.state_rows is not None]:
        metrics["stateRows"] = sum(states)
    phases = sorted(last.phases_ms.items())
    return metrics | {f"lastBatchDuration.{phase}": took_ms for phase, took_ms in phases}


def executor_metrics(views: Iterable[JobView], now_ms: int, host: str | None = None) -> dict[str, Aggregates]:
    """Of the executors of all jobs that run here; of a job without a cluster its driver is the one. 0 while none has
    told anything. ``host``: of the executors on that one."""
    found = [
        (told, each, now_ms + view.ahead_ms)
        for view in views
        if (told := view.executors_load) is not None
        for each in told.now
        if host is None or each.host == host
    ]
    executors = [each for _, each, _ in found]
    gc = [_gc_ms_per_second(*each) for each in found]
    figures: dict[str, list[float]] = {
        "Status.JVM.Memory.Heap.Used": [each.heap_used_bytes for each in executors],
        "Status.JVM.Memory.Heap.Max": [each.heap_max_bytes for each in executors],
        "Status.JVM.GarbageCollector.All.Time": [each.gc_ms for each in executors],
        "Status.JVM.GarbageCollector.All.TimeMsPerSecond": gc,
        # Flink's vetoes and its tuning of memory go by them; Spark does not tell the one and does not have the other.
        "Status.JVM.Memory.Metaspace.Used": [0.0] * len(executors),
        "Status.JVM.Memory.Metaspace.Max": [0.0] * len(executors),
        "Status.Flink.Memory.Managed.Used": [0.0] * len(executors),
        "Status.Flink.Memory.Managed.Total": [0.0] * len(executors),
        "diskUsedBytes": [each.disk_used_bytes for each in executors],
        "tasksDone": [each.tasks_done for each in executors],
        "tasksFailed": [each.tasks_failed for each in executors],
        "runTimeMs": [each.run_ms for each in executors],
    }
    return {name: Aggregates.of(values) for name, values in figures.items()}


def task_manager_metrics(
    manager: TaskManager, managers: Sequence[TaskManager], views: Iterable[JobView], now_ms: int
) -> dict[str, str]:
    """Sums of its executors, of all jobs that run here; 0 while none has told anything. Where there is one TaskManager,
    all executors are on it, by whatever name they call the host."""
    host = None if len(managers) == 1 else manager.host
    return {name: str(values.sum) for name, values in executor_metrics(views, now_ms, host).items()}


def _gc_ms_per_second(told: ExecutorsLoad, executor: ExecutorLoad, now_ms: int) -> float:
    """Between the last two reports; 0 if they are not of one process, or long ago."""
    before_ms = told.gc_ms_before.get(executor.executor_id)
    length_ms = told.at_ms - told.before_ms
    if before_ms is None or length_ms <= 0 or now_ms - told.seen_ms > WINDOW_MS:
        return 0.0
    return min(1000.0, max(0, executor.gc_ms - before_ms) * 1000 / length_ms)


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


def load_history(view: JobView, step_ms: int, now_ms: int) -> LoadHistory:
    found = [_long_batch(each) for each in long_batches.long_batches(view, now_ms)]
    return made_of(LoadHistory, view.load.steps.read(step_ms, now_ms), long_batches=found)


def _long_batch(batch: long_batches.ExplainedBatch) -> LongBatch:
    seen, told, record = batch.seen, batch.seen.told, batch.rescale
    return LongBatch(
        query_id=told.query_id,
        run_id=told.run_id,
        vertex_id=told.query,
        vertex_name=batch.name,
        batch_id=told.batch_id,
        since_ms=seen.since_ms,
        seen_ms=seen.seen_ms,
        plan_version=told.plan_version,
        tasks_done=told.tasks_done if told.tasks_known else None,
        tasks_known=told.tasks_known or None,
        rows=told.rows,
        waiting=batch.waiting,
        waiting_in_words=batch.waiting_words or None,
        rescale_uuid=record.uuid if record is not None else None,
        waiting_since_ms=seen.waited_since_ms,
        interruption_ms=batch.interruption_ms,
    )


def executors(told: ExecutorsLoad | None) -> Executors:
    return Executors(
        reported_timestamp_in_millis=told.seen_ms if told else None,
        executors=[made_of(Executor, each) for each in (told.now if told else ())],
    )


@dataclass(frozen=True, slots=True)
class Aggregates:
    """Of the subtasks of a vertex, or of executors. Where tasks are not measured, min and max are unknown."""

    sum: float
    avg: float
    min: float | None = None
    max: float | None = None

    @classmethod
    def of_one(cls, value: float) -> Aggregates:
        return cls(value, value, value, value)

    @classmethod
    def of(cls, values: Collection[float]) -> Aggregates:
        """0 for nothing."""
        if not values:
            return cls.of_one(0.0)
        return cls(sum(values), sum(values) / len(values), min(values), max(values))


def vertex_metrics(view: JobView, vertex: JobVertex, now_ms: int) -> dict[str, Aggregates]:
    """By name; empty before the first batch of the vertex."""
    rates = vertex_rates(view.load, vertex.id, now_ms)
    found = _last_batch(view, vertex.id)
    if rates is None or found is None:
        return {}
    own = of_subtasks(view.load, vertex.id, rates)
    metrics = {**_counters(view, vertex.id, rates), **_times(rates)}
    for name, field in _RATES.items():
        if (value := getattr(rates, field)) is not None:
            each = own.get(name)
            metrics[name] = Aggregates(
                value, value / rates.parallelism, min(each) if each else None, max(each) if each else None
            )
    report, batch = found
    levels = {
        "numTasksObserved": batch.tasks,
        "pendingRecords": _pending(view, report, batch),
        **{f"pendingRecords.{topic}": rows for topic, rows in batch.backlog_rows_by_topic.items()},
        "recordsLagMax": batch.lag_max_rows,
        "pendingFiles": batch.backlog_files,
        "pendingBytes": batch.backlog_bytes,
        "stateRows": batch.state_rows,
        "stateBytes": batch.state_bytes,
        "taskTimeSkew": rates.skew,
        "lastBatchTimestamp": report.at_ms,
        # Spark's is that of 1970 before there is any.
        "currentInputWatermark": report.watermark_ms or None,
        "watermarkLag": max(0, now_ms - view.ahead_ms - report.watermark_ms) if report.watermark_ms else None,
    }
    metrics |= {name: Aggregates.of_one(float(value)) for name, value in levels.items() if value is not None}
    if vertex.is_source:
        prefix = f"Source__{_NO_WORD.sub('_', vertex.name)}."
        metrics |= {prefix + name: metrics[name] for name in _OF_SOURCES if name in metrics}
    return metrics


def _counters(view: JobView, vertex_id: str, rates: VertexRates) -> dict[str, Aggregates]:
    totals = view.load.totals(vertex_id, whole_life=True)
    if totals is None:
        return {}
    values = {name: getattr(totals.work, field) for name, field in _COUNTERS.items()}
    return {
        name: Aggregates(float(value), value / rates.parallelism)
        for name, value in values.items()
        if value is not None
    }


def _times(rates: VertexRates) -> dict[str, Aggregates]:
    """How the time of a slot divides, on average: busy, held and idle add up to 1000 ms per second. Held: a source
    has rows while no batch runs; it is called back-pressured, as in Flink.

    Where Spark does not tell the tasks of a vertex apart, it is busy while a batch of its query runs. ``max`` is of the
    longest task of each batch, ``min`` the average of the others, as the shortest one is not known.
    """
    slots = rates.parallelism
    busy = rates.busy_ms if rates.busy_ms is not None else rates.batch_ms * slots
    busy_most = rates.busiest_ms if rates.busiest_ms is not None else busy / slots
    busy_others = (busy - busy_most) / (slots - 1) if slots > 1 else busy_most
    held = min(rates.held_ms, 1000.0 * slots - busy)
    held_each = held / slots
    idle = 1000.0 * slots - busy - held
    return {
        _BUSY: Aggregates(busy, busy / slots, max(0.0, busy_others), busy_most),
        _HELD: Aggregates(held, held_each, held_each, held_each),
        _IDLE: Aggregates(
            idle,
            idle / slots,
            max(0.0, 1000.0 - busy_most - held_each),
            max(0.0, 1000.0 - busy_others - held_each),
        ),
    }


def of_subtasks(load: Load, vertex_id: str, rates: VertexRates | None) -> dict[str, Sequence[float]]:
    """Of each subtask, those of `MEASURED` that are known: counters since the vertex has as many as now; rates are
    those of the vertex, ``rates``, by what each of its tasks did lately."""
    known = load.subtasks(vertex_id)
    if known is None or rates is None or rates.parallelism != known.count:
        return {}
    found: dict[str, Sequence[float]] = {
        name: known.total(figure)
        for name, figure in _COUNTERS.items()
        if figure not in known.unknown or any(known.total(figure))
    }
    for name, figure in _RATES.items():
        rate, shares = getattr(rates, figure), known.shares(figure)
        if rate is not None and shares is not None:
            found[name] = [rate * share for share in shares]
    if rates.busy_ms is not None and (shares := known.shares("busy_ms")) is not None:
        busy = [min(1000.0, rates.busy_ms * share) for share in shares]
        held = [min(rates.held_ms / known.count, 1000.0 - each) for each in busy]
        found |= {_BUSY: busy, _HELD: held}
        found[_IDLE] = [1000.0 - one - other for one, other in zip(busy, held, strict=True)]
    return found


def _pending(view: JobView, report: Report, batch: VertexBatch) -> int | None:
    """The rows that wait at a source. Where a query tells them of all of its sources together, they are shown at the
    first one."""
    if batch.backlog_rows is not None:
        return batch.backlog_rows
    if any(each.backlog_rows is not None for each in report.vertices):
        return None
    part = {each.vertex_id for each in report.vertices}
    first = next((one.id for one in view.state.graph.vertices if one.is_source and one.id in part), None)
    return report.backlog_rows if batch.vertex_id == first else None


def _last_batch(view: JobView, vertex_id: str) -> tuple[Report, VertexBatch] | None:
    latest: tuple[Report, VertexBatch] | None = None
    for report in view.last_batches.values():
        for batch in report.vertices:
            if batch.vertex_id == vertex_id and (latest is None or report.at_ms > latest[0].at_ms):
                latest = (report, batch)
    return latest


def aggregated_metrics(
    metrics: dict[str, Aggregates], wanted: Iterable[str] | None, aggregations: Collection[str]
) -> list[AggregatedMetric]:
    """Ids only when no names are asked for, as Flink does; names that are not known are left out."""
    if wanted is None:
        return [AggregatedMetric(id=name) for name in metrics]
    result = []
    for name in dict.fromkeys(wanted):
        if name not in metrics:
            continue
        values = {
            each: value
            for each in AGGREGATIONS[:-1]
            if each in aggregations
            if (value := getattr(metrics[name], each)) is not None
        }
        if values:
            result.append(AggregatedMetric(id=name, **values))
    return result
