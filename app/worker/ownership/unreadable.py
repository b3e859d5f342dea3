"""Stored jobs that this server cannot read. The API shows them with the columns beside their documents.

A job that a newer version of Slotwise has written is left alone: its driver continues, and if there are other servers
its lease is given up, because one of them may be able to read it. A server claims such a job once, so the job does not
move back and forth between servers that cannot read it.

The row of any other job that cannot be read is damaged. The server that owns the job ends its driver, and once that is
surely gone the job is FAILED. Its documents stay as they are.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import structlog

from app.model.grapherrors import GraphErrors
from app.model.plan import Slot
from app.model.status import JobStatus
from app.store.errors import LeaseLost, StoreError, StoreUnavailable
from app.store.leases import Lease
from app.store.queries import JobSummary, StoredJob
from app.store.unreadable import fail_damaged
from app.worker.job.attempt_record import ref_of
from app.worker.job.drivers import kill_surely
from app.worker.refusals import StateConflict
from app.worker.retrying import until_done

if TYPE_CHECKING:
    from app.worker.ownership.recovery import JobKeeper

log = structlog.get_logger()

_NAMED = 3


class JobUnreadable(StateConflict):
    """409: what is stored of the job cannot be read by this server."""


class SlotsUnknown(StoreError):
    """Which slots a job holds cannot be read. A newer server may decide about slots, so the job is not damaged."""

    def __init__(self) -> None:
        super().__init__("Which slots it holds is written in a form that is not known here.")


@dataclass(frozen=True, slots=True)
class UnreadableJob:
    """``why`` is a sentence. ``is_damaged``: no newer version has written it. ``elsewhere``: another server has it."""

    summary: JobSummary
    why: str
    is_damaged: bool
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
        if self.status.is_globally_terminal:
            todo = f"It is {self.status.value}, and its row is kept until DELETE forgets it."
        elif self.is_damaged:
            todo = "Its driver is being ended. When nothing of it lives, the job is FAILED."
        else:
            todo = "Its driver continues. Start a server of the version that wrote it."
        return f"Job {self.job_id} cannot be read by this server: {self.why} {todo}"


class UnreadableJobs:
    """The unreadable jobs of one control plane."""

    def __init__(self, keeper: JobKeeper) -> None:
        # Whether others could read what this one cannot: then leases are given up.
        self.has_others = False
        self._jobs: dict[str, UnreadableJob] = {}
        self._ending: set[str] = set()
        self._keeper, self._store = keeper, keeper.store

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._jobs

    def get(self, job_id: str) -> UnreadableJob | None:
        return self._jobs.get(job_id)

    def all(self) -> list[UnreadableJob]:
        """Newest first."""
        return sorted(self._jobs.values(), key=lambda one: (one.submitted_ms, one.job_id), reverse=True)

    def left_alone(self) -> list[str]:
        """The jobs that this server is not to claim again."""
        return [one.job_id for one in self._jobs.values() if not one.is_damaged]

    def is_settled(self, job_id: str) -> bool:
        """Whether this server has done for the job what it can do, or is about it."""
        job = self._jobs.get(job_id)
        over = job is not None and (not job.is_damaged or job.status.is_globally_terminal)
        return over or job_id in self._ending

    def drop(self, job_id: str) -> None:
        self._jobs.pop(job_id, None)

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

    def note(self, stored: StoredJob, error: Exception) -> UnreadableJob:
        """The job cannot be read; said once in the log."""
        why = _reason(error)
        before = self._jobs.get(stored.job_id)
        is_damaged = not stored.is_newer and not isinstance(error, SlotsUnknown | MemoryError)
        peers = {one.member_id for one in self._keeper.peers}
        elsewhere = stored.lease is not None and stored.lease.owner in peers
        job = self._jobs[stored.job_id] = UnreadableJob(stored.summary, why, is_damaged, elsewhere)
        if before is None or before.why != why:
            defect = None if _is_expected(error) else error
            log.error("a stored job cannot be read", job=stored.job_id, why=why, exc_info=defect)
        return job

    def set_aside(self, stored: StoredJob, lease: Lease, error: Exception) -> None:
        """Do what is to be done for a job of this server, which has its ``lease``, that cannot be read."""
        job = self.note(stored, error)
        if job.is_damaged and stored.job_id not in self._ending:
            self._ending.add(stored.job_id)
            self._keeper.spawn(self._end(stored, lease, job.why))
        elif not job.is_damaged and self.has_others:
            self._keeper.spawn(self._release(stored.job_id, lease.epoch))

    async def _release(self, job_id: str, epoch: int) -> None:
        try:
            if await self._store.release_lease(job_id, epoch):
                log.info("a job that cannot be read is left to other servers", job=job_id, epoch=epoch)
        except StoreError as error:
            # Whoever restarts it, or waits for the lease to end, finds it.
            log.warning("the lease of a job that cannot be read is kept", job=job_id, error=str(error))

    # -- damaged jobs

    async def _end(self, stored: StoredJob, lease: Lease, why: str) -> None:
        job_id = stored.job_id
        try:
            await until_done(
                lambda: self._end_once(stored, lease, why),
                "a damaged job cannot be ended yet",
                job_id,
                is_over=lambda: self._keeper.is_closing or job_id not in self._ending,
            )
        finally:
            self._ending.discard(job_id)

    async def _end_once(self, stored: StoredJob, lease: Lease, why: str) -> None:
        keeper, job_id = self._keeper, stored.job_id
        if not keeper.is_sure():
            raise StoreUnavailable("Whether the job is still this control plane's has to be asked first.")
        for row in (stored.attempt, stored.ended_attempt):
            handle = None if row is None else keeper.host.adopt(ref_of(row))
            if handle is not None:
                await kill_surely(handle)
        now_ms = keeper.clock.now_ms()
        message = f"What is stored of the job is damaged: {why}"
        try:
            await self._store.write(
                lambda connection: fail_damaged(connection, lease, ended_ms=now_ms, message=message)
            )
        except LeaseLost:
            # Whoever has it now ends it.
            self._ending.discard(job_id)
            return
        log.error("a damaged job is FAILED", job=job_id, why=why)
        summary = replace(stored.summary, status=JobStatus.FAILED, ended_ms=now_ms)
        self._jobs[job_id] = UnreadableJob(summary, why, is_damaged=True)
        keeper.broker.forget(job_id)
        await asyncio.to_thread(keeper.places.drop_results, job_id)


def _reason(error: Exception) -> str:
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
