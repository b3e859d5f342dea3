"""Requirements, rescale records, explanations and dry runs."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from app.api.schema.base import Id, Millis, Schema
from app.api.schema.slot_share import ShareExplained
from app.model.plan import Rung
from app.model.rescale import TerminalState, TerminatedReason, TriggerCause
from app.model.status import JobStatus


class ResourceProfile(Schema):
    """-1: not known (Flink's mark)."""

    cpu_cores: float = Field(alias="cpuCores")
    task_heap: int = Field(alias="taskHeapMemory")
    task_off_heap: int = Field(alias="taskOffHeapMemory")
    managed: int = Field(alias="managedMemory")
    network: int = Field(alias="networkMemory")
    extended: dict[str, Any] = Field(alias="extendedResources")


class VertexRescale(Schema):
    id: Id = Field(alias="jobVertexId")
    name: str = Field(alias="jobVertexName")
    group_id: Id = Field(alias="slotSharingGroupId")
    group_name: str = Field(alias="slotSharingGroupName")
    desired: int = Field(alias="desiredParallelism", description="The upper bound.")
    sufficient: int = Field(alias="sufficientParallelism", description="The lower bound.")
    pre: int | None = Field(alias="preRescaleParallelism")
    post: int | None = Field(alias="postRescaleParallelism")


class SlotGroupRescale(Schema):
    group_id: Id = Field(alias="slotSharingGroupId")
    group_name: str = Field(alias="slotSharingGroupName")
    request_profile: ResourceProfile = Field(alias="requestResourceProfile")
    desired: int = Field(alias="desiredSlots")
    minimal: int = Field(alias="minimalRequiredSlots")
    pre: int | None = Field(alias="preRescaleSlots")
    post: int | None = Field(alias="postRescaleSlots")
    acquired_profile: ResourceProfile = Field(alias="acquiredResourceProfile")


class SchedulerStateSpan(Schema):
    state: str
    enter: Millis = Field(alias="enterTimestampInMillis")
    leave: Millis = Field(alias="leaveTimestampInMillis")
    duration: int = Field(alias="durationInMillis")
    exception: str | None = Field(alias="stringifiedException")


class Rescale(Schema):
    """One rescale. `schedulerStates` is filled in the details only."""

    uuid: Id = Field(alias="rescaleUuid")
    requirements_uuid: Id = Field(alias="resourceRequirementsUuid")
    attempt_id: int = Field(alias="rescaleAttemptId")
    vertices: dict[str, VertexRescale]
    slots: dict[str, SlotGroupRescale]
    scheduler_states: list[SchedulerStateSpan] = Field(alias="schedulerStates")
    start: Millis = Field(alias="startTimestampInMillis")
    end: int | None = Field(alias="endTimestampInMillis", description="null while it is in progress.")
    terminal_state: TerminalState | None = Field(alias="terminalState")
    cause: TriggerCause = Field(alias="triggerCause")
    terminated_reason: TerminatedReason | None = Field(alias="terminatedReason")
    number: int = Field(description="Counts the job's records from 1; the key of the pages.")
    requested_by: str | None = Field(alias="requestedBy")
    reason: str | None = Field(description="What X-Slotwise-Reason said.")
    message: str | None = Field(description="Why it ended as it did, in words.")
    rung: Rung | None = Field(description="How it was done, cheapest first.")
    output_gap: int | None = Field(
        alias="outputGapInMillis",
        description=(
            "The longest pause between two completed batches around the change less the steady interval; the pause "
            "itself if fewer than two batches had been committed before the change, null if none had."
        ),
    )
    reprocessed: int | None = Field(alias="reprocessedRecords")
    rollback_of: int | None = Field(
        alias="rollbackOf", description="The number of the record whose rescale this one takes back."
    )


class RescaleCounts(Schema):
    ignored: int
    in_progress: int = Field(alias="inProgress")
    completed: int
    failed: int


class LatestRescales(Schema):
    completed: Rescale | None
    failed: Rescale | None
    ignored: Rescale | None


class RescalesOverview(Schema):
    counts: RescaleCounts = Field(alias="rescalesCounts")
    latest: LatestRescales


class DurationStatistics(Schema):
    """Milliseconds. Percentiles of nothing are the text NaN."""

    min: int
    max: int
    avg: int
    p50: float | Literal["NaN"]
    p90: float | Literal["NaN"]
    p95: float | Literal["NaN"]
    p99: float | Literal["NaN"]
    p999: float | Literal["NaN"]


class RescalesSummary(Schema):
    counts: RescaleCounts = Field(alias="rescalesCounts")
    all: DurationStatistics = Field(alias="rescalesDurationStatsInMillis")
    completed: DurationStatistics = Field(alias="completedRescalesDurationStatsInMillis")
    ignored: DurationStatistics = Field(alias="ignoredRescalesDurationStatsInMillis")
    failed: DurationStatistics = Field(alias="failedRescalesDurationStatsInMillis")


class RescalesConfig(Schema):
    history_max: int = Field(alias="rescaleHistoryMax")
    execution_mode: Literal["REACTIVE"] | None = Field(alias="schedulerExecutionMode")
    wait: int = Field(alias="submissionResourceWaitTimeoutInMillis", description="-1: for ever.")
    stabilization: int = Field(alias="submissionResourceStabilizationTimeoutInMillis")
    idle: int = Field(alias="slotIdleTimeoutInMillis")
    cooldown: int = Field(alias="executingCooldownTimeoutInMillis")
    executing_stabilization: int = Field(alias="executingResourceStabilizationTimeoutInMillis")
    max_delay: int = Field(alias="maximumDelayForTriggeringRescaleInMillis")
    failed_checkpoints: int = Field(alias="rescaleOnFailedCheckpointCount")
    in_place_cooldown: int = Field(alias="inPlaceCooldownTimeoutInMillis")
    in_place_stabilization: int = Field(alias="inPlaceResourceStabilizationTimeoutInMillis")
    in_place_max_delay: int = Field(alias="inPlaceMaximumDelayInMillis")


class SlotsExplained(Schema):
    desired: int
    minimal: int
    held: int
    used: int


class VertexExplained(Schema):
    name: str
    lower: int = Field(alias="lowerBound")
    upper: int = Field(alias="upperBound")
    max_parallelism: int = Field(alias="maxParallelism")
    attainable: int | None = Field(
        description="With the slots held now; null if the lower bounds are out of reach."
    )
    in_force: int | None = Field(alias="inForce")


class SupplyExplained(Schema):
    """The slots that there are for all jobs."""

    total: int
    idle: int = Field(description="Held by no job. While outOfSight nobody can be given them.")
    out_of_sight: bool = Field(
        alias="outOfSight",
        description="Whether the cluster cannot be asked what it has: total and idle are of before.",
    )
    why: list[str] = Field(
        description="Why there are no more, as the cluster says: one sentence for each reason."
    )


class ExecutorsExplained(Schema):
    """Of a job on a cluster, as its driver said last."""

    present: int
    wanted: int = Field(description="One for each slot that the job holds.")
    short_since: int | None = Field(
        alias="shortSinceInMillis",
        description="Since when there are fewer than wanted; null if there are not.",
    )


class RollbackExplained(Schema):
    """A rescale that was taken back. It holds until other bounds are declared, or these again with retry=true."""

    rescale: int | None = Field(description="The number of its record.")
    at: Millis = Field(alias="timestampInMillis")
    reason: str
    tried: dict[str, int] = Field(description="The parallelism per vertex id that was taken back.")
    back_at: dict[str, int] = Field(
        alias="backAt",
        description="The parallelism before, which is the most now, whatever the bounds ask for.",
    )


class Explanation(Schema):
    jid: Id
    name: str
    status: JobStatus
    scheduler_state: str = Field(alias="schedulerState")
    version: int = Field(alias="requirementsVersion")
    slots: SlotsExplained
    share: ShareExplained = Field(alias="slotShare")
    supply: SupplyExplained
    executors: ExecutorsExplained | None = Field(
        description="null: the job does not run, runs on the host, or its driver has not been heard."
    )
    vertices: dict[str, VertexExplained]
    reactive: bool = Field(description="Whether the job follows whatever slots there are.")
    rollback: RollbackExplained | None
    on_trial_until: int | None = Field(
        alias="onTrialUntilInMillis",
        description="Until then the last rescale is taken back if it turns out bad.",
    )
    sentences: list[str]
    violations: list[str] = Field(description="Bounds that the parallelism in force breaks, and why.")
    last_batch: int | None = Field(alias="lastBatchTimestampInMillis")


class ResolvedBounds(Schema):
    lower: int = Field(alias="lowerBound")
    upper: int = Field(alias="upperBound")


class DryRun(Schema):
    """What the PUT would do; nothing was changed."""

    bounds: dict[str, ResolvedBounds]
    current: dict[str, int] | None = Field(alias="currentParallelism")
    parallelism: dict[str, int] | None = Field(
        description="Decided; null when none is attainable with the slots there are. Of a BATCH job only what is "
        "decided already, which other bounds do not change."
    )
    slots_before: int = Field(alias="slotsBefore")
    slots_after: int | None = Field(alias="slotsAfter")
    rung: Rung | None
    refused: list[str]
    explanation: list[str]
