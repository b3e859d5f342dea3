"""A snapshot of a job from the REST API (docs/metrics.md)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import linear_regression
from typing import Any, Final

from app.autoscaler.seen import NO_MEMORY, Load, Memory, Snapshot, Vertex
from app.model.rescale import TriggerCause
from app.model.scaling_policy import FloorCeiling, ScalingPolicy

Json = Any
Get = Callable[[str], Json]
"""The decoded answer to a GET of a path."""

STEP_MS: Final = 5_000
_JOB_METRICS: Final = "batchTimeMsPerSecond,lastCheckpointDuration,lastBatchTimestamp,isIdle"
_LEAST_TREND_POINTS: Final = 3
_RECORDS: Final = 50
_APART_MS: Final = 1_000
"""By so much the end of a rescale and the time since when it is in force may differ."""


class NotScalable(Exception):
    """The job is of a kind that the autoscaler does not scale; the message says why."""


def look(
    get: Get, details: Json, requirements: Mapping[str, Json], *, window_ms: int, memory: Memory = NO_MEMORY
) -> Snapshot:
    """The job as it is now. ``details`` is the answer to a GET of the job, ``requirements`` what is declared.

    Raises:
        NotScalable: it is a batch job.
    """
    if details.get("job-type") == "BATCH":
        raise NotScalable(
            "The job is of type BATCH: Slotwise decides the parallelism of its vertices by the bytes that they read."
        )
    job_id = details["jid"]
    metrics = {each["id"]: float(each["value"]) for each in get(f"/jobs/{job_id}/metrics?get={_JOB_METRICS}")}
    steps = get(f"/jobs/{job_id}/load?step={STEP_MS // 1000}")
    busy = {
        each["id"]: _busy(get, job_id, each["id"], max(1, each["parallelism"]))
        for each in details["vertices"]
    }
    back = get(f"/jobs/{job_id}/explanation").get("rollback")
    operator = _operator(get(f"/jobs/{job_id}/scaling-policy"))
    queries = queries_of(details["plan"]["nodes"])
    is_idle = metrics.get("isIdle") == 1
    since_ms = details["timestamps"]["RUNNING"]
    measured = _measured(steps, since_ms, details["now"], window_ms=window_ms, is_idle=is_idle)
    vertices = [
        _vertex(each, requirements[each["id"]], measured, busy[each["id"]][1:], operator[each["id"]])
        for each in details["vertices"]
    ]
    tasks_ms = max(
        (sum(math.prod(busy[vertex_id][:2]) for vertex_id in query) for query in queries), default=0.0
    )
    return Snapshot(
        now_ms=details["now"],
        status=details["state"],
        scheduler_state=details["schedulerState"],
        since_ms=since_ms,
        steady_ms=_steady_ms(get(f"/jobs/{job_id}/rescales/history?limit={_RECORDS}"), since_ms),
        slots=int(get("/overview")["slots-total"]) or None,
        vertices=tuple(vertices),
        queries=queries,
        load=None
        if measured is None or not metrics.get("lastBatchTimestamp")
        else _load(measured, metrics, tasks_ms),
        quiet_ms=max(0, details["now"] - int(metrics.get("lastBatchTimestamp", details["now"]))),
        is_idle=is_idle,
        taken_back=None if back is None else str(back["reason"]),
        attempt=details["attempt"],
        memory=memory,
    )


def _steady_ms(records: Sequence[Json], since_ms: int) -> int:
    """When the job was changed for a reason of its own. ``records``: of its latest rescales, newest first; the last of
    them is in force since ``since_ms``, unless a start or a takeover is."""
    done = [each for each in records if each["terminalState"] == "COMPLETED"]
    if not done or not _is_for_slots(done[0]) or done[0]["endTimestampInMillis"] + _APART_MS < since_ms:
        return since_ms
    own = [each["endTimestampInMillis"] for each in done if not _is_for_slots(each)]
    return min(since_ms, max(own, default=0))


def _is_for_slots(record: Json) -> bool:
    return bool(record["triggerCause"] == TriggerCause.NEW_RESOURCE_AVAILABLE.value)


def _busy(get: Get, job_id: str, vertex_id: str, tasks: int) -> tuple[float, float, int | None]:
    """Of the last minute: milliseconds of each second, by the average task of a vertex; and the skew, which is how many
    times as long the longest one is, 1 if that is not known. Of the last batch: how many tasks had rows."""
    path = (
        f"/jobs/{job_id}/vertices/{vertex_id}/subtasks/metrics"
        "?get=busyTimeMsPerSecond,taskTimeSkew,numTasksObserved&agg=avg"
    )
    found = {each["id"]: each["avg"] for each in get(path)}
    working = found.get("numTasksObserved")
    return (
        found.get("busyTimeMsPerSecond", 0.0),
        by_average(found.get("taskTimeSkew", 1.0), tasks),
        None if working is None else round(working),
    )


def by_average(by_median: float, tasks: int) -> float:
    """The longest task by the average one, if it is so many times as long as the median one: as if all others were as
    long as that. The longest task itself is known of whole stages only, which several vertices may share."""
    return by_median * tasks / (by_median + tasks - 1)


@dataclass(frozen=True, slots=True)
class _Measured:
    """Whole steps since the last change. ``backlog``: with the end of its step, where it is known; that after the last
    batch too."""

    length_ms: int
    rows_per_second: float
    batch_ms_per_second: float
    backlog: tuple[tuple[int, float], ...]
    busy_ms: Mapping[str, float]


def _measured(steps: Json, since_ms: int, now_ms: int, *, window_ms: int, is_idle: bool) -> _Measured | None:
    """The steps up to that in which the last batch ended: what ran after it is not told yet. Of a job that has nothing
    to do they go on up to now."""
    starts, step_ms = steps["startTimestampsInMillis"], steps["stepInMillis"]
    longest = steps["longestBatchInMillis"]
    last = max((place for place, value in enumerate(longest) if value is not None), default=0)
    end_ms = now_ms if is_idle else (starts[last] if starts else 0)
    longest_ms = max((value for value in longest[-window_ms // step_ms :] if value is not None), default=0.0)
    begin_ms = max(since_ms, end_ms - max(window_ms, 2 * longest_ms))
    whole = [
        place
        for place, start_ms in enumerate(starts)
        if begin_ms <= start_ms and start_ms + step_ms <= end_ms
    ]
    if not whole:
        return None
    return _Measured(
        len(whole) * step_ms,
        _mean(steps["numRecordsInPerSecond"], whole),
        _mean(steps["batchTimeMsPerSecond"], whole),
        tuple(
            (starts[place] + step_ms, rows)
            for place in sorted({*whole, last})
            if (rows := steps["pendingRecords"][place]) is not None
        ),
        {vertex_id: _mean(values, whole) for vertex_id, values in steps["busyTimeMsPerSecond"].items()},
    )


def _mean(values: Sequence[float], places: Sequence[int]) -> float:
    return sum(values[place] for place in places) / len(places)


def _load(measured: _Measured, metrics: Mapping[str, float], tasks_ms: float) -> Load:
    """``tasks_ms``: what the tasks of the busiest query took of each second of the last minute, as
    `batchTimeMsPerSecond` is of it too: so the part without tasks does not depend on what changed meanwhile."""
    batch_ms_per_second = metrics.get("batchTimeMsPerSecond", 0.0)
    fixed = 1 - min(1.0, tasks_ms / batch_ms_per_second) if batch_ms_per_second > 0 else 0.0
    return Load(
        length_ms=measured.length_ms,
        rows_per_second=measured.rows_per_second,
        backlog_rows=measured.backlog[-1][1] if measured.backlog else None,
        growth_per_second=_slope(measured.backlog),
        batch_ms_per_second=batch_ms_per_second,
        fixed_share=fixed,
        batch_ms=max(0.0, metrics.get("lastCheckpointDuration", 0.0)),
        rows_per_busy_second=0.0
        if measured.batch_ms_per_second <= 0
        else 1000 * measured.rows_per_second / measured.batch_ms_per_second,
    )


def _slope(points: Sequence[tuple[int, float]]) -> float | None:
    """Per second, of the straight line that fits best; None for too few points."""
    if len(points) < _LEAST_TREND_POINTS:
        return None
    return 1000 * linear_regression(*zip(*points, strict=True)).slope


def _operator(policy: Json) -> ScalingPolicy:
    def limits(of: Json) -> FloorCeiling:
        return FloorCeiling(of.get("floor"), of.get("ceiling"))

    own = tuple((vertex_id, limits(each)) for vertex_id, each in policy["vertices"].items())
    return ScalingPolicy(all_vertices=limits(policy["allVertices"]), vertices=own)


def _vertex(
    details: Json,
    declared: Json,
    measured: _Measured | None,
    tasks: tuple[float, int | None],
    operator: FloorCeiling,
) -> Vertex:
    """``tasks``: their skew, and how many had rows."""
    skew, working = tasks
    bounds = declared["parallelism"]
    return Vertex(
        id=details["id"],
        name=details["name"],
        group=details["slotSharingGroupId"],
        parallelism=max(1, details["parallelism"]),
        lower=bounds["lowerBound"],
        upper=bounds["upperBound"],
        most=details["maxParallelism"],
        busy_ms=0.0 if measured is None else measured.busy_ms.get(details["id"], 0.0),
        skew=skew,
        working=working,
        operator=operator,
    )


def queries_of(nodes: Sequence[Json]) -> tuple[tuple[str, ...], ...]:
    """The vertices of each query: each vertex without a successor is a sink, and Spark runs a query for each."""
    inputs = {node["id"]: [edge["id"] for edge in node.get("inputs", ())] for node in nodes}
    read = {vertex_id for many in inputs.values() for vertex_id in many}

    def query_of(sink: str) -> tuple[str, ...]:
        found = {sink: None}
        left = [sink]
        while left:
            new = [each for each in inputs[left.pop()] if each not in found]
            found |= dict.fromkeys(new)
            left += new
        return tuple(found)

    return tuple(query_of(vertex_id) for vertex_id in inputs if vertex_id not in read)
