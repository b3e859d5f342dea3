"""Job statuses as clients see them (Flink's enum)."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class JobStatus(StrEnum):
    INITIALIZING = "INITIALIZING"
    CREATED = "CREATED"
    RUNNING = "RUNNING"
    FAILING = "FAILING"
    FAILED = "FAILED"
    CANCELLING = "CANCELLING"
    CANCELED = "CANCELED"
    FINISHED = "FINISHED"
    RESTARTING = "RESTARTING"
    SUSPENDED = "SUSPENDED"
    RECONCILING = "RECONCILING"

    @property
    def is_globally_terminal(self) -> bool:
        """No control plane will ever run the job again."""
        return self in TERMINAL_STATUSES


TERMINAL_STATUSES: Final = (JobStatus.FAILED, JobStatus.CANCELED, JobStatus.FINISHED)
