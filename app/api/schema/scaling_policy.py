"""A job's scaling policy: the floor and ceiling of its vertices."""

from __future__ import annotations

from pydantic import Field

from app.api.schema.base import Camel, Millis
from app.model.jobgraph import MAX_PARALLELISM_LIMIT


class VertexLimits(Camel):
    """A limit that is not given, or null, is none."""

    floor: int | None = Field(
        default=None,
        ge=1,
        le=MAX_PARALLELISM_LIMIT,
        description="The least parallelism, whatever was declared.",
    )
    ceiling: int | None = Field(
        default=None,
        ge=1,
        le=MAX_PARALLELISM_LIMIT,
        description="The most parallelism, whatever was declared.",
    )


class ScalingPolicy(Camel):
    """The whole policy: what is left out limits nothing."""

    all_vertices: VertexLimits = Field(
        default_factory=VertexLimits, description="For every vertex that has no such limit of its own."
    )
    vertices: dict[str, VertexLimits] = Field(
        default_factory=dict, description="By vertex id; a unique vertex name is accepted as well."
    )


class PolicyVersion(ScalingPolicy):
    """A policy as it was set: by whom, when and why."""

    version: int = Field(description="The ETag that it had.")
    requested_by: str | None
    reason: str | None = Field(description="What X-Slotwise-Reason said.")
    changed_timestamp_ms: Millis
