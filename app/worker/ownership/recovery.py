"""The jobs of this process: loading them from the database, dropping lost jobs, loading again after an error.

The module `app.worker.ownership.leases` decides which jobs these are.

The work that a job needs after a restart is computed from its state. So it does not matter at which write or
effect the previous control plane was interrupted.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from typing import Any

import structlog

from app.cluster.ports import DriverHost, Offer
from app.cluster.slot_pool import SlotPool
from app.model.graphdoc import read_graph
from app.scheduler.adaptive import local_failover
from app.scheduler.adaptive.events import AttemptFailed, AttemptMisplaced, StartScheduling
from app.scheduler.adaptive.state import Created, Executing, JobState, Rescaling, StopWithSavepoint
from app.store.errors import StoreUnavailable
from app.store.members import Member
from app.store.queries import StoredJob
from app.store.slot_table import SlotTable
from app.store.store import Store
from app.store.writes import FIRST_EPOCH, Attempt
from app.worker.clock import Clock, LeaseCertainty
from app.worker.job.job import Job
from app.worker.job.orders import implied_effects
from app.worker.job.places import JobPlaces, misplaced, write_address
from app.worker.job.stored_jobs import lay_out_files, quiet, read_view
from app.worker.observer import Observers
from app.worker.ownership.jobs_known import JobsKnown
from app.worker.ownership.unreadable import SlotsUnknown, UnreadableJobs, slots_in
from app.worker.retrying import until_done
from app.worker.slots.broker import OwnBroker, SlotBroker
from app.worker.slots.doorbell import Bells, NoBells
from app.worker.slots.shared_broker import SharedBroker

log = structlog.get_logger()

JOBS_PER_READ = 200


class JobKeeper(JobsKnown):
    """Holds the jobs that this process serves."""

    def __init__(
        self,
        store: Store,
        *,
        host: DriverHost,
        pool: SlotPool,
        places: JobPlaces,
        clock: Clock,
        observers: Observers,
    ) -> None:
        super().__init__()
        self.observers = observers
        self.lease_certainty = LeaseCertainty(clock)
        # The other control planes that share the jobs, as of the last look.
        self.peers: list[Member] = []
        self.store = store
        self.unreadable = UnreadableJobs(self)
        self.host = host
        self.broker: SlotBroker = OwnBroker(pool, clock, self.tell_grants)
        self.places = places
        self.clock = clock
        self._closing = False
        self._tasks: dict[asyncio.Task[None], None] = {}

    def share_slots(self, member: Member, bells: Bells | None, offer: Offer | None, holding_ms: int) -> None:
        """From now on the jobs ask for slots where those of other members do. ``offer``: what a cluster offers; None:
        the members themselves have slots."""
        self.broker.close()
        self.broker = broker = SharedBroker(
            SlotTable(self.store, member.home),
            self.jobs,
            self.tell_grants,
            self.spawn,
            bells=bells or NoBells(),
            offer=offer,
            holding_ms=holding_ms,
        )
        self.spawn(broker.run())

    async def start(self) -> None:
        """Take up every job that is not over, and of which this process has the lease."""
        await self._load_ended()
        found = await self._prepare_all(await self.store.load_live_jobs())
        # No await from here on: no caller may find a job that does not know its driver yet.
        taken = [(self._take_up(stored), stored, dead) for stored, dead in found]
        for job, stored, dead in taken:
            if job is not None:
                self._recover_or_load_again(job, stored, dead)
        # Slots may have become free or new while no control plane was there to say so.
        self.broker.review_soon()
        if self.elsewhere:
            log.info(
                "jobs are left to other owners: another data directory's, or leases that hold",
                jobs=len(self.elsewhere),
            )

    async def close(self) -> None:
        """Stop working on every job; drivers keep running."""
        self._closing = True
        self.broker.close()
        for task in list(self._tasks):
            task.cancel()
        jobs = list(self.jobs.values())
        for job in jobs:
            job.close()
        await asyncio.gather(*(job.worker.ended() for job in jobs))

    def build_new(self, state: JobState, submitted_ms: int, submitted_by: str | None) -> Job:
        """The job that is being submitted: built before it is durable, since what is stored must be buildable."""
        return Job(state, self, FIRST_EPOCH, 1, submitted_ms, submitted_by)

    def add(self, job: Job) -> None:
        """Serve a job that was just submitted and is durable."""
        self.jobs[job.job_id] = job

    def tell_grants(self, job_ids: set[str]) -> None:
        """The cluster grants these jobs other slots than before."""
        for job_id in sorted(job_ids):
            job = self.jobs.get(job_id)
            if job is not None:
                job.slots_changed()

    # -- taking up

    def _take_up(self, stored: StoredJob) -> Job | None:
        """The job as it is stored, with the slots it held; None if it is not ours, or cannot be read or built."""
        if stored.lease is None or not self._is_ours(stored):
            self.elsewhere.add(stored.job_id)
            return None
        try:
            graph = read_graph(json.loads(stored.document))
            state = stored.state(graph)
            of = stored.summary
            job = Job(state, self, stored.lease.epoch, stored.seq, of.submitted_ms, of.submitted_by)
        except Exception as error:
            # Whatever is wrong with one job, the others are served.
            self._set_aside(stored, error)
            return None
        self.jobs[state.job_id] = job
        self.elsewhere.discard(state.job_id)
        self.unreadable.drop(state.job_id)
        self.glimpses.pop(state.job_id, None)
        self.broker.restore(state)
        return job

    def _is_ours(self, stored: StoredJob) -> bool:
        return stored.lease is not None and stored.lease.owner == self.store.owner

    async def _prepare_all(self, page: list[StoredJob]) -> list[tuple[StoredJob, Attempt | None]]:
        """Each job with what `_prepare` says of it, but for those whose files cannot be laid out now."""
        unknown = await self.broker.look_up([stored.job_id for stored in page if self._is_ours(stored)])
        found = []
        for stored in page:
            if stored.job_id in unknown:
                self._set_aside(stored, SlotsUnknown())
                continue
            try:
                found.append((stored, await self._prepare(stored)))
            except OSError as error:
                log.error("the files of a job cannot be laid out", job=stored.job_id, error=str(error))
                self.load_later(stored.job_id, None)
        return found

    async def _prepare(self, stored: StoredJob) -> Attempt | None:
        """Lay out the files of a job again if any is gone or damaged; its last attempt, if that is over."""
        if self._is_ours(stored) and stored.lease is not None:
            await self.tell_address(stored.job_id, stored.lease.epoch)
        await lay_out_files(self.store, self.places, stored)
        return stored.ended_attempt

    async def tell_address(self, job_id: str, epoch: int) -> None:
        """Let the drivers of a job find this process.

        Raises:
            OSError: it cannot be written down.
        """
        if (url := self.places.url) is not None:
            await asyncio.to_thread(write_address, self.places.address_of(job_id), url, epoch)

    def _recover(self, job: Job, stored: StoredJob, dead: Attempt | None) -> None:
        """Adopt the live driver, go on with what was decided but not done."""
        state = job.state
        row = stored.attempt
        why = None if row is None else misplaced(row.runs_on, self.places.runs_on)
        if why is None and self.broker.grants_differ(state):
            job.slots_changed()
        if row is not None:
            job.resume_reports(row.attempt, row.acknowledged)
        if job.attempts.recover(row, dead):
            job.worker.deliver(local_failover.event_of_takeover)
        if row is not None and why is not None:
            # Before it is told that none of its slots is there any more.
            job.move(AttemptMisplaced(row.attempt, why))
            job.slots_changed()
        if isinstance(state.phase, Created):
            job.deliver(StartScheduling())
        elif row is None and isinstance(state.phase, Executing | Rescaling | StopWithSavepoint):
            job.deliver(AttemptFailed(state.attempt, "Its driver is not known.", stopped=True, outside=True))
        job.worker.start(implied_effects(state))
        job.building.settle(state)

    def _recover_or_load_again(self, job: Job, stored: StoredJob, dead: Attempt | None) -> None:
        """One job that cannot be taken up now must not keep the others from being served."""
        try:
            self._recover(job, stored, dead)
        except Exception as error:
            log.error("a job could not be taken up", job=job.job_id, exc_info=error)
            self.diverged(job.job_id)

    async def _load_ended(self) -> None:
        summaries = await self.store.list_jobs(ended=True)
        for first in range(0, len(summaries), JOBS_PER_READ):
            page = summaries[first : first + JOBS_PER_READ]
            for stored in await self.store.load_jobs([summary.job_id for summary in page]):
                self.show_ended(stored)

    def show_ended(self, stored: StoredJob) -> None:
        self.glimpses.pop(stored.job_id, None)
        try:
            self.ended[stored.job_id] = read_view(stored)
        except Exception as error:
            self.unreadable.note(stored, error)
        else:
            self.elsewhere.discard(stored.job_id)
            self.unreadable.drop(stored.job_id)

    # -- letting go

    @property
    def is_closing(self) -> bool:
        return self._closing

    def is_sure(self) -> bool:
        """Whether no other process can have the leases of this one now."""
        return self.lease_certainty.is_sure()

    def job_ended(self, job_id: str) -> None:
        job = self.jobs.pop(job_id, None)
        if job is not None:
            self.ended[job_id] = job.view()

    def lose(self, job_id: str) -> None:
        """Another control plane owns the job: its driver and its slots are not ours to touch any more."""
        job = self.jobs.pop(job_id, None)
        if job is not None:
            self.elsewhere.add(job_id)
            job.close()
            self.broker.let_go(job_id)

    def diverged(self, job_id: str) -> None:
        job = self.jobs.pop(job_id, None)
        if job is not None:
            job.close()
            self.load_later(job_id, job)

    def load_later(self, job_id: str, old: Job | None) -> None:
        """Until then no answer says that a job does not exist."""
        self.elsewhere.add(job_id)
        self._loading.add(job_id)
        self.spawn(self._load_again(job_id, old))

    async def _load_again(self, job_id: str, old: Job | None) -> None:
        """Go on from what the database says, when ``old`` has ended; tried until it succeeds."""
        try:
            if old is not None:
                await quiet(old)
            sentence = "a job cannot be loaded again yet"
            await until_done(
                lambda: self._load_once_more(job_id), sentence, job_id, is_over=lambda: self._closing
            )
        finally:
            self._loading.discard(job_id)

    async def _load_once_more(self, job_id: str) -> None:
        stored = await self.store.load_job(job_id)
        if stored is None or stored.summary.status.is_globally_terminal:
            self.broker.forget(job_id)
            self.elsewhere.discard(job_id)
            if stored is not None:
                self.show_ended(stored)
            return
        if await self.broker.look_up([job_id]):
            self._set_aside(stored, SlotsUnknown())
            return
        dead = await self._prepare(stored)
        if not self.is_sure():
            raise StoreUnavailable("Whether the job is still this control plane's has to be asked first.")
        job = self._take_up(stored)
        if job is None:
            return
        try:
            self._recover(job, stored, dead)
        except Exception:
            self.jobs.pop(job_id, None)
            self.elsewhere.add(job_id)
            job.close()
            await quiet(job)
            raise
        # It may have declared other slots in the very write behind which it was let go.
        self.broker.review_soon()
        log.info("job loaded again", job=job_id)

    async def take_up_all(self, page: list[StoredJob]) -> None:
        """Take up jobs whose leases this process has got while it runs."""
        for stored, dead in await self._prepare_all(page):
            if self._closing or self._knows(stored.job_id) or not self.is_sure():
                continue
            if stored.summary.status.is_globally_terminal:
                self.show_ended(stored)
            elif (job := self._take_up(stored)) is not None:
                self._recover_or_load_again(job, stored, dead)
                log.info("job taken over", job=job.job_id, epoch=job.writer.epoch)
        self.broker.review_soon()

    # -- what cannot be read

    def _set_aside(self, stored: StoredJob, error: Exception) -> None:
        """The job keeps the slots of its driver as long as that lives."""
        self.elsewhere.discard(stored.job_id)
        if stored.attempt is not None:
            self.broker.keep(stored.job_id, slots_in(stored.state_text))
        if stored.lease is not None:
            self.unreadable.set_aside(stored, stored.lease, error)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a background task failed", exc_info=error)
