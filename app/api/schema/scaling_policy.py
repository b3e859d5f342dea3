"""A job's scaling policy: the floor and ceiling of its vertices."""

from __future__ import annotations

from pydantic import Field

from app.api.schema.base import Camel, Millis
from app.model.jobgraph import MAX_PARALLELISM_LIMIT


class VertexLimits(Camel):
    """A missing or null field means no limit."""

    floor: int | None = Field(
        default=None,
        ge=1,
        le=MAX_PARALLELISM_LIMIT,
        description="The least parallelism for all declared bounds.",
    )
    ceiling: int | None = Field(
        default=None,
        ge=1,
        le=MAX_PARALLELISM_LIMIT,
        description="The greatest parallelism for all declared bounds.",
    )


class ScalingPolicy(Camel):
    """The whole policy. A missing field means no limit."""

    all_vertices: VertexLimits = Field(
        default_factory=VertexLimits, description="For every vertex without its own limit."
    )
    vertices: dict[str, VertexLimits] = Field(
        default_factory=dict, description="By vertex id; a unique vertex name is accepted too."
    )


class PolicyVersion(ScalingPolicy):
    """A version of the policy, with author, time and reason."""

    version: int = Field(description="The ETag of this version.")
    requested_by: str | None
    reason: str | None = Field(description="The X-Slotwise-Reason of the request.")
    changed_timestamp_ms: Millis
