"""What a new version of a job is to run in is built, while the version in force runs on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from app.cluster.ports import DriverHost, DriverLaunchError
from app.model.environment import Runtime
from app.scheduler.adaptive.events import EnvironmentReady
from app.scheduler.adaptive.state import JobState
from app.scheduler.adaptive.versions import may_come
from app.worker.job.places import JobPlaces

if TYPE_CHECKING:
    from app.worker.job.job import Job

log = structlog.get_logger()

_TRIES = 5
"""Of what may succeed the next time: a registry that is away, a full disk."""
_PAUSE_S = 10.0


class Building:
    """For one job. What it does follows from the durable state, so that a crash of this process costs only time."""

    def __init__(self, job: Job, host: DriverHost, places: JobPlaces) -> None:
        self._job, self._host, self._places = job, host, places
        self._number: int | None = None
        self._task: asyncio.Task[str] | None = None
        self._is_told = False

    def settle(self, state: JobState) -> None:
        """Bring it in line with ``state``, which is durable: begin, tell how it ended, or give it up."""
        number = state.versions.builds
        if number != self._number:
            self.cancel()
            self._number, self._is_told = number, False
            if number is not None:
                self._task = asyncio.get_running_loop().create_task(self._build(number, state))
                self._task.add_done_callback(self._tell)
        elif self._task is not None and self._task.done():
            self._tell(self._task)

    def cancel(self) -> None:
        self._number = None
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _build(self, number: int, state: JobState) -> str:
        """A sentence if it cannot be built."""
        tries_left = _TRIES
        while True:
            try:
                await self._host.build(self._runtime_of(number, state))
                return ""
            except (DriverLaunchError, OSError) as error:
                tries_left -= 1
                if not getattr(error, "recoverable", True) or not tries_left:
                    return " ".join(str(error).split())
            except Exception as error:
                # The job must not wait for ever for what met a defect of ours.
                log.error(
                    "an environment could not be built", job=state.job_id, version=number, exc_info=error
                )
                return f"What it is to run in could not be built: {type(error).__name__}."
            await asyncio.sleep(_PAUSE_S)

    def _runtime_of(self, number: int, state: JobState) -> Runtime:
        assert state.spare is not None
        directory = self._places.artifacts_dir(state.job_id, number)
        runtime = state.spare.graph.runtime.with_artifacts(str(directory))
        assert runtime is not None
        return runtime

    def _tell(self, task: asyncio.Task[str]) -> None:
        number = self._number
        is_over = task is not self._task or task.cancelled()
        if is_over or number is None or self._is_told or not may_come(self._job.state):
            # `settle` tells it after a later change.
            return
        event = EnvironmentReady(number, task.result())
        self._is_told = True

        def ready(state: JobState) -> EnvironmentReady | None:
            self._is_told = may_come(state)
            return event if self._is_told else None

        self._job.deliver(ready)
