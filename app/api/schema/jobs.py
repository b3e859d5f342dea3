"""Jobs, their vertices, plans, exceptions and results."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from app.api.schema.base import Camel, Hyphenated, Id, Millis, Schema, called
from app.model.jobgraph import JobType, Partitioner
from app.model.status import JobStatus
from app.worker.requests.long_batches import Waiting

ExecutionState = Literal[
    "CREATED", "SCHEDULED", "DEPLOYING", "INITIALIZING", "RUNNING", "FINISHED", "CANCELING", "CANCELED", "FAILED",
    "RECONCILING",
]  # fmt: skip


TaskCounts = Annotated[
    dict[ExecutionState, int],
    Field(description="Tasks (or vertices) by execution state, all of which are there."),
]


Unreadable = Annotated[
    str | None,
    Field(
        description="Only for a stored job that this server cannot read: the reason, in a sentence. Its status is the "
        "last one that was stored, and its tasks are not known."
    ),
]


class JobIdAndStatus(Schema):
    id: Id
    status: JobStatus
    unreadable: Unreadable = None


class JobList(Schema):
    jobs: list[JobIdAndStatus]


class LastFailure(Camel):
    """The failure of the previous attempt. Present until the job has recovered: until the next attempt has committed
    a batch, or no region of a BATCH job has to run again."""

    at_ms: Millis = called("timestampInMillis")
    attempt: int
    error: str = called("message")


class JobOverview(Camel):
    jid: Id
    name: str
    job_type: JobType | str = Field(description="For a job that cannot be read, the stored text.")
    scheduler_type: Literal["Adaptive"]
    start_time: Millis = Field(serialization_alias="start-time")
    end_time: int = Field(
        serialization_alias="end-time", description="Epoch milliseconds, -1 while the job has not ended."
    )
    duration: int = Field(description="Milliseconds since the submission, until the end.")
    state: JobStatus
    last_modification: Millis = Field(serialization_alias="last-modification")
    tasks: dict[str, int] = Field(description="By execution state in lower case, and their `total`.")
    pending_operators: int = Field(serialization_alias="pending-operators")
    scheduler_state: str | None = Field(description="FLIP-160's state, or Rescaling. Not in Flink.")
    last_failure: LastFailure | None = Field(description="Not in Flink.")
    unreadable: Unreadable = None


class JobsOverview(Schema):
    jobs: list[JobOverview]


class IoMetrics(Hyphenated):
    """Totals from the start of the present attempt to the last batch; incomplete if Spark did not report all of them.
    Those of a subtask are of its tasks, since its vertex has its present parallelism."""

    read_bytes: int
    read_bytes_complete: bool
    write_bytes: int
    write_bytes_complete: bool
    read_records: int
    read_records_complete: bool
    write_records: int
    write_records_complete: bool
    accumulated_backpressured_time: int
    accumulated_idle_time: int
    accumulated_busy_time: float


class RegionProgress(Camel):
    """The progress of the region of a BATCH job's vertex. All vertices of a region have equal figures."""

    tasks_done: int | None = Field(description="Finished Spark tasks; null when the region is finished.")
    tasks_known: int | None = Field(
        description="Spark tasks known so far; Spark plans further stages while it runs."
    )
    percent: int = Field(
        ge=0, le=100, description="Percent of the known tasks; 100 only if the region is finished."
    )
    estimated_rest_ms: int | None = Field(
        description="Estimate at the current speed; null while no task is done, and when all known tasks are done."
    )


_PROGRESS = "Not in Flink; null for a STREAMING job, and if nothing is known."


class VertexSummary(Camel):
    id: Id
    slot_sharing_group_id: Id
    name: str
    max_parallelism: int
    parallelism: int = Field(
        description="The parallelism in force; the upper bound before the first deployment."
    )
    status: ExecutionState
    start_time: int = Field(
        serialization_alias="start-time", description="Epoch milliseconds of the last (re)start, or -1."
    )
    end_time: int = Field(serialization_alias="end-time")
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


class StreamingQuery(Camel):
    query_id: str = called("id", "Spark's id of the query, which is stored in its checkpoint.")
    run_id: str = Field(description="Spark's id of this run of the query; each restart has another one.")
    batch_id: int = Field(description="The last committed micro-batch.")


class JobDetails(Camel):
    jid: Id
    application_id: Id = Field(serialization_alias="application-id")
    name: str
    is_stoppable: bool
    state: JobStatus
    job_type: JobType = Field(serialization_alias="job-type")
    scheduler_type: Literal["Adaptive"]
    start_time: Millis = Field(serialization_alias="start-time")
    end_time: int = Field(serialization_alias="end-time")
    duration: int
    max_parallelism: int
    now: Millis
    timestamps: dict[JobStatus, int] = Field(
        description="When the job last entered each status, epoch milliseconds; 0 if it never did."
    )
    vertices: list[VertexSummary]
    status_counts: TaskCounts = Field(serialization_alias="status-counts")
    plan: Plan
    pending_operators: int = Field(serialization_alias="pending-operators")
    scheduler_state: str = Field(description="FLIP-160's state, or Rescaling.")
    attempt: int = Field(description="The number of the present attempt.")
    driver_pid: int | None
    spark_ui: str | None = Field(description="The web page of Spark in the driver, if the job asked for one.")
    submitted_by: str | None
    working_directory: str = Field(
        description="The directory, on the host of the server, in which its program runs and its relative paths lie."
    )
    under_way: bool = Field(
        description="Whether the present attempt has processed something. STREAMING: a batch was committed with the "
        "parallelism in force, or the sources have no data. BATCH: a task is done."
    )
    last_failure: LastFailure | None = Field(description="Not in Flink.")
    queries: list[StreamingQuery] = Field(
        description="The queries of a STREAMING job that have committed a batch."
    )


class ExecutionConfig(Hyphenated):
    restart_strategy: str
    job_parallelism: int
    object_reuse_mode: bool
    user_config: dict[str, str] = Field(description="Values that look like secrets are hidden.")


class JobConfig(Hyphenated):
    jid: Id
    name: str
    execution_config: ExecutionConfig


class JobStatusAnswer(Schema):
    status: JobStatus


class ExceptionInfo(Camel):
    exception_name: str
    stacktrace: str = Field(
        description="The stack trace of the job's own code, or the sentence if there is none."
    )
    timestamp: Millis
    failure_labels: dict[str, str] = Field(
        description="failover: local if only its query was restarted. why: the reason why it is final or recoverable."
    )
    task_name: str | None = Field(default=None, description="Absent for a failure of the whole job.")
    message: str
    attempt: int


class RootExceptionInfo(ExceptionInfo):
    concurrent_exceptions: list[ExceptionInfo]


class ExceptionHistory(Schema):
    entries: list[RootExceptionInfo]
    truncated: bool


class JobExceptions(Camel):
    exception_history: ExceptionHistory


class FailureCause(Hyphenated):
    class_name: str = Field(serialization_alias="class")
    stack_trace: str


class OperationStatus(Schema):
    id: Literal["IN_PROGRESS", "COMPLETED"]


class JobResult(Hyphenated):
    id: Id
    name: str
    application_status: Literal["SUCCEEDED", "CANCELED", "FAILED"]
    accumulator_results: dict[str, Any]
    net_runtime: int
    application_id: Id
    start_time: Millis
    end_time: Millis
    failure_cause: FailureCause | None = Field(default=None, description="Only if it failed.")


class ExecutionResult(Hyphenated):
    status: OperationStatus
    job_execution_result: JobResult | None = Field(default=None, description="Once it has ended.")


class Submitted(Camel):
    jobid: Id
    job_url: str


class Metric(Schema):
    id: str
    value: str | None = Field(default=None, description="Only if the request has get=.")


class AggregatedMetric(Schema):
    """Known values only: where tasks are not measured, a metric has only sum and avg."""

    id: str
    min: float | None = None
    max: float | None = None
    sum: float | None = None
    avg: float | None = None


class LongBatch(Camel):
    """A micro-batch that has run for more than five seconds and is not committed yet, as the driver told of it last.
    It tells every five seconds. A null value is not known, or there is none."""

    query_id: str = Field(description="Spark's id of the query.")
    run_id: str = Field(description="Spark's id of this run of the query.")
    vertex_id: Id = Field(description="Of its sink.")
    vertex_name: str
    batch_id: int
    since_ms: Millis = called("startTimestampInMillis")
    seen_ms: Millis = called("reportedTimestampInMillis", "When the driver told of it last.")
    plan_version: int = Field(description="The version of the plan that it runs at.")
    tasks_done: int | None
    tasks_known: int | None = Field(
        description="Spark tasks known so far: those of Spark jobs that the batch has begun."
    )
    rows: int | None = called("numRecords", "The records that it reads, if its sources say that before.")
    waiting: Waiting | None = Field(description="What waits for its end.")
    waiting_in_words: str | None = Field(description='Such as "the rescale to 8".')
    rescale_uuid: str | None = Field(description="The record of the rescale that waits.")
    waiting_since_ms: int | None = called(
        "waitingSinceTimestampInMillis", "Since when a plan waits for its end, as the driver says."
    )
    interruption_ms: int | None = called(
        "interruptionTimestampInMillis",
        "From when on it may be interrupted for the rescale that waits, unless half of its tasks are done.",
    )


class LoadHistory(Camel):
    """Steps of one length, oldest first. All their lists have equal lengths. A null value is not known."""

    step_ms: int
    starts_ms: list[Millis] = called("startTimestampsInMillis")
    rows_per_second: list[float] = called(
        "numRecordsInPerSecond", "Records of all sources; 0 if no batch ran."
    )
    backlog_rows: list[float | None] = called("pendingRecords", "At the end of the last batch of the step.")
    longest_batch_ms: list[float | None] = Field(description="Of the batches that ended in the step.")
    batch_ms_per_second: list[float] = called(
        "batchTimeMsPerSecond", "While a batch ran; with several queries their sum."
    )
    busy_ms_per_second: dict[str, list[float]] = called(
        "busyTimeMsPerSecond", "Busy time of the average slot, by vertex id; 0 if no batch ran."
    )
    long_batches: list[LongBatch] = Field(description="Those that run now, the longest first.")


class Executor(Camel):
    """Counts and times are sums since its start."""

    executor_id: str = called("id")
    host: str
    cores: int
    heap_used_bytes: int = called("heapUsedInBytes")
    heap_max_bytes: int = called("heapMaxInBytes")
    gc_ms: int = called("gcTimeInMillis")
    disk_used_bytes: int = called("diskUsedInBytes")
    tasks_done: int
    tasks_failed: int
    run_ms: int = called("runTimeInMillis")


class Executors(Camel):
    reported_timestamp_in_millis: Millis | None = Field(description="Null if nothing was reported yet.")
    executors: list[Executor]


class Aggregate(Schema):
    min: int
    max: int
    avg: int
    sum: int
    median: int
    p25: int
    p75: int
    p95: int


class Subtask(Hyphenated):
    subtask: int
    status: ExecutionState
    attempt: int
    endpoint: str
    start_time: int
    end_time: int
    duration: int
    metrics: IoMetrics
    taskmanager_id: str
    status_duration: dict[ExecutionState, int]
    start_time_again: int = Field(serialization_alias="start_time")


class VertexAggregates(Hyphenated):
    metrics: dict[str, Aggregate]
    status_duration: dict[ExecutionState, Aggregate]


class VertexDetails(Camel):
    id: Id
    name: str
    parallelism: int
    max_parallelism: int
    now: Millis
    subtasks: list[Subtask]
    aggregated: VertexAggregates
    progress: RegionProgress | None = Field(description=_PROGRESS)
