"""What is declared for a job beside its bounds: its scaling policy, and its share of the slots."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from app.api.schema.base import Camel, Expected, Millis, called
from app.model.jobgraph import MAX_PARALLELISM_LIMIT
from app.model.slot_share import CAP_MAX, PRIORITY_MAX, WEIGHT_MAX
from app.scheduler.arbiter import Why

_Limit = Annotated[int, Field(ge=1, le=MAX_PARALLELISM_LIMIT)]


class VertexLimits(Camel):
    """A missing or null field means no limit."""

    floor: _Limit | None = Field(default=None, description="The least parallelism for all declared bounds.")
    ceiling: _Limit | None = Field(
        default=None, description="The greatest parallelism for all declared bounds."
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
    changed_ms: Millis = called("changedTimestampInMillis")


_WEIGHT = "A job of weight 2 has twice the share of a job of weight 1."
_PRIORITY = "Of waiting jobs, those of higher priority are admitted first."
_CAP = "The most slots that the job may hold; null for no limit."

ShareReason = StrEnum("ShareReason", {why.name: why.value for why in Why})  # type: ignore[misc]


def _between(lowest: int, highest: int, or_else: str = "") -> Expected:
    return Expected(f"a whole number between {lowest} and {highest}{or_else}")


class SlotShare(Camel):
    """All three fields are required, so that a request changes none by omission."""

    weight: Annotated[int, _between(1, WEIGHT_MAX)] = Field(ge=1, le=WEIGHT_MAX, description=_WEIGHT)
    priority: Annotated[int, _between(-PRIORITY_MAX, PRIORITY_MAX)] = Field(
        ge=-PRIORITY_MAX, le=PRIORITY_MAX, description=_PRIORITY
    )
    cap: Annotated[int | None, _between(1, CAP_MAX, ", or null for none")] = Field(
        ge=1, le=CAP_MAX, description=_CAP
    )


class ShareExplained(SlotShare):
    """The declared slot share of the job, and the decision of the arbiter."""

    version: int = Field(description="The ETag.")
    requested_by: str | None
    reason: str | None = Field(description="X-Slotwise-Reason of the last change.")
    changed_ms: Millis = called("changedTimestampInMillis")
    share: int | None = Field(
        description="The slots that the job will hold if nothing changes; null before the first decision."
    )
    allowed: int | None = Field(
        description="The slots that the job may hold now; fewer than it holds if it has to give some back."
    )
    why: ShareReason | None
    missing: int = Field(description="With no-room: the slots that must become free before the job can run.")
    due_timestamp_ms: int | None = Field(description="When other jobs may take the slots beyond its share.")
