"""Submitting, reading and ending jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from app.api.documentation import Body, Doc
from app.api.examples import decisions as decisions_examples
from app.api.examples import jobs as jobs_examples
from app.api.examples.common import COUNTS, JOB, TRIGGER
from app.api.handlers import jobs, operations, submission
from app.api.operations.common import JOB_PATH, query_parameter
from app.api.routing import Handler, Operation
from app.api.schema import decisions as decisions_schema
from app.api.schema import jobs as job_schema
from app.api.schema.base import Empty
from app.api.schema.graph import GRAPH_SCHEMA, PROGRAM_SCHEMA

_TAG = "jobs"
SUBMIT = Doc(
    id="submitJob",
    tag=_TAG,
    summary="Submit a job",
    description=(
        "The graph as JSON or YAML, or a multipart form with the part `graph` and the files that it lists"
        " under artifacts. All errors of a graph are answered at once, each with its place. A document with"
        " `script` is a program: a driver runs it up to where it waits for its queries, which takes some"
        " seconds, and its vertices are read from its plan. Whoever hangs up meanwhile ends that. With `from` it goes"
        " on from a copy of another's checkpoint."
    ),
    status=202,
    answer=job_schema.Submitted,
    example={"jobid": JOB, "jobUrl": f"/jobs/{JOB}"},
    otherwise=(200, {"type": "object"}, jobs_examples.GRAPH),
    parameters=(
        query_parameter(
            "dryRun",
            "Answer (200) the document with everything resolved, the vertices of a program too; store nothing.",
            {"type": "boolean"},
            False,
        ),
    ),
    body=Body(
        "The job graph, or the program.",
        {
            "application/json": ({"anyOf": [GRAPH_SCHEMA, PROGRAM_SCHEMA]}, jobs_examples.GRAPH),
            "application/yaml": ({"type": "string"}, jobs_examples.GRAPH_YAML),
            "multipart/form-data": (
                {
                    "type": "object",
                    "required": ["graph"],
                    "properties": {
                        "graph": {"type": "string", "format": "binary"},
                        "files": {"type": "array", "items": {"type": "string", "format": "binary"}},
                    },
                },
                {"graph": jobs_examples.PROGRAM_YAML, "files": []},
            ),
        },
    ),
    errors={
        400: "vertices[1].inputs[0]: 'number' is not a vertex of the graph.",
        409: "The checkpoint /data/counts of store is that of job counts, which is RUNNING: end that job before.",
        415: (
            "The Content-Type 'text/html' is not supported: send application/json, application/yaml or "
            "multipart/form-data."
        ),
    },
)
_CANCEL = Doc(
    id="cancelJob",
    tag=_TAG,
    summary="Cancel a job at once",
    status=202,
    answer=Empty,
    example={},
    parameters=(
        query_parameter("mode", "cancel is the only mode.", {"enum": ["cancel"]}, "cancel", required=True),
    ),
    errors={409: "The job has ended: it is FINISHED."},
)
_FORGET = Doc(
    id="forgetJob",
    tag=_TAG,
    summary="Forget a job that has ended, with its history",
    answer=Empty,
    example={},
    errors={409: "The job has not ended: it is RUNNING."},
)
_STOP = Doc(
    id="stopJob",
    tag=_TAG,
    summary="Stop a job after the batch in flight, with a complete checkpoint",
    status=202,
    answer=job_schema.StopAccepted,
    example={"request-id": TRIGGER},
    body=Body(
        "May be empty.",
        {"application/json": (job_schema.StopBody.model_json_schema(by_alias=True), {"drain": False})},
        required=False,
    ),
    errors={409: "The job is RESTARTING: it can be stopped while it is RUNNING."},
)
_STOP_STATUS = Doc(
    id="getStopStatus",
    tag=_TAG,
    summary="How a stop is going",
    answer=job_schema.StopStatus,
    example={
        "status": {"id": "COMPLETED"},
        "operation": {"location": "/var/lib/slotwise/jobs/7d6d/checkpoint"},
    },
    errors={404: f"There is no stop operation {TRIGGER} of job {JOB}."},
)
_READS: Final[Sequence[tuple[str, Handler, Doc]]] = (
    (
        "",
        jobs.details,
        Doc(
            "getJob",
            _TAG,
            "A job with its vertices and its plan",
            job_schema.JobDetails,
            jobs_examples.DETAILS,
        ),
    ),
    (
        "/plan",
        jobs.plan,
        Doc("getJobPlan", _TAG, "The plan in force", job_schema.JobPlan, {"plan": jobs_examples.PLAN}),
    ),
    (
        "/graph",
        jobs.graph,
        Doc(
            "getJobGraph",
            _TAG,
            "The job graph document as stored",
            {"type": "object"},
            jobs_examples.GRAPH,
        ),
    ),
    (
        "/config",
        jobs.config,
        Doc(
            "getJobConfig",
            _TAG,
            "The configuration of a job",
            job_schema.JobConfig,
            jobs_examples.JOB_CONFIG,
        ),
    ),
    (
        "/status",
        jobs.status,
        Doc("getJobStatus", _TAG, "The status of a job", job_schema.JobStatusAnswer, {"status": "RUNNING"}),
    ),
    (
        "/exceptions",
        jobs.exceptions,
        Doc(
            "getJobExceptions",
            _TAG,
            "What went wrong, newest first",
            job_schema.JobExceptions,
            jobs_examples.EXCEPTIONS,
            parameters=(
                query_parameter(
                    "maxExceptions",
                    "At most so many.",
                    {"type": "integer", "minimum": 1, "maximum": jobs.MAX_EXCEPTIONS},
                    20,
                ),
            ),
        ),
    ),
    (
        "/execution-result",
        jobs.execution_result,
        Doc(
            "getExecutionResult",
            _TAG,
            "How a job ended",
            job_schema.ExecutionResult,
            jobs_examples.EXECUTION_RESULT,
        ),
    ),
    (
        "/decisions",
        jobs.decisions,
        Doc(
            "getDecisions",
            _TAG,
            "How parallel each vertex of a batch job was decided to run, newest first",
            decisions_schema.Decision,
            [decisions_examples.DECISION],
            description=(
                "The latest five of each vertex, kept as long as the job. A streaming job makes none, so its list"
                " is empty: see its rescales."
            ),
            is_list=True,
            parameters=(
                query_parameter("detail", "With the subpartitions of each task.", {"type": "boolean"}, True),
            ),
        ),
    ),
    (
        "/vertices/{vertexid}",
        jobs.vertex,
        Doc(
            "getVertex",
            _TAG,
            "A vertex with its subtasks",
            job_schema.VertexDetails,
            jobs_examples.VERTEX_DETAILS,
            errors={404: f"Job vertex {COUNTS} was not found in job {JOB}."},
        ),
    ),
)
JOB_OPERATIONS: Final[list[Operation]] = [
    Operation(
        "GET",
        "/jobs",
        jobs.list_jobs,
        Doc(
            "listJobs",
            _TAG,
            "Ids and statuses of all jobs",
            job_schema.JobList,
            {"jobs": [{"id": JOB, "status": "RUNNING"}]},
        ),
    ),
    Operation("POST", "/jobs", submission.submit, SUBMIT),
    Operation(
        "GET",
        "/jobs/overview",
        jobs.overview,
        Doc(
            "getJobsOverview",
            _TAG,
            "All jobs, newest first",
            job_schema.JobsOverview,
            jobs_examples.OVERVIEW,
        ),
    ),
    Operation("PATCH", JOB_PATH, operations.cancel, _CANCEL),
    Operation("DELETE", JOB_PATH, jobs.forget, _FORGET),
    Operation("POST", JOB_PATH + "/stop", operations.stop, _STOP),
    Operation("GET", JOB_PATH + "/savepoints/{triggerid}", operations.stop_status, _STOP_STATUS),
    *(Operation("GET", JOB_PATH + path, handler, doc) for path, handler, doc in _READS),
]
