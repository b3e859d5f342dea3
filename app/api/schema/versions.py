"""Versions of a job."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from app.api.schema.base import Millis, Schema


class VersionOutcome(StrEnum):
    """What became of a version."""

    STARTING = "STARTING"
    TRIAL = "TRIAL"
    IN_FORCE = "IN_FORCE"
    REPLACED = "REPLACED"
    TAKEN_BACK = "TAKEN_BACK"
    DROPPED = "DROPPED"


class Version(Schema):
    version: int = Field(ge=1)
    outcome: VersionOutcome
    since: Millis = Field(description="Since when the outcome is what it is.")
    requested_by: str | None = Field(alias="requestedBy")
    requested: Millis
    why: str | None = Field(description="A sentence, if there is more to say.")


class JobVersions(Schema):
    current: int = Field(ge=1, description="The version in force.")
    versions: list[Version] = Field(description="Newest first; versions of long ago are left out.")


class Replaced(Schema):
    version: int = Field(ge=2, description="The number of the new version.")
    versions_url: str = Field(alias="versionsUrl")
