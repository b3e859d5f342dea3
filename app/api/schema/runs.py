"""The runs of a job: its attempts, its versions, and how it is stopped."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel

from app.api.parameters import GivenId
from app.api.schema.base import Camel, Expected, Hyphenated, Id, Millis, Schema
from app.api.schema.jobs import FailureCause, OperationStatus
from app.scheduler.adaptive.version_state import Outcome
from app.store.tables import AttemptEnding


class AttemptLog(Camel):
    """The log of the driver, as far as it belongs to the attempt."""

    available: bool = Field(description="Whether the log exists: logs of older drivers are removed.")
    size_in_bytes: int = Field(description="The current end: the largest `from`. 0 if there is no log.")
    cut_in_bytes: int = Field(description="Bytes that were cut off at its begin because it was too long.")


class Attempt(Camel):
    """One run of a job. A value that the driver has not reported, or an older version did not store, is null."""

    attempt: int = Field(description="The number of the attempt, from 1 for each job.")
    start_timestamp_in_millis: Millis
    end_timestamp_in_millis: Millis | None = Field(description="Null while it runs.")
    ending: AttemptEnding | None = Field(
        description="How it ended. STOPPED: by order, for another attempt or because the job ended."
    )
    message: str | None = Field(description="Why it failed, in a sentence.")
    plan_version: int | None = Field(description="The version of its first plan.")
    parallelism: dict[str, int] | None = Field(description="The first parallelism, by vertex id.")
    driver_id: str
    driver_pid: int | None
    host: str | None = Field(description="The host of its driver.")
    spark_version: str | None
    spark_ui: str | None = Field(description="The web page of Spark, if the job asked for one.")
    log: AttemptLog


class Attempts(Camel):
    """Newest first."""

    attempts: list[Attempt]


class Version(Camel):
    version: int = Field(ge=1)
    outcome: Outcome
    since: Millis = Field(description="The time of the last change of the outcome.")
    requested_by: str | None
    requested: Millis
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


class SavepointBody(Schema):
    """What Flink's client sends for a savepoint of a job that runs on."""

    target_directory: Annotated[None, Expected("left out: a savepoint is the job's own checkpoint")] = Field(
        default=None, alias="target-directory"
    )
    cancel_job: Annotated[Literal[False] | None, Expected("false: POST to /stop to end a job")] = Field(
        default=None, alias="cancel-job"
    )
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
