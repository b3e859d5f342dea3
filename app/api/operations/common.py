"""What the lists of operations share."""

from __future__ import annotations

from typing import Any

from app.api.documentation import Parameter

JOB_PATH = "/jobs/{jobid}"


def query_parameter(
    name: str, description: str, schema: dict[str, Any], example: Any, *, required: bool = False
) -> Parameter:
    return Parameter(name, "query", description, schema, example, required)
