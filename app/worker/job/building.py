"""What a new version of a job is to run in is built, while the version in force runs on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from app.cluster.ports import DriverHost, DriverLaunchError
from app.scheduler.adaptive.events import EnvironmentReady
from app.scheduler.adaptive.state import JobState
from app.scheduler.adaptive.versions import may_come
from app.worker.job.places import JobPlaces

if TYPE_CHECKING:
    from app.worker.job.job import Job

log = structlog.get_logger()


class Building:
    """For one job. What it does follows from the durable state, so that a crash of this process costs only time."""

    def __init__(self, job: Job, host: DriverHost, places: JobPlaces) -> None:
        self._job, self._host, self._places = job, host, places
        self._number: int | None = None
        self._task: asyncio.Task[str] | None = None

    def settle(self, state: JobState) -> None:
        """Bring it in line with ``state``, which is durable: begin, tell how it ended, or give it up."""
        number = state.versions.builds
        if number != self._number:
            self.cancel()
            self._number = number
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
        assert state.spare is not None
        directory = self._places.artifacts_dir(state.job_id, number)
        runtime = state.spare.graph.runtime.with_artifacts(str(directory))
        assert runtime is not None
        try:
            await self._host.look(runtime)
        except (DriverLaunchError, OSError) as error:
            return " ".join(str(error).split())
        except Exception as error:
            # The job must not wait for ever for what met a defect of ours.
            log.error("an environment could not be built", job=state.job_id, version=number, exc_info=error)
            return f"What it is to run in could not be built: {type(error).__name__}."
        return ""

    def _tell(self, task: asyncio.Task[str]) -> None:
        """If it is not taken now, `settle` tells it after a later change."""
        number = self._number
        is_over = task is not self._task or task.cancelled()
        if not is_over and number is not None and may_come(self._job.state):
            event = EnvironmentReady(number, task.result())
            self._job.deliver(lambda state: event if may_come(state) else None)
