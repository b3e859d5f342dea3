"""Versions of a job."""

from __future__ import annotations

from pydantic import Field

from app.api.schema.base import Camel, Millis, Schema
from app.scheduler.adaptive.version_state import Outcome


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
