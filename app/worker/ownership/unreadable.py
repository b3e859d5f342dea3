"""Stored jobs that this server cannot read, because a newer version has written them or a document is damaged.

Stored documents are checked by the rules of the running version. The API shows such a job with the columns
beside its documents, and its driver is not touched. If there are other servers, its lease is given up, because
one of them may be able to read it. A server claims such a job only once. It reads the job again from time to
time, without a lease, and claims it again when it can be read, so the job does not move back and forth between
servers that cannot read it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import structlog

from app.model.grapherrors import GraphErrors
from app.model.jobgraph import JobType
from app.model.plan import Slot
from app.model.status import JobStatus
from app.store.errors import StoreError
from app.store.leases import LeaseHeld
from app.store.queries import JobSummary, StoredJob
from app.store.unreadable import end_unreadable
from app.worker.job.attempt_record import ref_of
from app.worker.job.drivers import kill_surely
from app.worker.job.stored_jobs import read_view
from app.worker.refusals import StateConflict, Unavailable

if TYPE_CHECKING:
    from app.worker.ownership.recovery import JobKeeper

log = structlog.get_logger()

LOOK_AGAIN_S = 5.0
LOOK_AGAIN_MAX_S = 300.0
_NAMED = 3


class JobUnreadable(StateConflict):
    """409: what is stored of the job cannot be read by this server."""


@dataclass(frozen=True, slots=True)
class UnreadableJob:
    """``why`` is a sentence. ``elsewhere``: another server has it."""

    summary: JobSummary
    why: str
    elsewhere: bool = False

    @property
    def job_id(self) -> str:
        return self.summary.job_id

    @property
    def status(self) -> JobStatus:
        """The last one that was stored."""
        return self.summary.status

    @property
    def submitted_ms(self) -> int:
        return self.summary.submitted_ms

    @property
    def sentence(self) -> str:
        if self.summary.status.is_globally_terminal:
            todo = "A server of the version that wrote it can show it; DELETE forgets it."
        else:
            todo = (
                "Its driver continues. Start a server of the version that wrote the job, or repair its row in the "
                "database, which the server reads again. Or cancel the job, which ends its driver, and then DELETE it."
            )
        return f"Job {self.job_id} cannot be read by this server: {self.why} {todo}"


class UnreadableJobs:
    """The unreadable jobs of one control plane."""

    def __init__(self, keeper: JobKeeper) -> None:
        # Whether others could read what this one cannot: then leases are given up.
        self.has_others = False
        self._jobs: dict[str, UnreadableJob] = {}
        self._delays: dict[str, tuple[float, float]] = {}
        self._keeper, self._store = keeper, keeper.store
        self._looking = False

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._jobs

    def get(self, job_id: str) -> UnreadableJob | None:
        return self._jobs.get(job_id)

    def all(self) -> list[UnreadableJob]:
        return list(self._jobs.values())

    def ids(self) -> list[str]:
        return list(self._jobs)

    def drop(self, job_id: str) -> None:
        self._jobs.pop(job_id, None)
        self._delays.pop(job_id, None)

    def warnings(self) -> list[str]:
        """A sentence on the jobs that no other server has."""
        named = [f"{one.summary.name} ({one.job_id})" for one in self._jobs.values() if not one.elsewhere]
        if not named:
            return []
        more = f", and {len(named) - _NAMED} more" * (len(named) > _NAMED)
        return [
            f"{len(named)} job(s) cannot be read by this server: {', '.join(named[:_NAMED])}{more}. Requests for them "
            "are answered with the reason, and with what can be done."
        ]

    def note(self, stored: StoredJob, error: Exception | str) -> None:
        """The job cannot be read; said once in the log."""
        why = reason(error)
        before = self._jobs.get(stored.job_id)
        self._jobs[stored.job_id] = UnreadableJob(stored.summary, why, self._is_elsewhere(stored))
        if before is None or before.why != why:
            defect = error if isinstance(error, Exception) and not _is_expected(error) else None
            log.error("a stored job cannot be read", job=stored.job_id, why=why, exc_info=defect)
        # A job that could be read but not be taken up keeps its delay.
        now_s = asyncio.get_running_loop().time()
        self._delays.setdefault(stored.job_id, (now_s + LOOK_AGAIN_S, LOOK_AGAIN_S))
        if not self._looking:
            self._looking = True
            self._keeper.spawn(self._look_again())

    def _is_elsewhere(self, stored: StoredJob) -> bool:
        return stored.lease is not None and stored.lease.owner in {
            one.member_id for one in self._keeper.peers
        }

    def give_up(self, stored: StoredJob) -> None:
        """Release the lease, so that another server may try to read the job."""
        if self.has_others and stored.lease is not None and not stored.summary.status.is_globally_terminal:
            self._keeper.spawn(self._release(stored.job_id, stored.lease.epoch))

    async def _release(self, job_id: str, epoch: int) -> None:
        try:
            if await self._store.release_lease(job_id, epoch):
                log.info("a job that cannot be read is left to other servers", job=job_id, epoch=epoch)
        except StoreError as error:
            # Whoever restarts it, or waits for the lease to end, finds it.
            log.warning("the lease of a job that cannot be read is kept", job=job_id, error=str(error))

    async def _look_again(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._jobs:
                await asyncio.sleep(LOOK_AGAIN_S)
                due = [job_id for job_id in self._jobs if self._delays[job_id][0] <= loop.time()]
                for job_id in due:
                    delay_s = min(2 * self._delays[job_id][1], LOOK_AGAIN_MAX_S)
                    self._delays[job_id] = (loop.time() + delay_s, delay_s)
                    try:
                        await self.read_again(job_id)
                    except StoreError as error:
                        log.warning("a job cannot be looked for", job=job_id, error=str(error))
        finally:
            self._looking = False

    async def read_again(self, job_id: str) -> None:
        """
        Raises:
            StoreError: the database is away.
        """
        stored = await self._store.load_job(job_id)
        if job_id not in self._jobs:
            return
        if stored is None:
            self.drop(job_id)
            # The slots that were kept for its driver are free then.
            self._keeper.broker.forget(job_id)
            return
        try:
            read_view(stored)
        except Exception as error:
            self.note(stored, error)
            return
        if await self._keeper.broker.look_up([job_id]):
            self.note(stored, UNKNOWN_SLOTS)
        elif job_id in self._jobs:
            log.info("a job can be read again", job=job_id)
            del self._jobs[job_id]
            self._keeper.can_be_read(stored)


UNKNOWN_SLOTS = "Which slots it holds is written in a form that is not known here."


def reason(error: Exception | str) -> str:
    if isinstance(error, str):
        return error
    if isinstance(error, GraphErrors):
        return f"its job graph is not valid by the rules of this version ({str(error).rstrip('.')})."
    text = str(error) if _is_expected(error) else f"{type(error).__name__}: {error}"
    return f"{text.rstrip('.')}."


def _is_expected(error: Exception) -> bool:
    return isinstance(error, StoreError | GraphErrors | ValueError)


def slots_in(state_text: str) -> tuple[Slot, ...]:
    """The slots in the text of a state, of which nothing else needs to be readable; none if they are not."""
    try:
        slots = json.loads(state_text)["slots"]
        return tuple(Slot(str(slot["id"]), str(slot["task_manager_id"])) for slot in slots)
    except (ValueError, TypeError, KeyError):
        return ()


def newest_first(jobs: Iterable[UnreadableJob]) -> list[UnreadableJob]:
    return sorted(jobs, key=lambda one: (one.summary.submitted_ms, one.job_id), reverse=True)


class UnreadableEnder:
    """Cancels a job that cannot be read: ends its driver, and writes into the columns beside its documents that it is
    canceled."""

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
