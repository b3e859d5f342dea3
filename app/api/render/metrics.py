"""Metrics of jobs, of executors and of the server under Flink's names, and some of our own (docs/metrics.md)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from app.api.render.vertex_metrics import Aggregates
from app.api.schema.jobs import Executor, Executors, LoadHistory, Metric
from app.model.protocol import ExecutorLoad
from app.model.status import JobStatus
from app.worker.job.load import ExecutorsLoad, total_backlog
from app.worker.job.load_figures import WINDOW_MS, trend_of
from app.worker.job.load_steps import Stretch
from app.worker.views import JobView, TaskManager

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
    metrics: dict[str, float] = {
        name: present_ms if view.status is status else 0 for name, status in _STATE_TIMES.items()
    }
    metrics["uptime"] = present_ms if running else 0
    metrics["downtime"] = 0 if running or view.status.is_globally_terminal else present_ms
    metrics["numRestarts"] = state.num_restarts
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


def executors(told: ExecutorsLoad | None) -> Executors:
    return Executors(
        reported_timestamp_in_millis=told.seen_ms if told else None,
        executors=[
            Executor(
                id=each.executor_id,
                host=each.host,
                cores=each.cores,
                heap_used_in_bytes=each.heap_used_bytes,
                heap_max_in_bytes=each.heap_max_bytes,
                gc_time_in_millis=each.gc_ms,
                disk_used_in_bytes=each.disk_used_bytes,
                tasks_done=each.tasks_done,
                tasks_failed=each.tasks_failed,
                run_time_in_millis=each.run_ms,
            )
            for each in (told.now if told else ())
        ],
    )


def load_history(stretch: Stretch) -> LoadHistory:
    return LoadHistory(
        step_in_millis=stretch.step_ms,
        start_timestamps_in_millis=stretch.starts_ms,
        num_records_in_per_second=stretch.rows_per_second,
        pending_records=stretch.backlog_rows,
        longest_batch_in_millis=stretch.longest_batch_ms,
        busy_time_ms_per_second=stretch.busy_ms_per_second,
    )
