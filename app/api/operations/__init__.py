"""Every operation of the API: its path, what does it, how it is documented. What is not here is not there."""

from __future__ import annotations

from app.api.operations.cluster import CLUSTER_OPERATIONS, DRIVER_OPERATIONS
from app.api.operations.jobs import JOB_OPERATIONS
from app.api.operations.metrics import METRIC_OPERATIONS
from app.api.operations.requirements import REQUIREMENTS_OPERATIONS
from app.api.operations.rescales import RESCALE_OPERATIONS
from app.api.operations.versions import VERSION_OPERATIONS
from app.api.routing import Operation


def all_operations() -> list[Operation]:
    return [
        *REQUIREMENTS_OPERATIONS,
        *RESCALE_OPERATIONS,
        *JOB_OPERATIONS,
        *VERSION_OPERATIONS,
        *METRIC_OPERATIONS,
        *CLUSTER_OPERATIONS,
        *DRIVER_OPERATIONS,
    ]
