"""Requirements, rescale records, explanations and dry runs."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from app.api.schema.base import Camel, Id, Millis, Schema
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
    job_vertex_id: Id
    job_vertex_name: str
    slot_sharing_group_id: Id
    slot_sharing_group_name: str
    desired_parallelism: int = Field(description="The upper bound.")
    sufficient_parallelism: int = Field(description="The lower bound.")
    pre_rescale_parallelism: int | None
    post_rescale_parallelism: int | None


class SlotGroupRescale(Camel):
    slot_sharing_group_id: Id
    slot_sharing_group_name: str
    request_resource_profile: ResourceProfile
    desired_slots: int
    minimal_required_slots: int
    pre_rescale_slots: int | None
    post_rescale_slots: int | None
    acquired_resource_profile: ResourceProfile


class SchedulerStateSpan(Camel):
    state: str
    enter_timestamp_ms: Millis
    leave_timestamp_ms: Millis
    duration_ms: int
    stringified_exception: str | None


class Rescale(Camel):
    """One rescale. `schedulerStates` is empty except in the details."""

    rescale_uuid: Id
    resource_requirements_uuid: Id
    rescale_attempt_id: int
    vertices: dict[str, VertexRescale]
    slots: dict[str, SlotGroupRescale]
    scheduler_states: list[SchedulerStateSpan]
    start_timestamp_ms: Millis
    end_timestamp_ms: int | None = Field(description="Null while the rescale is in progress.")
    terminal_state: TerminalState | None
    trigger_cause: TriggerCause
    terminated_reason: TerminatedReason | None
    number: int = Field(description="The number of the record, from 1 for each job; the key for pagination.")
    requested_by: str | None
    reason: str | None = Field(description="The X-Slotwise-Reason of the request.")
    message: str | None = Field(description="The reason of its outcome, in words.")
    rung: Rung | None = Field(description="How the rescale was applied, cheapest first.")
    output_gap_ms: int | None = Field(
        description=(
            "The longest pause between two completed batches around the change less the steady interval; the pause "
            "itself if fewer than two batches had been committed before the change, null if none had. 0 if there was "
            "no input when the change came into force."
        ),
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
    rescale_history_max: int
    scheduler_execution_mode: Literal["REACTIVE"] | None
    submission_resource_wait_timeout_ms: int = Field(description="-1: no limit.")
    submission_resource_stabilization_timeout_ms: int
    slot_idle_timeout_ms: int
    executing_cooldown_timeout_ms: int
    executing_resource_stabilization_timeout_ms: int
    maximum_delay_for_triggering_rescale_ms: int
    rescale_on_failed_checkpoint_count: int
    in_place_cooldown_timeout_ms: int
    in_place_resource_stabilization_timeout_ms: int
    in_place_maximum_delay_ms: int


class SlotsExplained(Schema):
    desired: int
    minimal: int
    held: int
    used: int


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


class SupplyExplained(Camel):
    """The slots of all jobs."""

    total: int
    idle: int = Field(description="Slots that no job holds. While outOfSight is true, no job gets them.")
    out_of_sight: bool = Field(
        description="Whether the cluster is unreachable: total and idle are then the last known numbers.",
    )
    why: list[str] = Field(
        description="The cluster's reasons why there are no more slots, one sentence each."
    )


class ExecutorsExplained(Camel):
    """The executors of a job on a cluster, as its driver last reported them."""

    present: int
    wanted: int = Field(description="One for each slot that the job holds.")
    short_since_ms: int | None = Field(
        description="Since when there are fewer than wanted; null if there are enough.",
    )


class RollbackExplained(Camel):
    """A rescale that was taken back, until other bounds are declared or these bounds are declared with retry=true."""

    rescale: int | None = Field(description="The number of the rescale record.")
    timestamp_ms: Millis
    reason: str
    tried: dict[str, int] = Field(description="The parallelism per vertex id that was taken back.")
    back_at: dict[str, int] = Field(
        description="The restored parallelism, which is now the maximum for all bounds.",
    )


class ResolvedBounds(Camel):
    lower_bound: int
    upper_bound: int


class PendingExplained(Camel):
    """Bounds with a deadline that wait for their slots. Until the deadline the former bounds are in force."""

    version: int
    rescale: int | None = Field(description="The number of the rescale record.")
    former: dict[str, ResolvedBounds] = Field(
        description="The former bounds of the changed vertices, by vertex id."
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
    on_trial_until_ms: int | None = Field(
        description="The end of the trial of the last rescale.",
    )
    pending: list[PendingExplained] = Field(description="Bounds that wait for their deadline.")
    sentences: list[str]
    violations: list[str] = Field(
        description="Bounds that the parallelism in force violates, with the reason."
    )
    last_batch_timestamp_ms: int | None


class DryRun(Camel):
    """The effect that the request would have. Nothing was changed."""

    bounds: dict[str, ResolvedBounds]
    current_parallelism: dict[str, int] | None
    parallelism: dict[str, int] | None = Field(
        description="The resulting parallelism; null if none is attainable with the available slots. For a BATCH job: "
        "the decided vertices, which other bounds do not change."
    )
    slots_before: int
    slots_after: int | None
    rung: Rung | None
    refused: list[str]
    explanation: list[str]
