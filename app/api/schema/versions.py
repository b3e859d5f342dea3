"""Versions of a job."""

from __future__ import annotations

from pydantic import Field

from app.api.schema.base import Camel, Millis, Schema
from app.scheduler.adaptive.version_state import Outcome


class Version(Camel):
    version: int = Field(ge=1)
    outcome: Outcome
    since: Millis = Field(description="Since when the outcome is what it is.")
    requested_by: str | None
    requested: Millis
    why: str | None = Field(description="A sentence, if there is more to say.")


class JobVersions(Schema):
    current: int = Field(ge=1, description="The version in force.")
    versions: list[Version] = Field(description="Newest first; versions of long ago are left out.")


class Replaced(Camel):
    version: int = Field(ge=2, description="The number of the new version.")
    versions_url: str
