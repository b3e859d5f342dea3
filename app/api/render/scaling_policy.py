"""A scaling policy as clients see it."""

from __future__ import annotations

from app.api.schema.scaling_policy import PolicyVersion, ScalingPolicy, VertexLimits
from app.model.scaling_policy import FloorCeiling
from app.model.scaling_policy import ScalingPolicy as Policy


def policy(value: Policy) -> ScalingPolicy:
    return ScalingPolicy(all_vertices=_limits(value.all_vertices), vertices=_vertices(value))


def policy_version(value: Policy) -> PolicyVersion:
    return PolicyVersion(
        all_vertices=_limits(value.all_vertices),
        vertices=_vertices(value),
        version=value.version,
        requested_by=value.requested_by,
        reason=value.reason,
        changed_timestamp_ms=value.changed_ms,
    )


def _vertices(value: Policy) -> dict[str, VertexLimits]:
    return {vertex: _limits(limits) for vertex, limits in value.vertices}


def _limits(limits: FloorCeiling) -> VertexLimits:
    return VertexLimits(floor=limits.floor, ceiling=limits.ceiling)
