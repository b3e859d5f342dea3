"""Submitting, reading and ending jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.api.documentation import Body, Doc
from app.api.examples import jobs as jobs_examples
from app.api.examples.common import COUNTS, JOB, TRIGGER
from app.api.handlers import jobs, operations, submission
from app.api.operations.common import JOB_PATH, query_parameter
from app.api.routing import Operation
from app.api.schema import jobs as job_schema
from app.api.schema.base import Empty
from app.api.schema.graph import GRAPH_SCHEMA


def job_operations() -> list[Operation]:
    tag = "jobs"
    submit = Doc(
        id="submitJob",
        tag=tag,
        summary="Submit a job",
        description=(
            "The graph as JSON or YAML, or a multipart form with the part `graph` and the files that it lists"
            " under artifacts. All errors of a graph are answered at once, each with its place."
        ),
        status=202,
        answer=job_schema.Submitted,
        example={"jobid": JOB, "jobUrl": f"/jobs/{JOB}"},
        body=Body(
            "The job graph.",
            {
                "application/json": (GRAPH_SCHEMA, jobs_examples.GRAPH),
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
                    {"graph": jobs_examples.GRAPH_YAML, "files": []},
                ),
            },
        ),
        errors={
            400: "vertices[1].inputs[0]: 'number' is not a vertex of the graph.",
            415: (
                "The Content-Type 'text/html' is not supported: send application/json, application/yaml or "
                "multipart/form-data."
            ),
        },
    )
    cancel = Doc(
        id="cancelJob",
        tag=tag,
        summary="Cancel a job at once",
        status=202,
        answer=Empty,
        example={},
        parameters=(query_parameter("mode", "cancel is the only mode.", {"enum": ["cancel"]}, "cancel"),),
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
        example={"request-id": TRIGGER},
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
        example={
            "status": {"id": "COMPLETED"},
            "operation": {"location": "/var/lib/slotwise/jobs/7d6d/checkpoint"},
        },
        errors={404: f"There is no stop operation {TRIGGER} of job {JOB}."},
    )
    return [
        Operation(
            "GET",
            "/jobs",
            jobs.list_jobs,
            Doc(
                "listJobs",
                tag,
                "Ids and statuses of all jobs",
                job_schema.JobList,
                {"jobs": [{"id": JOB, "status": "RUNNING"}]},
            ),
        ),
        Operation("POST", "/jobs", submission.submit, submit),
        Operation(
            "GET",
            "/jobs/overview",
            jobs.overview,
            Doc(
                "getJobsOverview",
                tag,
                "All jobs, newest first",
                job_schema.JobsOverview,
                jobs_examples.OVERVIEW,
            ),
        ),
        Operation("PATCH", JOB_PATH, operations.cancel, cancel),
        Operation("DELETE", JOB_PATH, jobs.forget, forget),
        Operation("POST", JOB_PATH + "/stop", operations.stop, stop),
        Operation("GET", JOB_PATH + "/savepoints/{triggerid}", operations.stop_status, stop_status),
        *_job_reads(tag),
    ]


def _job_reads(tag: str) -> list[Operation]:
    reads: Sequence[tuple[str, Any, Doc]] = (
        (
            "",
            jobs.details,
            Doc(
                "getJob",
                tag,
                "A job with its vertices and its plan",
                job_schema.JobDetails,
                jobs_examples.DETAILS,
            ),
        ),
        (
            "/plan",
            jobs.plan,
            Doc("getJobPlan", tag, "The plan in force", job_schema.JobPlan, {"plan": jobs_examples.PLAN}),
        ),
        (
            "/graph",
            jobs.graph,
            Doc(
                "getJobGraph",
                tag,
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
                tag,
                "The configuration of a job",
                job_schema.JobConfig,
                jobs_examples.JOB_CONFIG,
            ),
        ),
        (
            "/status",
            jobs.status,
            Doc(
                "getJobStatus", tag, "The status of a job", job_schema.JobStatusAnswer, {"status": "RUNNING"}
            ),
        ),
        (
            "/exceptions",
            jobs.exceptions,
            Doc(
                "getJobExceptions",
                tag,
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
                tag,
                "How a job ended",
                job_schema.ExecutionResult,
                jobs_examples.EXECUTION_RESULT,
            ),
        ),
        (
            "/vertices/{vertexid}",
            jobs.vertex,
            Doc(
                "getVertex",
                tag,
                "A vertex with its subtasks",
                job_schema.VertexDetails,
                jobs_examples.VERTEX_DETAILS,
                errors={404: f"Job vertex {COUNTS} was not found in job {JOB}."},
            ),
        ),
    )
    return [Operation("GET", JOB_PATH + path, handler, doc) for path, handler, doc in reads]
