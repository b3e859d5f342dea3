"""Every operation of the API: its path, what does it, how it is documented. What is not here is not there."""

from __future__ import annotations

from app.api.operations.cluster import cluster_operations, driver_operations
from app.api.operations.jobs import job_operations
from app.api.operations.metrics import metric_operations
from app.api.operations.requirements import requirements_operations
from app.api.operations.rescales import rescale_operations
from app.api.routing import Operation


def all_operations() -> list[Operation]:
    return [
        *requirements_operations(),
        *rescale_operations(),
        *job_operations(),
        *metric_operations(),
        *cluster_operations(),
        *driver_operations(),
    ]
