"""Metrics."""

from __future__ import annotations

import dataclasses
from typing import Final

from app.api.documentation import Doc
from app.api.examples.common import COUNTS, JOB
from app.api.handlers import cluster, jobs
from app.api.operations.common import JOB_PATH, query_parameter
from app.api.routing import Operation
from app.api.schema import jobs as job_schema

_NAMES = {"type": "string"}


_GET = query_parameter(
    "get",
    "Names, separated by commas; unknown ones are left out. Without it the names that there are.",
    _NAMES,
    "numRestarts,uptime",
)
_SUBTASK_GET = query_parameter(
    "get",
    "Names, separated by commas; unknown ones are left out. Without it the names that there are.",
    _NAMES,
    "numRecordsInPerSecond",
)
_AGG = query_parameter(
    "agg",
    "Aggregations, separated by commas, out of min, max, sum, avg, skew. Only sum and avg are known here.",
    {"type": "string", "pattern": "^(min|max|sum|avg|skew)(,(min|max|sum|avg|skew))*$"},
    "sum,avg",
)
_JOB = Doc(
    "getJobMetrics",
    "metrics",
    "Metrics of a job",
    job_schema.Metric,
    [{"id": "numRestarts", "value": "0"}, {"id": "uptime", "value": "6188"}],
    is_list=True,
    parameters=(_GET,),
)
_VERTEX = Doc(
    "getVertexSubtaskMetrics",
    "metrics",
    "Metrics of a vertex in the last minute",
    job_schema.AggregatedMetric,
    [{"id": "numRecordsInPerSecond", "sum": 1200.0, "avg": 300.0}],
    description=(
        "Rates are over the last minute, or over twice the time of the last micro-batch if that is longer: they fall "
        "to 0 when no batch is committed any more. pendingRecords and numTasksObserved are those of the last batch, "
        "which ended at lastBatchTimestamp. Empty before the first batch."
    ),
    is_list=True,
    parameters=(_SUBTASK_GET, _AGG),
    errors={404: f"Job vertex {COUNTS} was not found in job {JOB}."},
)
_SERVER = Doc(
    "getServerMetrics",
    "metrics",
    "Metrics of the control plane",
    job_schema.Metric,
    [{"id": "taskSlotsTotal", "value": "8"}, {"id": "numRunningJobs", "value": "1"}],
    is_list=True,
    parameters=(dataclasses.replace(_GET, example="taskSlotsTotal,numRunningJobs"),),
)
METRIC_OPERATIONS: Final[list[Operation]] = [
    Operation("GET", "/jobmanager/metrics", cluster.metrics, _SERVER),
    Operation("GET", JOB_PATH + "/metrics", jobs.metrics, _JOB),
    Operation(
        "GET", JOB_PATH + "/vertices/{vertexid}/subtasks/metrics", jobs.vertex_subtask_metrics, _VERTEX
    ),
]
