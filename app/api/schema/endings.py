"""Stops and savepoints, Flink's asynchronous operations."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel

from app.api.parameters import GivenId
from app.api.schema.base import Expected, Hyphenated, Id, Schema
from app.api.schema.jobs import FailureCause, OperationStatus

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
