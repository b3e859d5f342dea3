"""Whoever takes a job up does what was decided for its attempt and not done, before he decides anything (ADR 4).

Without that every wait would still end, by its timeout: the world would come to rest and nobody would be wrong.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from app.scheduler.adaptive.effects import Effect, StartAttempt, StopAttempt, StopMode
from app.scheduler.adaptive.state import (
    Canceling,
    CreatingExecutionGraph,
    Failing,
    JobState,
    Restarting,
    RetryingExecutionGraphCreation,
    WaitingForResources,
)
from app.worker.job.worker import JobWorker
from tests.simulation.planted_batch_bugs import instead

if TYPE_CHECKING:
    from tests.simulation.oracles import Oracles
    from tests.simulation.plane import Incarnation

Asked = type[StartAttempt] | type[StopAttempt] | StopMode | None


def asked(state: JobState) -> Asked:
    """What a job waits for that only its control plane can bring about: the start of its attempt, or its end, by a
    kill if the state says so."""
    phase = state.phase
    if isinstance(phase, CreatingExecutionGraph):
        return StopMode.KILL if phase.failure else StartAttempt
    if isinstance(phase, Restarting) and phase.kill and not phase.stopped:
        return StopMode.KILL
    ends = isinstance(phase, Canceling | Failing) or (isinstance(phase, Restarting) and not phase.stopped)
    given_up = isinstance(phase, WaitingForResources | RetryingExecutionGraphCreation) and state.driver.alive
    return StopAttempt if ends or given_up else None


class TakingUp:
    """``_done``: what each control plane has done for an attempt."""

    def __init__(self, oracles: Oracles) -> None:
        self._oracles = oracles
        self._done: set[tuple[Incarnation, str, int, Asked]] = set()
        self._decided_by: dict[str, Incarnation | None] = {}

    def performed(self, plane: Incarnation, job_id: str, effect: Effect) -> None:
        if isinstance(effect, StartAttempt | StopAttempt):
            self._done.add((plane, job_id, effect.attempt, type(effect)))
        if isinstance(effect, StopAttempt):
            self._done.add((plane, job_id, effect.attempt, effect.mode))

    def decided(self, plane: Incarnation | None, job_id: str, before: JobState | None) -> None:
        """``plane`` has stored what follows ``before``."""
        last = self._decided_by.get(job_id)
        self._decided_by[job_id] = plane
        wanted = None if before is None or last is plane else asked(before)
        if plane is None or before is None or wanted is None:
            return
        self._oracles.count("taken up")
        self._oracles.check(
            (plane, job_id, before.attempt, wanted) in self._done,
            "effects after the commit",
            f"{plane} decides about {job_id[-2:]}, and {wanted} {before.attempt} was not done before",
        )


def nothing_done_when_taken_up() -> contextlib.AbstractContextManager[None]:
    """Who takes a job up waits for its timeouts."""

    def start(self: JobWorker, _pending: Any) -> None:
        self._arm_timer()

    return instead(JobWorker, "start", start)


PLANTED = {"what was decided is left undone by who takes the job up": nothing_done_when_taken_up}
