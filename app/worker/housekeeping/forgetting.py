"""Deletion of ended jobs: their rows, their files, and their data in memory.

A checkpoint may have very many files. So the directory is first renamed, which is one step, and removed in the
background after the rows. A directory that a crash leaves renamed is removed at the next start, or renamed back
if the job is still stored.
"""

from __future__ import annotations

import asyncio

import structlog

from app.store.errors import OutcomeUnknown, StoreError
from app.worker.job.files import jobs_set_aside, put_back, remove_set_aside, set_aside
from app.worker.ownership.recovery import JobKeeper
from app.worker.refusals import StateConflict, Unavailable

log = structlog.get_logger()


class Forgetter:
    """Forgets one job at a time."""

    def __init__(self, keeper: JobKeeper) -> None:
        self._keeper, self._store, self._places = keeper, keeper.store, keeper.places
        self._turn = asyncio.Lock()
        self._removal = asyncio.Lock()
        self._removing: dict[asyncio.Task[None], None] = {}

    async def forget(self, job_id: str) -> None:
        """
        Raises:
            ControlPlaneError: there is no such job, it has not ended, or it cannot be removed now.
        """
        async with self._turn:
            unreadable = self._keeper.unreadable.get(job_id)
            status = self._keeper.find(job_id).status if unreadable is None else unreadable.summary.status
            if not status.is_globally_terminal:
                raise StateConflict(
                    f"Job {job_id} cannot be forgotten while it is {status.value}: cancel or stop it first."
                )
            await self._forget(job_id)
        self._remove(job_id)

    async def _forget(self, job_id: str) -> None:
        directory = self._places.job_dir(job_id)
        try:
            await asyncio.to_thread(set_aside, directory)
        except OSError as error:
            raise Unavailable(f"The files of job {job_id} cannot be removed: {error.strerror}.") from error
        try:
            await self._store.forget(job_id)
        except StoreError as error:
            # If it is not known whether the rows are there, the next attempt to forget it or the next start will see.
            if not isinstance(error, OutcomeUnknown):
                await asyncio.to_thread(put_back, directory)
            raise Unavailable(str(error)) from error
        self._keeper.ended.pop(job_id, None)
        self._keeper.jobs.pop(job_id, None)
        self._keeper.unreadable.drop(job_id)

    async def finish(self) -> None:
        """At a start: bring to an end what was cut off.

        Raises:
            StoreError: it cannot be told which jobs are stored.
        """
        try:
            for job_id in await asyncio.to_thread(jobs_set_aside, self._places.jobs_dir):
                if await self._store.load_jobs([job_id]):
                    await asyncio.to_thread(put_back, self._places.job_dir(job_id))
                else:
                    self._remove(job_id)
        except OSError as error:
            log.error("files of forgotten jobs cannot be removed", error=str(error))

    def _remove(self, job_id: str) -> None:
        task = asyncio.get_running_loop().create_task(self._remove_in_turn(job_id))
        self._removing[task] = None
        task.add_done_callback(lambda done: self._removing.pop(done, None))

    async def _remove_in_turn(self, job_id: str) -> None:
        """One at a time: threads are few, and those who write for drivers need them."""
        async with self._removal:
            await asyncio.to_thread(remove_set_aside, self._places.job_dir(job_id))
            await asyncio.to_thread(self._places.drop_results, job_id)
