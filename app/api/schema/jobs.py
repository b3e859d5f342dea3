"""Jobs, their vertices, plans, exceptions and results."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field

from app.api.schema.base import Id, Millis, Schema
from app.model.jobgraph import JobType, Partitioner
from app.model.status import JobStatus


class ExecutionState(StrEnum):
    CREATED = "CREATED"
    SCHEDULED = "SCHEDULED"
    DEPLOYING = "DEPLOYING"
    INITIALIZING = "INITIALIZING"
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    CANCELING = "CANCELING"
    CANCELED = "CANCELED"
    FAILED = "FAILED"
    RECONCILING = "RECONCILING"


class TaskCounts(Schema):
    """Tasks (or vertices) by execution state."""

    CREATED: int
    SCHEDULED: int
    DEPLOYING: int
    INITIALIZING: int
    RUNNING: int
    FINISHED: int
    CANCELING: int
    CANCELED: int
    FAILED: int
    RECONCILING: int


class OverviewTaskCounts(Schema):
    total: int
    created: int
    scheduled: int
    deploying: int
    initializing: int
    running: int
    finished: int
    canceling: int
    canceled: int
    failed: int
    reconciling: int


Unreadable = Annotated[
    str | None,
    Field(
        description="Only of a job that is stored and cannot be read by this server: why, in a sentence. Its status is "
        "the last one that was stored, and its tasks are not known."
    ),
]


class JobIdAndStatus(Schema):
    id: Id
    status: JobStatus
    unreadable: Unreadable = None


class JobList(Schema):
    jobs: list[JobIdAndStatus]


class LastFailure(Schema):
    """Why the attempt before failed. Told from then on until the job has got over it: until the next attempt has had
    its first batch, or no region of a BATCH job has to run again."""

    at: Millis = Field(alias="timestampInMillis")
    attempt: int
    message: str


class JobOverview(Schema):
    jid: Id
    name: str
    job_type: JobType = Field(alias="jobType")
    scheduler_type: Literal["Adaptive"] = Field(alias="schedulerType")
    start_time: Millis = Field(alias="start-time")
    end_time: int = Field(alias="end-time", description="Epoch milliseconds, -1 while the job has not ended.")
    duration: int = Field(description="Milliseconds since the submission, until the end.")
    state: JobStatus
    last_modification: Millis = Field(alias="last-modification")
    tasks: OverviewTaskCounts
    pending_operators: int = Field(alias="pending-operators")
    last_failure: LastFailure | None = Field(alias="lastFailure", description="Beyond Flink.")
    unreadable: Unreadable = None


class JobsOverview(Schema):
    jobs: list[JobOverview]


class IoMetrics(Schema):
    """Totals over the life of a task in Flink. Spark does not count them per task: marked as incomplete."""

    read_bytes: int = Field(alias="read-bytes")
    read_bytes_complete: bool = Field(alias="read-bytes-complete")
    write_bytes: int = Field(alias="write-bytes")
    write_bytes_complete: bool = Field(alias="write-bytes-complete")
    read_records: int = Field(alias="read-records")
    read_records_complete: bool = Field(alias="read-records-complete")
    write_records: int = Field(alias="write-records")
    write_records_complete: bool = Field(alias="write-records-complete")
    backpressured: int = Field(alias="accumulated-backpressured-time")
    idle: int = Field(alias="accumulated-idle-time")
    busy: float = Field(alias="accumulated-busy-time")


class RegionProgress(Schema):
    """How far the region of a vertex of a BATCH job is. Its vertices have the same: they are one Spark plan."""

    tasks_done: int | None = Field(
        alias="tasksDone", description="Spark tasks that are done; null once the region is finished."
    )
    tasks_known: int | None = Field(
        alias="tasksKnown", description="Spark tasks known so far: Spark plans further stages as it goes."
    )
    percent: int = Field(ge=0, le=100, description="Of the tasks known; 100 only if the region is finished.")
    rest: int | None = Field(
        alias="estimatedRestInMillis",
        description="If tasks go on as before; null while none is done, and when all that are known are.",
    )


_PROGRESS = "Beyond Flink; null in a STREAMING job, and where nothing is known."


class VertexSummary(Schema):
    id: Id
    slot_sharing_group_id: Id = Field(alias="slotSharingGroupId")
    name: str
    max_parallelism: int = Field(alias="maxParallelism")
    parallelism: int = Field(description="In force; the upper bound while nothing was ever deployed.")
    status: ExecutionState
    start_time: int = Field(
        alias="start-time", description="Epoch milliseconds of the last (re)start, or -1."
    )
    end_time: int = Field(alias="end-time")
    duration: int
    tasks: TaskCounts
    metrics: IoMetrics
    progress: RegionProgress | None = Field(description=_PROGRESS)


class PlanInput(Schema):
    id: Id
    num: int
    exchange: Literal["pipelined_bounded", "blocking"]
    ship_strategy: Partitioner


class PlanNode(Schema):
    id: Id
    operator: str
    parallelism: int
    operator_strategy: str
    description: str = Field(description="The vertex's name as HTML.")
    optimizer_properties: dict[str, Any]
    inputs: list[PlanInput] | None = Field(default=None, description="Absent for sources.")


class Plan(Schema):
    jid: Id
    name: str
    type: JobType
    nodes: list[PlanNode]


class JobPlan(Schema):
    plan: Plan


class Timestamps(Schema):
    """When the job last entered each status, epoch milliseconds; 0 if it never did."""

    INITIALIZING: int
    CREATED: int
    RUNNING: int
    FAILING: int
    FAILED: int
    CANCELLING: int
    CANCELED: int
    FINISHED: int
    RESTARTING: int
    SUSPENDED: int
    RECONCILING: int


class StreamingQuery(Schema):
    id: str = Field(description="Spark's id of the query, of its checkpoint.")
    run_id: str = Field(
        alias="runId", description="Spark's id of this start of it; another one after each restart."
    )
    batch_id: int = Field(alias="batchId", description="The last micro-batch that it has committed.")


class JobDetails(Schema):
    jid: Id
    application_id: Id = Field(alias="application-id")
    name: str
    is_stoppable: bool = Field(alias="isStoppable")
    state: JobStatus
    job_type: JobType = Field(alias="job-type")
    scheduler_type: Literal["Adaptive"] = Field(alias="schedulerType")
    start_time: Millis = Field(alias="start-time")
    end_time: int = Field(alias="end-time")
    duration: int
    max_parallelism: int = Field(alias="maxParallelism")
    now: Millis
    timestamps: Timestamps
    vertices: list[VertexSummary]
    status_counts: TaskCounts = Field(alias="status-counts")
    plan: Plan
    pending_operators: int = Field(alias="pending-operators")
    scheduler_state: str = Field(alias="schedulerState", description="FLIP-160's state, or Rescaling.")
    attempt: int = Field(description="How many drivers or queries were started so far.")
    driver_pid: int | None = Field(alias="driverPid")
    submitted_by: str | None = Field(alias="submittedBy")
    under_way: bool = Field(
        alias="underWay",
        description="Whether the present attempt has processed something: of a STREAMING job, whether the parallelism "
        "in force has had a batch, or its sources have nothing; of a BATCH job, whether a task is done.",
    )
    last_failure: LastFailure | None = Field(alias="lastFailure", description="Beyond Flink.")
    queries: list[StreamingQuery] = Field(
        description="Of a STREAMING job: its queries, once they have had a batch."
    )


class ExecutionConfig(Schema):
    restart_strategy: str = Field(alias="restart-strategy")
    job_parallelism: int = Field(alias="job-parallelism")
    object_reuse_mode: bool = Field(alias="object-reuse-mode")
    user_config: dict[str, str] = Field(
        alias="user-config", description="Values that look like secrets are hidden."
    )


class JobConfig(Schema):
    jid: Id
    name: str
    execution_config: ExecutionConfig = Field(alias="execution-config")


class JobStatusAnswer(Schema):
    status: JobStatus


class ExceptionInfo(Schema):
    exception_name: str = Field(alias="exceptionName")
    stacktrace: str = Field(
        description="The stack trace of the job's own code, or the sentence if there is none."
    )
    timestamp: Millis
    failure_labels: dict[str, str] = Field(
        alias="failureLabels",
        description="failover: local if only its query was restarted. why: what in its causes decided.",
    )
    task_name: str | None = Field(
        default=None, alias="taskName", description="Absent for a failure of the whole job."
    )
    message: str
    attempt: int


class RootExceptionInfo(ExceptionInfo):
    concurrent_exceptions: list[ExceptionInfo] = Field(alias="concurrentExceptions")


class ExceptionHistory(Schema):
    entries: list[RootExceptionInfo]
    truncated: bool


class JobExceptions(Schema):
    exception_history: ExceptionHistory = Field(alias="exceptionHistory")


class FailureCause(Schema):
    class_name: str = Field(alias="class")
    stack_trace: str = Field(alias="stack-trace")


class OperationStatus(Schema):
    id: Literal["IN_PROGRESS", "COMPLETED"]


class JobResult(Schema):
    id: Id
    name: str
    application_status: Literal["SUCCEEDED", "CANCELED", "FAILED"] = Field(alias="application-status")
    accumulator_results: dict[str, Any] = Field(alias="accumulator-results")
    net_runtime: int = Field(alias="net-runtime")
    application_id: Id = Field(alias="application-id")
    start_time: Millis = Field(alias="start-time")
    end_time: Millis = Field(alias="end-time")
    failure_cause: FailureCause | None = Field(
        default=None, alias="failure-cause", description="Only if it failed."
    )


class ExecutionResult(Schema):
    status: OperationStatus
    result: JobResult | None = Field(
        default=None, alias="job-execution-result", description="Once it has ended."
    )


class StopBody(Schema):
    """What Flink's client sends. There is no target directory: the job stops on its own checkpoint."""

    target_directory: None = Field(default=None, alias="targetDirectory")
    drain: bool | None = None
    format_type: Literal["CANONICAL", "NATIVE"] | None = Field(default=None, alias="formatType")
    trigger_id: str | None = Field(default=None, alias="triggerId", pattern="^[0-9a-fA-F]{32}$")


class StopAccepted(Schema):
    request_id: Id = Field(alias="request-id")


class StopOutcome(Schema):
    location: str | None = Field(default=None, description="The job's checkpoint.")
    failure_cause: FailureCause | None = Field(default=None, alias="failure-cause")


class StopStatus(Schema):
    status: OperationStatus
    operation: StopOutcome | None


class Submitted(Schema):
    jobid: Id
    job_url: str = Field(alias="jobUrl")


class Metric(Schema):
    id: str
    value: str | None = Field(default=None, description="Only if it was asked for with get=.")


class AggregatedMetric(Schema):
    id: str
    sum: float | None = None
    avg: float | None = None


class Aggregate(Schema):
    min: int
    max: int
    avg: int
    sum: int
    median: int
    p25: int
    p75: int
    p95: int


class Subtask(Schema):
    subtask: int
    status: ExecutionState
    attempt: int
    endpoint: str
    start_time: int = Field(alias="start-time")
    end_time: int = Field(alias="end-time")
    duration: int
    metrics: IoMetrics
    taskmanager_id: str = Field(alias="taskmanager-id")
    status_duration: dict[ExecutionState, int] = Field(alias="status-duration")
    start_time_again: int = Field(alias="start_time")


class VertexAggregates(Schema):
    metrics: dict[str, Aggregate]
    status_duration: dict[ExecutionState, Aggregate] = Field(alias="status-duration")


class VertexDetails(Schema):
    id: Id
    name: str
    parallelism: int
    max_parallelism: int = Field(alias="maxParallelism")
    now: Millis
    subtasks: list[Subtask]
    aggregated: VertexAggregates
    progress: RegionProgress | None = Field(description=_PROGRESS)
