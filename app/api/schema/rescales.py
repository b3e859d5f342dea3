"""Requirements, rescale records, explanations and dry runs."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from app.api.schema.base import Camel, Id, Millis, Schema, called
from app.api.schema.declared import PolicyVersion, ShareExplained
from app.model.plan import Rung
from app.model.requirements import OnTimeout
from app.model.rescale import TerminalState, TerminatedReason, TriggerCause
from app.model.status import JobStatus


class ResourceProfile(Camel):
    """-1: not known (Flink's mark)."""

    cpu_cores: float
    task_heap_memory: int
    task_off_heap_memory: int
    managed_memory: int
    network_memory: int
    extended_resources: dict[str, Any]


class VertexRescale(Camel):
    vertex_id: Id = called("jobVertexId")
    name: str = called("jobVertexName")
    slot_sharing_group_id: Id
    slot_sharing_group: str = called("slotSharingGroupName")
    desired: int = called("desiredParallelism", "The upper bound.")
    sufficient: int = called("sufficientParallelism", "The lower bound.")
    pre: int | None = called("preRescaleParallelism")
    post: int | None = called("postRescaleParallelism")


class SlotGroupRescale(Camel):
    group_id: Id = called("slotSharingGroupId")
    group_name: str = called("slotSharingGroupName")
    request_resource_profile: ResourceProfile
    desired: int = called("desiredSlots")
    minimal: int = called("minimalRequiredSlots")
    pre: int | None = called("preRescaleSlots")
    post: int | None = called("postRescaleSlots")
    acquired_resource_profile: ResourceProfile


class SchedulerStateSpan(Camel):
    state: str
    enter_ms: Millis = called("enterTimestampInMillis")
    leave_ms: Millis = called("leaveTimestampInMillis")
    duration_ms: int
    exception: str | None = called("stringifiedException")


class Rescale(Camel):
    """One rescale. `schedulerStates` is empty except in the details."""

    uuid: Id = called("rescaleUuid")
    requirements_uuid: Id = called("resourceRequirementsUuid")
    attempt_id: int = called("rescaleAttemptId")
    vertices: dict[str, VertexRescale]
    slots: dict[str, SlotGroupRescale]
    scheduler_states: list[SchedulerStateSpan]
    start_ms: Millis = called("startTimestampInMillis")
    end_ms: int | None = called("endTimestampInMillis", "Null while the rescale is in progress.")
    terminal_state: TerminalState | None
    cause: TriggerCause = called("triggerCause")
    reason: TerminatedReason | None = called("terminatedReason")
    number: int = Field(description="The number of the record, from 1 for each job; the key for pagination.")
    requested_by: str | None
    request_reason: str | None = called("reason", "The X-Slotwise-Reason of the request.")
    message: str | None = Field(description="The reason of its outcome, in words.")
    rung: Rung | None = Field(description="How the rescale was applied, cheapest first.")
    output_gap_ms: int | None = Field(
        description=(
            "The longest pause between two completed batches around the change less the steady interval; the pause "
            "itself if fewer than two batches had been committed before the change, null if none had. 0 if there was "
            "no input when the change came into force."
        )
    )
    reprocessed_records: int | None
    rollback_of: int | None = Field(description="The number of the record whose rescale this one takes back.")
    cause_in_words: str = Field(description="The trigger cause for people.")
    parallelism_in_words: str | None = Field(
        description="The parallelism before and after of what changed, else of what stayed; null if not decided yet."
    )


class RescaleCounts(Camel):
    ignored: int
    in_progress: int
    completed: int
    failed: int


class LatestRescales(Schema):
    completed: Rescale | None
    failed: Rescale | None
    ignored: Rescale | None


class RescalesOverview(Camel):
    rescales_counts: RescaleCounts
    latest: LatestRescales


class DurationStatistics(Schema):
    """Milliseconds. Percentiles without data are the text NaN."""

    min: int
    max: int
    avg: int
    p50: float | Literal["NaN"]
    p90: float | Literal["NaN"]
    p95: float | Literal["NaN"]
    p99: float | Literal["NaN"]
    p999: float | Literal["NaN"]


class RescalesSummary(Camel):
    rescales_counts: RescaleCounts
    rescales_duration_stats_ms: DurationStatistics
    completed_rescales_duration_stats_ms: DurationStatistics
    ignored_rescales_duration_stats_ms: DurationStatistics
    failed_rescales_duration_stats_ms: DurationStatistics


class RescalesConfig(Camel):
    rescale_history_size: int = called("rescaleHistoryMax")
    scheduler_execution_mode: Literal["REACTIVE"] | None
    submission_wait_ms: int = called("submissionResourceWaitTimeoutInMillis", "-1: no limit.")
    submission_stabilization_ms: int = called("submissionResourceStabilizationTimeoutInMillis")
    slot_idle_timeout_ms: int
    executing_cooldown_ms: int = called("executingCooldownTimeoutInMillis")
    executing_stabilization_ms: int = called("executingResourceStabilizationTimeoutInMillis")
    max_delay_ms: int = called("maximumDelayForTriggeringRescaleInMillis")
    max_checkpoint_failures: int = called("rescaleOnFailedCheckpointCount")
    in_place_cooldown_ms: int = called("inPlaceCooldownTimeoutInMillis")
    in_place_stabilization_ms: int = called("inPlaceResourceStabilizationTimeoutInMillis")
    in_place_max_delay_ms: int = called("inPlaceMaximumDelayInMillis")


class SlotsExplained(Schema):
    desired_slots: int = called("desired")
    minimal_slots: int = called("minimal")
    held_slots: int = called("held")
    used_slots: int = called("used")


class VertexExplained(Camel):
    name: str
    lower_bound: int
    upper_bound: int
    effective_lower_bound: int = Field(description="The declared bound after the scaling policy.")
    effective_upper_bound: int = Field(description="The declared bound after the scaling policy.")
    max_parallelism: int
    attainable: int | None = Field(
        description="Attainable with the held slots; null if the lower bounds are not."
    )
    in_force: int | None
    tasks: int | None = Field(
        description="Tasks of its stage in the last batch; null if Spark does not tell. Fewer than inForce: its source "
        "has fewer files or partitions."
    )


class SupplyExplained(Camel):
    """The slots of all jobs."""

    total: int
    idle: int = Field(description="Slots that no job holds. While outOfSight is true, no job gets them.")
    cluster_unreachable: bool = called(
        "outOfSight", "Whether the cluster is unreachable: total and idle are then the last known numbers."
    )
    why: list[str] = Field(
        description="The cluster's reasons why there are no more slots, one sentence each."
    )


class ExecutorsExplained(Camel):
    """The executors of a job on a cluster, as its driver last reported them."""

    present: int
    wanted: int = Field(description="One for each slot that the job holds.")
    short_since_ms: int | None = Field(
        description="Since when there are fewer than wanted; null if there are enough."
    )


class RollbackExplained(Camel):
    """A rescale that was taken back, until other bounds are declared or these bounds are declared with retry=true."""

    rescale: int | None = Field(description="The number of the rescale record.")
    at_ms: Millis = called("timestampInMillis")
    why: str = called("reason")
    tried: dict[str, int] = Field(description="The parallelism per vertex id that was taken back.")
    good: dict[str, int] = called(
        "backAt", "The restored parallelism, which is now the maximum for all bounds."
    )


class ResolvedBounds(Camel):
    lower: int = called("lowerBound")
    upper: int = called("upperBound")


class QueuedExplained(Camel):
    """Bounds with a deadline that wait for their slots, beside those that hold."""

    version: int
    rescale: int | None = Field(description="The number of the rescale record.")
    bounds: dict[str, ResolvedBounds] = Field(description="By vertex id, of the vertices that wait.")
    state_partitions: dict[str, int] = Field(description="The numbers that are asked for, by vertex id.")
    begun: bool = Field(
        description="The slots have come: the bounds hold, and their plan is not in force yet."
    )
    deadline_timestamp_ms: Millis
    on_timeout: OnTimeout
    requested_by: str | None
    reason: str | None


class Explanation(Camel):
    jid: Id
    name: str
    status: JobStatus
    scheduler_state: str
    requirements_version: int
    slots: SlotsExplained
    slot_share: ShareExplained
    scaling_policy: PolicyVersion
    supply: SupplyExplained
    executors: ExecutorsExplained | None = Field(
        description="Null if the job does not run, runs on the host, or its driver has not reported."
    )
    vertices: dict[str, VertexExplained]
    reactive: bool = Field(description="Whether the job uses all available slots.")
    rollback: RollbackExplained | None
    on_trial_until_ms: int | None = Field(description="The end of the trial of the last rescale.")
    queued: list[QueuedExplained] = Field(description="Bounds that wait for their deadline, oldest first.")
    cancelable_rescales: list[int] = Field(description="The numbers of the rescales that can be canceled.")
    sentences: list[str]
    violations: list[str] = Field(
        description="Bounds that the parallelism in force violates, with the reason."
    )
    last_batch_timestamp_ms: int | None


class DryRun(Camel):
    """The effect that the request would have. Nothing was changed."""

    bounds: dict[str, ResolvedBounds]
    current: dict[str, int] | None = called("currentParallelism")
    parallelism: dict[str, int] | None = Field(
        description="The resulting parallelism; null if none is attainable with the available slots. For a BATCH job: "
        "the decided vertices, which other bounds do not change."
    )
    slots_before: int
    slots_after: int | None
    rung: Rung | None
    refused: list[str]
    explanation: list[str]
