"""Metrics."""

from __future__ import annotations

import dataclasses

from app.api.documentation import Doc
from app.api.examples.common import COUNTS, JOB
from app.api.handlers import cluster, jobs
from app.api.operations.common import JOB_PATH, query_parameter
from app.api.routing import Operation
from app.api.schema import jobs as job_schema

_NAMES = {"type": "string"}


def metric_operations() -> list[Operation]:
    get = query_parameter(
        "get",
        "Names, separated by commas; unknown ones are left out. Without it the names that there are.",
        _NAMES,
        "numRestarts,uptime",
    )
    subtask_get = query_parameter(
        "get",
        "Names, separated by commas; unknown ones are left out. Without it the names that there are.",
        _NAMES,
        "numRecordsInPerSecond",
    )
    agg = query_parameter(
        "agg",
        "Aggregations, separated by commas, out of min, max, sum, avg, skew. Only sum and avg are known"
        " here.",
        {"type": "string", "pattern": "^(min|max|sum|avg|skew)(,(min|max|sum|avg|skew))*$"},
        "sum,avg",
    )
    job = Doc(
        "getJobMetrics",
        "metrics",
        "Metrics of a job",
        job_schema.Metric,
        [{"id": "numRestarts", "value": "0"}, {"id": "uptime", "value": "6188"}],
        is_list=True,
        parameters=(get,),
    )
    vertex = Doc(
        "getVertexSubtaskMetrics",
        "metrics",
        "Metrics of a vertex in its last micro-batch",
        job_schema.AggregatedMetric,
        [{"id": "numRecordsInPerSecond", "sum": 1200.0, "avg": 300.0}],
        description="Empty before the first batch.",
        is_list=True,
        parameters=(subtask_get, agg),
        errors={404: f"Job vertex {COUNTS} was not found in job {JOB}."},
    )
    server = Doc(
        "getServerMetrics",
        "metrics",
        "Metrics of the control plane",
        job_schema.Metric,
        [{"id": "taskSlotsTotal", "value": "8"}, {"id": "numRunningJobs", "value": "1"}],
        is_list=True,
        parameters=(dataclasses.replace(get, example="taskSlotsTotal,numRunningJobs"),),
    )
    return [
        Operation("GET", "/jobmanager/metrics", cluster.metrics, server),
        Operation("GET", JOB_PATH + "/metrics", jobs.metrics, job),
        Operation(
            "GET", JOB_PATH + "/vertices/{vertexid}/subtasks/metrics", jobs.vertex_subtask_metrics, vertex
        ),
    ]
