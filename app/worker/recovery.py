"""The jobs of this process: taking them up from the database, letting go of those that are lost, loading again.

What a job needs after a restart is read off its state, not only off the outbox: a level, so that it does not matter
at which write or effect the control plane before was cut off.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Mapping
from typing import Any

import structlog

from app.cluster.ports import DriverHost
from app.cluster.slot_pool import SlotPool
from app.model.graphdoc import GraphErrors, parse_document
from app.scheduler.adaptive.events import AttemptFailed, StartScheduling
from app.scheduler.adaptive.state import Created, Executing, JobState, Rescaling, StopWithSavepoint
from app.store.errors import StoreError
from app.store.leases import Lease
from app.store.queries import StoredJob
from app.store.store import Store
from app.store.writes import FIRST_EPOCH
from app.worker.attempt_record import AttemptRecord
from app.worker.clock import Clock
from app.worker.implied import implied_effects
from app.worker.job import Job, JobPlaces
from app.worker.job_files import are_intact, write_artifacts
from app.worker.persistence import JobWriter, attempt_record
from app.worker.slot_desk import SlotDesk
from app.worker.views import JobView

log = structlog.get_logger()

_LEASES_PER_CLAIM = 1000
_JOBS_PER_READ = 200
_RELOAD_AFTER_S = 0.5
_RELOAD_AFTER_MAX_S = 30.0


class JobKeeper:
    """Holds the jobs that this process serves. ``ended`` has the views of those that are over.

    ``away``: jobs that exist but are not served here now; their drivers are to try again, not to exit.
    """

    def __init__(
        self,
        store: Store,
        *,
        host: DriverHost,
        pool: SlotPool,
        places: JobPlaces,
        clock: Clock,
        validate_states: bool = False,
    ) -> None:
        self.jobs: dict[str, Job] = {}
        self.ended: dict[str, JobView] = {}
        self.away: set[str] = set()
        # Not to be taken up by a look at the leases: what is being loaded again, what cannot be read.
        self._loading, self._unreadable = set[str](), set[str]()
        self._store = store
        self._host = host
        self.desk = SlotDesk(pool, clock, self.tell_grants)
        self._places = places
        self._clock = clock
        self._validate = validate_states
        self._closing = False
        self._tasks: dict[asyncio.Task[None], None] = {}

    async def start(self, *, renew_every_s: float | None) -> None:
        """Take up every job that is not over, and keep its lease if leases expire."""
        await self._load_ended()
        while await self._store.claim_leases(_LEASES_PER_CLAIM):
            pass
        found = await self._prepare_all(await self._store.load_live_jobs())
        # Without a pause from here on: nobody may find a job that does not know its driver yet.
        taken = [(self._take_up(stored), stored, dead) for stored, dead in found]
        for job, stored, dead in taken:
            if job is not None:
                self._recover_or_load_again(job, stored, dead)
        # Slots may have become free or new while no control plane was there to say so.
        self.desk.review_soon()
        if self.away:
            log.info(
                "jobs are left to other owners: another data directory's, or leases that hold",
                jobs=len(self.away),
            )
        if renew_every_s is not None:
            self._spawn(self._renew(renew_every_s))

    async def close(self) -> None:
        """Stop working on every job; drivers keep running."""
        self._closing = True
        self.desk.close()
        for task in list(self._tasks):
            task.cancel()
        jobs = list(self.jobs.values())
        for job in jobs:
            job.close()
        await asyncio.gather(*(job.worker.ended() for job in jobs))

    def build_new(self, state: JobState, submitted_ms: int, submitted_by: str | None) -> Job:
        """The job that is being submitted: built before it is durable, since what is stored must be buildable."""
        return self._build(state, FIRST_EPOCH, submitted_ms, submitted_by, state_seq=1, effect_seq=0)

    def add(self, job: Job) -> None:
        """Serve a job that was just submitted and is durable."""
        self.jobs[job.job_id] = job

    def view(self, job_id: str) -> JobView | None:
        job = self.jobs.get(job_id)
        return job.view() if job is not None else self.ended.get(job_id)

    def tell_grants(self, job_ids: set[str]) -> None:
        """The cluster grants these jobs other slots than before."""
        for job_id in sorted(job_ids):
            job = self.jobs.get(job_id)
            if job is not None:
                job.slots_changed()

    # -- taking up

    def _take_up(self, stored: StoredJob) -> Job | None:
        """The job as it is stored, with the slots it held; None if it is not ours, or cannot be read or built."""
        if stored.lease is None or stored.lease.owner != self._store.owner:
            self.away.add(stored.job_id)
            return None
        try:
            graph = parse_document(json.loads(stored.document))
            state = stored.state(graph)
            job = self._build(
                state,
                stored.lease.epoch,
                stored.summary.submitted_ms,
                stored.summary.submitted_by,
                state_seq=stored.seq,
                effect_seq=max((effect.seq for effect in stored.effects), default=0),
            )
        except Exception as error:
            # Whatever is wrong with one job, the others are served.
            expected = isinstance(error, StoreError | GraphErrors)
            sentence = "a stored job cannot be read; it is left alone"
            log.error(sentence, job=stored.job_id, error=str(error), exc_info=None if expected else error)
            self._unreadable.add(stored.job_id)
            self.away.add(stored.job_id)
            return None
        self._clock.not_before(_latest_ms(state))
        self.jobs[state.job_id] = job
        self.away.discard(state.job_id)
        self.desk.restore(state)
        return job

    async def _prepare_all(self, page: list[StoredJob]) -> list[tuple[StoredJob, AttemptRecord | None]]:
        """Each job with what `_prepare` says of it, but for those whose files cannot be laid out now."""
        found = []
        for stored in page:
            try:
                found.append((stored, await self._prepare(stored)))
            except OSError as error:
                log.error("the files of a job cannot be laid out", job=stored.job_id, error=str(error))
                self.away.add(stored.job_id)
                self._load_later(stored.job_id, None)
        return found

    async def _prepare(self, stored: StoredJob) -> AttemptRecord | None:
        """Lay out the files of a job again if any is gone or damaged; its last attempt, if that is over."""
        if _lists_artifacts(stored.document):
            directory = self._places.artifacts_dir(stored.job_id)
            digests = await self._store.artifact_digests(stored.job_id)
            if not await asyncio.to_thread(are_intact, directory, digests):
                artifacts = await self._store.artifacts(stored.job_id)
                await asyncio.to_thread(write_artifacts, directory, artifacts)
                log.warning("the files of a job were laid out again", job=stored.job_id)
        return attempt_record(stored.ended_attempt) if stored.ended_attempt is not None else None

    def _recover(self, job: Job, stored: StoredJob, dead: AttemptRecord | None) -> None:
        """Adopt the live driver, go on with what was decided but not done."""
        state = job.state
        if self.desk.grants_otherwise(state):
            job.slots_changed()
        row = stored.attempt
        if row is not None:
            job.resume_reports(row.attempt, row.acknowledged)
        job.attempts.recover(None if row is None else attempt_record(row), dead)
        job.writer.pending([effect.seq for effect in stored.effects])
        if isinstance(state.phase, Created):
            job.deliver(StartScheduling())
        elif row is None and isinstance(state.phase, Executing | Rescaling | StopWithSavepoint):
            job.deliver(AttemptFailed(state.attempt, "The driver of the attempt is not known.", stopped=True))
        outbox = tuple(effect.effect for effect in stored.effects)
        job.worker.start((*outbox, *(effect for effect in implied_effects(state) if effect not in outbox)))

    def _recover_or_load_again(self, job: Job, stored: StoredJob, dead: AttemptRecord | None) -> None:
        """One job that cannot be taken up now must not keep the others from being served."""
        try:
            self._recover(job, stored, dead)
        except Exception as error:
            log.error("a job could not be taken up", job=job.job_id, exc_info=error)
            self._on_diverged(job.job_id)

    async def _load_ended(self) -> None:
        summaries = await self._store.list_jobs(ended=True)
        for first in range(0, len(summaries), _JOBS_PER_READ):
            page = summaries[first : first + _JOBS_PER_READ]
            for stored in await self._store.load_jobs([summary.job_id for summary in page]):
                self._show_ended(stored)

    def _show_ended(self, stored: StoredJob) -> None:
        try:
            state = stored.state(parse_document(json.loads(stored.document)))
        except (StoreError, GraphErrors, ValueError) as error:
            log.error("an ended job cannot be read", job=stored.job_id, error=str(error))
            self._unreadable.add(stored.job_id)
            return
        self.away.discard(stored.job_id)
        self.ended[state.job_id] = JobView(
            state=state,
            status=stored.summary.status,
            submitted_ms=stored.summary.submitted_ms,
            ended_ms=stored.summary.ended_ms,
            submitted_by=stored.summary.submitted_by,
            epoch=stored.lease.epoch if stored.lease else 0,
        )

    def _build(
        self,
        state: JobState,
        epoch: int,
        submitted_ms: int,
        submitted_by: str | None,
        state_seq: int,
        effect_seq: int,
    ) -> Job:
        writer = JobWriter(
            self._store, self._clock, state.job_id, epoch, state_seq=state_seq, effect_seq=effect_seq
        )
        return Job(
            state,
            writer=writer,
            clock=self._clock,
            host=self._host,
            desk=self.desk,
            places=self._places,
            submitted_ms=submitted_ms,
            submitted_by=submitted_by,
            on_ended=self._on_ended,
            ended=self.ended,
            on_lost=self._on_lost,
            on_diverged=self._on_diverged,
            validate_states=self._validate,
        )

    # -- letting go

    def _on_ended(self, job_id: str) -> None:
        job = self.jobs.pop(job_id, None)
        if job is not None:
            self.ended[job_id] = job.view()

    def _on_lost(self, job_id: str) -> None:
        """Another control plane owns the job: its driver and its slots are not ours to touch any more."""
        job = self.jobs.pop(job_id, None)
        if job is not None:
            self.away.add(job_id)
            job.close()
            self.desk.forget(job_id)

    def _on_diverged(self, job_id: str) -> None:
        job = self.jobs.pop(job_id, None)
        if job is not None:
            self.away.add(job_id)
            job.close()
            self._load_later(job_id, job)

    def _load_later(self, job_id: str, old: Job | None) -> None:
        self._loading.add(job_id)
        self._spawn(self._load_again(job_id, old))

    async def _load_again(self, job_id: str, old: Job | None) -> None:
        """Go on from what the database says, when ``old`` has ended; tried until it succeeds."""
        delay_s = _RELOAD_AFTER_S
        try:
            if old is not None:
                await _ended(old)
            while not self._closing:
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, _RELOAD_AFTER_MAX_S)
                try:
                    await self._load_once_more(job_id)
                    return
                except Exception as error:
                    # A full disk, or no more file descriptors: whatever it is, it may pass.
                    defect = None if isinstance(error, StoreError | OSError) else error
                    sentence = "a job cannot be loaded again yet"
                    log.error(sentence, job=job_id, error=str(error), retry_in_s=delay_s, exc_info=defect)
        finally:
            self._loading.discard(job_id)

    async def _load_once_more(self, job_id: str) -> None:
        stored = await self._store.load_job(job_id)
        if stored is None or stored.summary.status.is_globally_terminal:
            self.desk.forget(job_id)
            self.away.discard(job_id)
            if stored is not None:
                self._show_ended(stored)
            return
        dead = await self._prepare(stored)
        job = self._take_up(stored)
        if job is None:
            return
        try:
            self._recover(job, stored, dead)
        except Exception:
            self.jobs.pop(job_id, None)
            self.away.add(job_id)
            job.close()
            await _ended(job)
            raise
        log.info("job loaded again", job=job_id)

    async def _renew(self, every_s: float) -> None:
        while not self._closing:
            await asyncio.sleep(every_s)
            served = set(self.jobs)
            try:
                held = await self._store.renew_leases()
            except StoreError as error:
                log.error("leases could not be renewed", error=str(error))
                continue
            for job_id in served & set(self.jobs):
                lease = held.get(job_id)
                if lease is None or lease.epoch != self.jobs[job_id].writer.epoch:
                    self._on_lost(job_id)
            try:
                await self._take_over(held)
            except StoreError as error:
                log.error("jobs could not be taken over", error=str(error))
            except Exception:
                # Whatever it is, the leases of all the other jobs must be renewed.
                log.exception("taking jobs over met a defect")

    async def _take_over(self, held: Mapping[str, Lease]) -> None:
        """Take up the jobs whose owner has gone, on this data directory: their leases have expired.

        What is missing is read off the leases that we hold, not off the answer to a claim, which may have been lost.
        """
        ours = dict(held)
        while claimed := await self._store.claim_leases(_LEASES_PER_CLAIM):
            ours.update((lease.job_id, lease) for lease in claimed)
        # At its first epoch a job is being submitted.
        missing = [job for job, lease in ours.items() if lease.epoch > FIRST_EPOCH and not self._knows(job)]
        for first in range(0, len(missing), _JOBS_PER_READ):
            page = await self._store.load_jobs(missing[first : first + _JOBS_PER_READ])
            for stored, dead in await self._prepare_all(page):
                if self._closing or self._knows(stored.job_id):
                    continue
                if stored.summary.status.is_globally_terminal:
                    self._show_ended(stored)
                elif (job := self._take_up(stored)) is not None:
                    self._recover_or_load_again(job, stored, dead)
                    log.info("job taken over", job=job.job_id, epoch=job.writer.epoch)
        if missing:
            self.desk.review_soon()

    def _knows(self, job_id: str) -> bool:
        known = (self.jobs, self.ended, self._loading, self._unreadable)
        return any(job_id in where for where in known)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a background task failed", exc_info=error)


def _latest_ms(state: JobState) -> int:
    """The latest instant that the state has seen."""
    record = state.timeline.open
    return max(state.phase_since_ms, state.slots_changed_ms, record.start_ms if record else 0)


async def _ended(job: Job) -> None:
    """Returns when nothing that a closed job had begun is still going on."""
    await job.worker.ended()
    await job.attempts.quiet()


def _lists_artifacts(document: str) -> bool:
    try:
        return bool(json.loads(document).get("artifacts"))
    except (ValueError, AttributeError):
        # What cannot be read has no files to lay out; taking the job up says why.
        return False
