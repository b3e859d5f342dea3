"""The end of a job that cannot be read, by the columns beside its documents."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import structlog

from app.model.jobgraph import JobType
from app.model.status import JobStatus
from app.store.errors import StoreError
from app.store.leases import LeaseHeld
from app.store.queries import StoredJob
from app.store.unreadable import end_unreadable
from app.worker.job.attempt_record import ref_of
from app.worker.job.drivers import kill_surely
from app.worker.ownership.recovery import JobKeeper
from app.worker.views import StateConflict, Unavailable

log = structlog.get_logger()


class UnreadableEnder:
    """Cancels a job that cannot be read: ends its driver, and writes down that it is canceled."""

    def __init__(self, keeper: JobKeeper) -> None:
        self._keeper, self._store = keeper, keeper.store
        self._turn = asyncio.Lock()

    async def cancel(self, job_id: str, requested_by: str | None) -> None:
        """It is done when this returns.

        Raises:
            ControlPlaneError: it has ended in another way, or it cannot be canceled now.
        """
        async with self._turn:
            job = self._keeper.unreadable.get(job_id)
            if job is None or job.summary.status is JobStatus.CANCELED:
                return
            if job.summary.status.is_globally_terminal:
                raise StateConflict(
                    f"Job {job_id} cannot be canceled: it has already reached the terminal state "
                    f"{job.summary.status.value}."
                )
            try:
                stored = await self._end(job_id, requested_by)
            except LeaseHeld as error:
                raise Unavailable(f"{error} It is to be asked.") from error
            except StoreError as error:
                raise Unavailable(str(error)) from error
            self._keeper.unreadable.note(stored, job.why)
            self._keeper.broker.forget(job_id)
            if job.summary.type == JobType.BATCH:
                await asyncio.to_thread(self._keeper.places.drop_results, job_id)

    async def _end(self, job_id: str, requested_by: str | None) -> StoredJob:
        # From here on no other server takes over the job or starts anything for it.
        lease = await self._store.acquire_lease(job_id)
        stored = await self._store.load_job(job_id)
        if stored is None:
            raise StoreError(f"There is no job {job_id}.")
        for row in (stored.attempt, stored.ended_attempt):
            handle = None if row is None else self._keeper.host.adopt(ref_of(row))
            if handle is not None:
                await kill_surely(handle)
        by = f" by {requested_by}" if requested_by else ""
        now_ms = self._keeper.clock.now_ms()
        message = f"The job was canceled{by}, while what is stored of it could not be read."
        await self._store.write(
            lambda connection: end_unreadable(connection, lease, ended_ms=now_ms, message=message)
        )
        log.warning("a job that cannot be read was canceled", job=job_id, by=requested_by)
        summary = replace(stored.summary, status=JobStatus.CANCELED, ended_ms=now_ms)
        return replace(stored, summary=summary, attempt=None, lease=lease)
