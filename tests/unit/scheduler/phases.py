"""A job in each phase, by the shortest way there."""

from __future__ import annotations

from collections.abc import Callable

from app.scheduler.adaptive.events import (
    AttemptFailed,
    AttemptStartFailed,
    CancelRequested,
    StartScheduling,
    StopRequested,
)
from tests.unit.scheduler.driving import Job

IN_PHASE: dict[str, Callable[[], Job]] = {
    "Created": Job,
    "WaitingForResources": lambda: Job().do(StartScheduling()),
    "CreatingExecutionGraph": lambda: Job().do(StartScheduling()).hold(2),
    "RetryingExecutionGraphCreation": lambda: (
        Job().do(StartScheduling()).hold(2).do(AttemptStartFailed(1, "no java"))
    ),
    "Executing": lambda: Job().run(),
    "Rescaling": lambda: Job(upper=4).run().hold(4),
    "StopWithSavepoint": lambda: Job().run().do(StopRequested("t1")),
    "Restarting": lambda: Job().run().do(AttemptFailed(1, "boom", stopped=False)),
    "Failing": lambda: Job().run().do(AttemptFailed(1, "boom", stopped=False, recoverable=False)),
    "Canceling": lambda: Job().run().do(CancelRequested()),
    "Finished": lambda: Job().run().do(CancelRequested()).stops(),
}


def in_phase(kind: str) -> Job:
    """A fresh job in ``kind``."""
    job = IN_PHASE[kind]()
    assert job.kind == kind
    return job
