"""Metrics of one vertex under Flink's names, and some of our own (docs/metrics.md lists them).

Rates are over the last minute, so they fall to 0 when no batch is committed any more. Counters are over the time that
this server has had the job. Most other metrics are those of the last committed micro-batch, and `lastBatchTimestamp`
says when it ended; `taskTimeSkew` is over the last minute, `watermarkLag` that of now.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from app.api.schema.jobs import AggregatedMetric
from app.model.jobgraph import JobVertex
from app.model.protocol import Report, VertexBatch
from app.worker.job.load_figures import VertexRates, vertex_rates
from app.worker.views import JobView

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


@dataclass(frozen=True, slots=True)
class Aggregates:
    """Of the subtasks of a vertex, or of executors. Spark counts a stage as a whole, so min and max may be unknown."""

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
    metrics = {**_counters(view, vertex.id, rates), **_times(rates)}
    for name, field in _RATES.items():
        if (value := getattr(rates, field)) is not None:
            metrics[name] = Aggregates(value, value / rates.parallelism)
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
        "busyTimeMsPerSecond": Aggregates(busy, busy / slots, max(0.0, busy_others), busy_most),
        "backPressuredTimeMsPerSecond": Aggregates(held, held_each, held_each, held_each),
        "idleTimeMsPerSecond": Aggregates(
            idle,
            idle / slots,
            max(0.0, 1000.0 - busy_most - held_each),
            max(0.0, 1000.0 - busy_others - held_each),
        ),
    }


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
