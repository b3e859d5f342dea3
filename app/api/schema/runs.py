"""The runs of a job: its attempts, its versions, how it is stopped, and the decisions of a BATCH job."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from app.api.parameters import GivenId
from app.api.schema.base import Camel, Expected, Hyphenated, Id, Millis, Schema, called
from app.api.schema.jobs import FailureCause, OperationStatus
from app.model.batch import LimitedBy
from app.model.job_state.versions import Outcome
from app.model.status import AttemptEnding

Rule = Literal["flip-187", "even-data", "fixed", "source", "pipelined"]


class AttemptLog(Camel):
    """The log of the driver, as far as it belongs to the attempt."""

    available: bool = Field(description="Whether the log exists: logs of older drivers are removed.")
    size_in_bytes: int = Field(description="The current end: the largest `from`. 0 if there is no log.")
    cut_in_bytes: int = Field(description="Bytes that were cut off at its begin because it was too long.")


class Attempt(Camel):
    """One run of a job. A value that the driver has not reported, or an older version did not store, is null."""

    attempt: int = Field(description="The number of the attempt, from 1 for each job.")
    started_ms: Millis = called("startTimestampInMillis")
    ended_ms: Millis | None = called("endTimestampInMillis", "Null while it runs.")
    ending: AttemptEnding | None = Field(
        description="How it ended. STOPPED: by order, for another attempt or because the job ended."
    )
    ended_why: str | None = called("message", "Why it failed, in a sentence.")
    plan_version: int | None = Field(description="The version of its first plan.")
    parallelism: dict[str, int] | None = Field(description="The first parallelism, by vertex id.")
    driver_id: str
    pid: int | None = called("driverPid")
    host: str | None = Field(description="The host of its driver.")
    spark_version: str | None
    ui_url: str | None = called("sparkUi", "The web page of Spark, if the job asked for one.")
    log: AttemptLog


class Attempts(Camel):
    """Newest first."""

    attempts: list[Attempt]


class Version(Camel):
    number: int = Field(ge=1, serialization_alias="version")
    outcome: Outcome
    since_ms: Millis = called("since", "The time of the last change of the outcome.")
    requested_by: str | None
    requested_ms: Millis = called("requested")
    why: str | None = Field(description="The reason of the outcome, in a sentence.")


class JobVersions(Schema):
    current: int = Field(ge=1, description="The version in force.")
    versions: list[Version] = Field(description="Newest first; the oldest versions are not kept.")


class Replaced(Camel):
    version: int = Field(ge=2, description="The number of the new version.")
    versions_url: str


_Format = Annotated[Literal["CANONICAL", "NATIVE"] | None, Expected("CANONICAL or NATIVE")]
_TriggerId = Annotated[GivenId | None, Expected("32 hexadecimal digits")]


class StopBody(Schema):
    """What Flink's client sends. There is no target directory: the job stops on its own checkpoint."""

    model_config = ConfigDict(alias_generator=to_camel)

    target_directory: Annotated[None, Expected("left out: the job stops on its own checkpoint")] = None
    drain: Annotated[bool | None, Expected("true or false")] = None
    format_type: _Format = None
    trigger_id: _TriggerId = None


def _no_number(value: object) -> object:
    """0 and 0.0 are equal to false, and so would be taken for it."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise ValueError
    return value


class SavepointBody(Schema):
    """What Flink's client sends for a savepoint of a job that runs on."""

    target_directory: Annotated[None, Expected("left out: a savepoint is the job's own checkpoint")] = Field(
        default=None, alias="target-directory"
    )
    cancel_job: Annotated[
        Literal[False] | None, BeforeValidator(_no_number), Expected("false: POST to /stop to end a job")
    ] = Field(default=None, alias="cancel-job")
    format_type: _Format = Field(default=None, alias="formatType")
    trigger_id: _TriggerId = Field(default=None, alias="triggerId")


class StopAccepted(Hyphenated):
    request_id: Id


class StopOutcome(Hyphenated):
    location: str | None = Field(default=None, description="The job's checkpoint.")
    failure_cause: FailureCause | None = None


class StopStatus(Schema):
    status: OperationStatus
    operation: StopOutcome | None


class RegionRun(Camel):
    """The run of a region that a decision was for."""

    state: Literal["RUNNING", "FINISHED", "DISCARDED"] = Field(
        description=(
            "DISCARDED: its results are not used, because it failed, was canceled, lost its driver, or its results"
            " were lost."
        )
    )
    start_timestamp_ms: Millis
    end_timestamp_ms: int | None = Field(
        description="When it was finished; null if it was not, and for all runs except the last of a region."
    )
    written_bytes: int | None = Field(
        description="Bytes of the vertex for other regions; null while not finished, and if no region reads them."
    )
    written_rows: int | None


class Decision(Camel):
    """The parallelism of a vertex for one run of its region, with the numbers that led to it."""

    vertex_id: Id
    vertex_name: str
    region: int = Field(description="Regions are numbered from 0, producers first.")
    run: int = Field(description="Runs of a region are numbered from 1.")
    at_ms: Millis = called("timestampInMillis")
    rule: Rule = Field(
        description=(
            "fixed: the bounds leave no choice. source: from the sizes of its files; the highest possible if they are"
            " not known. pipelined: Spark divides the rows, and the parallelism is its limit."
        )
    )
    parallelism: int
    lower: int = called("lowerBound", "The bound that was declared when the decision was made.")
    upper: int = called("upperBound")
    limit: int | None = Field(
        description="A further limit that changed the decision; null if there was none."
    )
    limited_by: LimitedBy | None = Field(
        description=(
            "slots: more tasks of a source would have to wait. options: those of auto-parallelism, which may also"
            " ask for more tasks. subpartitions: the number of parts of the inputs; then the parallelism may be below a"
            " lower bound that was raised later, which is among the violations of the explanation."
        )
    )
    wanted: int | None = Field(description="The parallelism by bytes, before bounds and limit.")
    normalized: int | None = Field(description="Rule flip-187: the power of two nearest to `wanted`.")
    bytes: int | None = Field(
        description="Bytes of the inputs from other regions, without broadcast inputs; bytes of files of a source."
    )
    rows: int | None = Field(description="Rows of the inputs from other regions, broadcast inputs once.")
    broadcast_bytes: int = Field(description="Bytes that each task reads completely.")
    counted_broadcast_bytes: int = Field(
        description="Rule flip-187: the part of the volume per task that was subtracted for them, at most half."
    )
    volume_bytes: int = Field(description="The approximate number of bytes that a task should read.")
    subpartitions: int | None = Field(
        description="Subpartitions of the inputs that are partitioned by keys; the smallest number if they differ."
    )
    skewed: list[int] = Field(
        description="Rule even-data: subpartitions that are much larger than the others, so Spark divides their rows."
    )
    groups: list[list[int]] | None = Field(
        description=(
            "With ?detail=true: the subpartitions of each task, if they were chosen by their bytes; empty if each task"
            " reads an equal number."
        )
    )
    sentence: str = Field(description="The decision in words.")
    region_run: RegionRun
