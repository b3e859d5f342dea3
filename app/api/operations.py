"""Every operation of the API: its path, what does it, how it is documented. What is not here is not there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.api import examples
from app.api.documentation import Body, Doc, Parameter
from app.api.handlers import cluster, drivers, jobs, operations, requirements, rescales, submission
from app.api.routing import Access, Operation
from app.api.schema import cluster as cluster_schema
from app.api.schema import jobs as job_schema
from app.api.schema import rescales as rescale_schema
from app.api.schema.base import Empty
from app.model.rescale import TerminalState, TriggerCause

_JOB = "/jobs/{jobid}"
_WHOLE = {"type": "integer", "minimum": 1}
_NAMES = {"type": "string", "pattern": "^[A-Za-z0-9_.]+(,[A-Za-z0-9_.]+)*$"}

_BOUND = {"type": "integer", "minimum": -1, "maximum": 32768}
_REQUIREMENTS_SCHEMA: dict[str, Any] = {
    "type": "object",
    "minProperties": 1,
    "description": "Keys are vertex ids; a unique vertex name is accepted as well. Every vertex must be there.",
    "additionalProperties": {
        "type": "object",
        "required": ["parallelism"],
        "additionalProperties": False,
        "properties": {
            "parallelism": {
                "type": "object",
                "required": ["lowerBound", "upperBound"],
                "additionalProperties": False,
                "properties": {"lowerBound": _BOUND, "upperBound": _BOUND},
            }
        },
    },
}
_GRAPH_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["name", "vertices"],
    "description": "A job graph document; its fields are described in the manual.",
    "properties": {
        "name": {"type": "string"},
        "type": {"enum": ["STREAMING", "BATCH"]},
        "artifacts": {"type": "array", "items": {"type": "string"}},
        "config": {"type": "object"},
        "vertices": {"type": "array", "items": {"type": "object"}},
    },
}


def _query(name: str, description: str, schema: dict[str, Any], example: Any) -> Parameter:
    return Parameter(name, "query", description, schema, example)


def _requirements() -> list[Operation]:
    path = _JOB + "/resource-requirements"
    read = Doc(
        id="getResourceRequirements",
        tag="requirements",
        summary="The bounds of parallelism of every vertex",
        description="Resolved numbers: a bound that was given as -1 is shown as its default.",
        answer={
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "required": ["parallelism"],
                "additionalProperties": False,
                "properties": {
                    "parallelism": {
                        "type": "object",
                        "required": ["lowerBound", "upperBound"],
                        "additionalProperties": False,
                        "properties": {"lowerBound": _WHOLE, "upperBound": _WHOLE},
                    }
                },
            },
        },
        example=examples.REQUIREMENTS,
        headers={"ETag": "The version of the requirements, for If-Match."},
    )
    write = Doc(
        id="putResourceRequirements",
        tag="requirements",
        summary="Declare the bounds of parallelism of every vertex",
        description=(
            "Durable when it is answered. Bounds equal to those in force change nothing and record nothing. -1 asks for "
            "a default: 1, and the vertex's max parallelism. With dryRun=true nothing changes, and the answer says what "
            "would happen."
        ),
        answer=Empty,
        example={},
        also=(rescale_schema.DryRun, examples.DRY_RUN),
        parameters=(
            _query("dryRun", "Say what would happen; change nothing.", {"type": "boolean"}, False),
            Parameter(
                "If-Match",
                "header",
                "Only if the requirements are at this version (an ETag of GET).",
                {"type": "string", "pattern": r'^("[1-9][0-9]{0,14}"|\*)$'},
                "*",
            ),
            Parameter(
                "Idempotency-Key",
                "header",
                "A repeated request with the same key and body repeats its answer and changes nothing.",
                {"type": "string", "pattern": "^[!-~]{1,255}$"},
                "f3c1-evening-peak",
            ),
            Parameter(
                "X-Slotwise-Reason",
                "header",
                "Why, in free text; kept in the history.",
                {"type": "string", "pattern": "^[ -~]{0,1000}$"},
                "the evening peak",
            ),
        ),
        body=Body(
            "The bounds per vertex. The content type does not matter: the body is read as JSON, strictly.",
            {"application/json": (_REQUIREMENTS_SCHEMA, examples.REQUIREMENTS)},
        ),
        errors={
            400: "The requested lower bound 5 for job vertex 1cdea45891a0a991da91c1a3d840ab55 (counts) is higher than "
            "its upper bound 2.",
            409: "The job has ended: it is FINISHED.",
            412: 'The requirements are at version 3, not at "2" as If-Match demands.',
        },
        headers={"ETag": "The version now in force."},
    )
    explain = Doc(
        id="getExplanation",
        tag="requirements",
        summary="What is wanted, held and in force, and in words why they differ",
        answer=rescale_schema.Explanation,
        example=examples.EXPLANATION,
    )
    return [
        Operation("GET", path, requirements.get, read),
        Operation("PUT", path, requirements.put, write),
        Operation("GET", _JOB + "/explanation", jobs.explain, explain),
    ]


def _rescales() -> list[Operation]:
    base = _JOB + "/rescales"
    tag = "rescales"
    history = Doc(
        id="getRescaleHistory",
        tag=tag,
        summary="The rescales of a job, newest first",
        description="One in progress has neither an end nor a terminal state. The next page is under Link, rel=next.",
        answer=rescale_schema.Rescale,
        is_list=True,
        example=[examples.RECORD],
        parameters=(
            _query(
                "limit",
                f"At most so many records; {rescales.DEFAULT_LIMIT} if not given.",
                {"type": "integer", "minimum": 1, "maximum": rescales.MAX_LIMIT},
                20,
            ),
            _query("after", "Only records whose number is below this one.", {"type": "integer", "minimum": 0, "maximum": 10**15}, 100),
            _query("cause", "Only records of this cause.", {"enum": [c.value for c in TriggerCause]}, "UPDATE_REQUIREMENT"),
            _query("state", "Only records that ended so.", {"enum": [s.value for s in TerminalState]}, "COMPLETED"),
        ),
        headers={"Link": "The next page, if there is one."},
    )
    docs = [
        ("/history", rescales.history, history),
        (
            "/overview",
            rescales.overview,
            Doc("getRescalesOverview", tag, "Counts, and the latest record of each outcome", rescale_schema.RescalesOverview, examples.RESCALES_OVERVIEW),
        ),
        (
            "/summary",
            rescales.summary,
            Doc("getRescalesSummary", tag, "Statistics of the durations", rescale_schema.RescalesSummary, examples.RESCALES_SUMMARY),
        ),
        (
            "/config",
            rescales.config,
            Doc("getRescalesConfig", tag, "The options that time rescales", rescale_schema.RescalesConfig, examples.RESCALES_CONFIG),
        ),
        (
            "/details/{rescaleuuid}",
            rescales.details,
            Doc(
                "getRescaleDetails",
                tag,
                "One rescale with the states of the scheduler",
                rescale_schema.Rescale,
                examples.RECORD_DETAILS,
                errors={404: f"Rescale {examples.RESCALE} was not found."},
            ),
        ),
    ]
    return [Operation("GET", base + path, handler, doc) for path, handler, doc in docs]


def _jobs() -> list[Operation]:
    tag = "jobs"
    submit = Doc(
        id="submitJob",
        tag=tag,
        summary="Submit a job",
        description=(
            "The graph as JSON or YAML, or a multipart form with the part `graph` and the files that it lists under "
            "artifacts. All errors of a graph are answered at once, each with its place."
        ),
        status=202,
        answer=job_schema.Submitted,
        example={"jobid": examples.JOB, "jobUrl": f"/jobs/{examples.JOB}"},
        body=Body(
            "The job graph.",
            {
                "application/json": (_GRAPH_SCHEMA, examples.GRAPH),
                "application/yaml": ({"type": "string"}, examples.GRAPH_YAML),
                "multipart/form-data": (
                    {
                        "type": "object",
                        "required": ["graph"],
                        "properties": {
                            "graph": {"type": "string", "format": "binary"},
                            "files": {"type": "array", "items": {"type": "string", "format": "binary"}},
                        },
                    },
                    {"graph": examples.GRAPH_YAML, "files": []},
                ),
            },
        ),
        errors={
            400: "vertices[1].inputs[0]: 'number' is not a vertex of the graph.",
            415: "The Content-Type 'text/html' is not supported: send application/json, application/yaml or "
            "multipart/form-data.",
        },
    )
    cancel = Doc(
        id="cancelJob",
        tag=tag,
        summary="Cancel a job at once",
        status=202,
        answer=Empty,
        example={},
        parameters=(_query("mode", "cancel is the only mode.", {"enum": ["cancel"]}, "cancel"),),
        errors={409: "The job has ended: it is FINISHED."},
    )
    forget = Doc(
        id="forgetJob",
        tag=tag,
        summary="Forget a job that has ended, with its history",
        answer=Empty,
        example={},
        errors={409: "The job has not ended: it is RUNNING."},
    )
    stop = Doc(
        id="stopJob",
        tag=tag,
        summary="Stop a job after the batch in flight, with a complete checkpoint",
        status=202,
        answer=job_schema.StopAccepted,
        example={"request-id": examples.TRIGGER},
        body=Body(
            "May be empty.",
            {"application/json": (job_schema.StopBody.model_json_schema(by_alias=True), {"drain": False})},
            required=False,
        ),
        errors={409: "The job is RESTARTING: it can be stopped while it is RUNNING."},
    )
    stop_status = Doc(
        id="getStopStatus",
        tag=tag,
        summary="How a stop is going",
        answer=job_schema.StopStatus,
        example={"status": {"id": "COMPLETED"}, "operation": {"location": "/var/lib/slotwise/jobs/7d6d/checkpoint"}},
        errors={404: f"There is no stop operation {examples.TRIGGER} of job {examples.JOB}."},
    )
    return [
        Operation("GET", "/jobs", jobs.list_jobs, Doc("listJobs", tag, "Ids and statuses of all jobs", job_schema.JobList, {"jobs": [{"id": examples.JOB, "status": "RUNNING"}]})),
        Operation("POST", "/jobs", submission.submit, submit),
        Operation("GET", "/jobs/overview", jobs.overview, Doc("getJobsOverview", tag, "All jobs, newest first", job_schema.JobsOverview, examples.OVERVIEW)),
        Operation("PATCH", _JOB, operations.cancel, cancel),
        Operation("DELETE", _JOB, jobs.forget, forget),
        Operation("POST", _JOB + "/stop", operations.stop, stop),
        Operation("GET", _JOB + "/savepoints/{triggerid}", operations.stop_status, stop_status),
        *_job_reads(tag),
    ]


def _job_reads(tag: str) -> list[Operation]:
    reads: Sequence[tuple[str, Any, Doc]] = (
        ("", jobs.details, Doc("getJob", tag, "A job with its vertices and its plan", job_schema.JobDetails, examples.DETAILS)),
        ("/plan", jobs.plan, Doc("getJobPlan", tag, "The plan in force", job_schema.JobPlan, {"plan": examples.PLAN})),
        ("/graph", jobs.graph, Doc("getJobGraph", tag, "The job graph document as stored", {"type": "object"}, examples.GRAPH)),
        ("/config", jobs.config, Doc("getJobConfig", tag, "The configuration of a job", job_schema.JobConfig, examples.JOB_CONFIG)),
        ("/status", jobs.status, Doc("getJobStatus", tag, "The status of a job", job_schema.JobStatusAnswer, {"status": "RUNNING"})),
        (
            "/exceptions",
            jobs.exceptions,
            Doc(
                "getJobExceptions",
                tag,
                "What went wrong, newest first",
                job_schema.JobExceptions,
                examples.EXCEPTIONS,
                parameters=(
                    _query("maxExceptions", "At most so many.", {"type": "integer", "minimum": 1, "maximum": jobs.MAX_EXCEPTIONS}, 20),
                ),
            ),
        ),
        ("/execution-result", jobs.execution_result, Doc("getExecutionResult", tag, "How a job ended", job_schema.ExecutionResult, examples.EXECUTION_RESULT)),
        (
            "/vertices/{vertexid}",
            jobs.vertex,
            Doc(
                "getVertex",
                tag,
                "A vertex with its subtasks",
                job_schema.VertexDetails,
                examples.VERTEX_DETAILS,
                errors={404: f"Job vertex {examples.COUNTS} was not found in job {examples.JOB}."},
            ),
        ),
    )
    return [Operation("GET", _JOB + path, handler, doc) for path, handler, doc in reads]


def _metrics() -> list[Operation]:
    get = _query("get", "Names, separated by commas. Without it the names that there are.", _NAMES, "numRestarts,uptime")
    subtask_get = _query("get", "Names, separated by commas. Without it the names that there are.", _NAMES, "numRecordsInPerSecond")
    agg = _query(
        "agg",
        "Aggregations, separated by commas, out of min, max, sum, avg, skew. Only sum and avg are known here.",
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
        errors={404: f"Job vertex {examples.COUNTS} was not found in job {examples.JOB}."},
    )
    return [
        Operation("GET", _JOB + "/metrics", jobs.metrics, job),
        Operation("GET", _JOB + "/vertices/{vertexid}/subtasks/metrics", jobs.vertex_subtask_metrics, vertex),
    ]


def _cluster() -> list[Operation]:
    tag = "cluster"
    settings_example = [{"key": "port", "value": "8081"}]
    managers = {"taskmanagers": [examples.TASK_MANAGER]}
    return [
        Operation("GET", "/config", cluster.config, Doc("getConfig", tag, "What Flink's dashboard asks first", cluster_schema.DashboardConfig, examples.CONFIG)),
        Operation("GET", "/overview", cluster.overview, Doc("getOverview", tag, "Slots and jobs in numbers", cluster_schema.ClusterOverview, examples.CLUSTER)),
        Operation("GET", "/jobmanager/config", cluster.configuration, Doc("getServerSettings", tag, "The settings of this server", cluster_schema.ConfigurationEntry, settings_example, is_list=True)),
        Operation("GET", "/taskmanagers", cluster.task_managers, Doc("listTaskManagers", tag, "What offers slots", cluster_schema.TaskManagers, managers)),
        Operation("GET", "/taskmanagers/{taskmanagerid}", cluster.task_manager, Doc("getTaskManager", tag, "One TaskManager with its slots", cluster_schema.TaskManagerDetails, examples.TASK_MANAGER_DETAILS)),
        Operation("GET", "/health/live", cluster.live, Doc("getLive", "health", "Whether the server runs", cluster_schema.Live, {"status": "live"}), Access.PUBLIC),
        Operation(
            "GET",
            "/health/ready",
            cluster.ready,
            Doc(
                "getReady",
                "health",
                "Whether the server can serve",
                cluster_schema.Ready,
                {"status": "ready"},
                errors={503: "The database cannot be reached."},
            ),
            Access.PUBLIC,
        ),
    ]


def _drivers() -> list[Operation]:
    base = "/internal/v1/jobs/{jobid}/attempts/{attempt}"
    return [
        Operation("POST", base + "/register", drivers.register, access=Access.DRIVER),
        Operation("GET", base + "/orders", drivers.orders, access=Access.DRIVER),
        Operation("POST", base + "/reports", drivers.reports, access=Access.DRIVER),
    ]


def all_operations() -> list[Operation]:
    return [*_requirements(), *_rescales(), *_jobs(), *_metrics(), *_cluster(), *_drivers()]
