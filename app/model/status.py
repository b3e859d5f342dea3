"""The statuses of jobs as clients see them (Flink's enum), and of their attempts."""

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


class AttemptState(StrEnum):
    """LIVE: a driver process of the attempt may exist. DEAD: nothing of it is alive."""

    LIVE = "LIVE"
    DEAD = "DEAD"


class AttemptEnding(StrEnum):
    """STOPPED: by order, to be followed by another attempt or because the job ends."""

    FINISHED = "FINISHED"
    STOPPED = "STOPPED"
    FAILED = "FAILED"
