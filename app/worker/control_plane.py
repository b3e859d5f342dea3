"""The control plane: all jobs of this process, and the facade that the API calls."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import structlog
from app.model.graphdoc import parse_document, to_document

from app.cluster.embedded import host_memory_bytes
from app.cluster.ports import DriverHost
from app.cluster.slot_pool import SlotPool
from app.model.jobgraph import JobGraph, JobType
from app.model.options import JobOptions
from app.model.protocol import Orders, Registration, Report
from app.model.rescale import RescaleRecord, TerminalState, TriggerCause
from app.scheduler.adaptive.events import CancelRequested, StartScheduling, StopRequested
from app.scheduler.adaptive.state import JobState, Stop
from app.scheduler.adaptive.step import initial_state, status_of
from app.scheduler.slots import minimal_slots
from app.store.errors import StoreError
from app.store.queries import RescalePage, StoredJob
from app.store.store import Store
from app.store.tables import AttemptState
from app.store.writes import AddArtifact, AddRequirements, CreateJob, UnitOfWork
from app.worker.clock import Clock
from app.worker.insight import dry_run, explanation
from app.worker.job import Job, JobPlaces
from app.worker.job_worker import Verdict
from app.worker.persistence import JobWriter, attempt_record
from app.worker.requirements import (
    decide_update,
    fingerprint,
    initial_requirements,
    refuse_stale,
    resolve_bounds,
)
from app.worker.views import (
    DryRun,
    Explanation,
    Fenced,
    InvalidRequest,
    JobView,
    RequirementsResult,
    RequirementsUpdate,
    StateConflict,
    TaskManager,
    Unavailable,
    UnknownJob,
    UnknownOperation,
    UnknownRescale,
)

log = structlog.get_logger()

HOST_TASK_MANAGER = "host"
_MAX_IDEMPOTENCY_KEYS = 1000
_LEASES_PER_CLAIM = 1000
_JOBS_PER_READ = 200
_MAX_WAIT_MS = 60_000


class ControlPlane:
    """Implements `app.worker.facade.ControlPlaneFacade` over a store and a cluster."""

    def __init__(
        self,
        store: Store,
        *,
        host: DriverHost,
        places: JobPlaces,
        clock: Clock,
        new_id: Callable[[], str],
        validate_states: bool = False,
    ) -> None:
        self._store = store
        self._host = host
        self._places = places
        self._clock = clock
        self._new_id = new_id
        self._validate = validate_states
        self._pool = SlotPool({HOST_TASK_MANAGER: places.slots})
        self._jobs: dict[str, Job] = {}
        self._ended: dict[str, JobView] = {}
        self._started_ms = clock.now_ms()
        self._closing = False

    # -- life

    async def start(self) -> None:
        """Take up every job that is not over: adopt live drivers, go on with what was decided but not done."""
        await self._load_ended()
        while await self._store.claim_leases(_LEASES_PER_CLAIM):
            pass
        taken: list[tuple[Job, StoredJob]] = []
        for stored in await self._store.load_live_jobs():
            if stored.lease is None or stored.lease.owner != self._store.owner:
                continue
            graph = parse_document(json.loads(stored.document))
            state = stored.state(graph)
            last_effect = max((effect.seq for effect in stored.effects), default=0)
            job = self._build(
                state,
                stored.lease.epoch,
                stored.summary.submitted_ms,
                stored.summary.submitted_by,
                state_seq=stored.seq,
                effect_seq=last_effect,
            )
            self._jobs[state.job_id] = job
            minimal = minimal_slots(graph, state.requirements)
            self._pool.restore(state.job_id, state.slots, state.declared_slots, minimal)
            taken.append((job, stored))
        for job, stored in taken:
            await self._recover(job, stored)

    async def _recover(self, job: Job, stored: StoredJob) -> None:
        if self._pool.held_by(job.job_id) != job.state.slots:
            job.slots_changed()
        record = attempt_record(stored.attempt) if stored.attempt else None
        ended: set[int] = set()
        if stored.effects:
            rows = await self._store.attempts(job.job_id)
            ended = {row.attempt for row in rows if row.state is AttemptState.DEAD}
            write_artifacts(self._places.artifacts_dir(job.job_id), await self._store.artifacts(job.job_id))
        await job.attempts.recover(record, ended)
        job.writer.pending([effect.seq for effect in stored.effects])
        job.worker.start(tuple(effect.effect for effect in stored.effects))

    async def _load_ended(self) -> None:
        summaries = await self._store.list_jobs(ended=True)
        for first in range(0, len(summaries), _JOBS_PER_READ):
            page = summaries[first : first + _JOBS_PER_READ]
            for stored in await self._store.load_jobs([summary.job_id for summary in page]):
                state = stored.state(parse_document(json.loads(stored.document)))
                self._ended[state.job_id] = JobView(
                    state=state,
                    status=stored.summary.status,
                    submitted_ms=stored.summary.submitted_ms,
                    ended_ms=stored.summary.ended_ms,
                    submitted_by=stored.summary.submitted_by,
                    epoch=stored.lease.epoch if stored.lease else 0,
                )

    async def close(self) -> None:
        """Stop working on every job; drivers keep running. Waiting drivers are sent away. Harmless when repeated."""
        self._closing = True
        for job in self._jobs.values():
            job.close()
        await asyncio.gather(*(job.worker.settle() for job in self._jobs.values()), return_exceptions=True)

    # -- jobs

    async def submit(
        self, graph: JobGraph, artifacts: Mapping[str, bytes], *, requested_by: str | None = None
    ) -> str:
        if graph.type is not JobType.STREAMING:
            raise InvalidRequest("type: this version of Slotwise runs STREAMING jobs only.")
        options, errors = JobOptions.parse({k: v for k, v in graph.config if not k.startswith("spark.")})
        missing = [name for name in graph.artifacts if name not in artifacts]
        unlisted = [name for name in artifacts if name not in graph.artifacts]
        errors = [f"config: {error}" for error in errors]
        errors += [f"artifacts: the file {name} is listed but was not sent along." for name in missing]
        errors += [f"artifacts: the file {name} was sent along but is not listed." for name in unlisted]
        if errors:
            raise InvalidRequest(*errors)
        job_id = self._new_id()
        now_ms = self._clock.now_ms()
        requirements = initial_requirements(job_id, graph, requested_by)
        state = initial_state(job_id, graph, options, requirements, now_ms)
        unit = UnitOfWork(job_id, 1).add(
            CreateJob(
                name=graph.name,
                type=graph.type.value,
                document=json.dumps(to_document(graph), separators=(",", ":")),
                options=options,
                submitted_ms=now_ms,
                submitted_by=requested_by,
                state=state,
                status=status_of(state),
            ),
            AddRequirements(requirements, now_ms),
            *(AddArtifact(name, content) for name, content in artifacts.items()),
        )
        try:
            await self._store.commit(unit)
        except StoreError as error:
            raise Unavailable(f"{error} The job was not submitted; try again.") from error
        write_artifacts(self._places.artifacts_dir(job_id), artifacts)
        job = self._build(state, 1, now_ms, requested_by, state_seq=1, effect_seq=0)
        self._jobs[job_id] = job
        log.info("job submitted", job=job_id, name=graph.name, by=requested_by)
        job.deliver(StartScheduling())
        return job_id

    def jobs(self) -> Sequence[JobView]:
        views = [job.view() for job in self._jobs.values()] + list(self._ended.values())
        return sorted(views, key=lambda view: (view.submitted_ms, view.state.job_id), reverse=True)

    def job(self, job_id: str) -> JobView:
        job = self._jobs.get(job_id)
        if job is not None:
            return job.view()
        try:
            return self._ended[job_id]
        except KeyError:
            raise UnknownJob(f"Job {job_id} was not found.") from None

    async def update_requirements(self, job_id: str, update: RequirementsUpdate) -> RequirementsResult:
        job = self._running(job_id, "its resource requirements cannot be changed")

        key, known = update.idempotency_key, job.idempotency
        mine = False
        if key is not None and key not in known:
            stored = await self._store.answer(job_id, key)
            if stored is not None:
                known[key] = (stored.request_hash, RequirementsResult(stored.version, stored.changed))

        def decide(state: JobState) -> Verdict:
            nonlocal mine
            verdict = decide_update(state, update, known)
            if key is not None and key not in known:
                # Two requests with one key may share a transaction: the second must see the first.
                known[key] = (fingerprint(update), verdict.answer)
                mine = True
            return verdict

        try:
            result: RequirementsResult = await job.worker.ask(decide)
        except BaseException:
            if mine and key is not None:
                known.pop(key, None)
            raise
        while len(known) > _MAX_IDEMPOTENCY_KEYS:
            del known[next(iter(known))]
        return result

    def dry_run(self, job_id: str, update: RequirementsUpdate) -> DryRun:
        job = self._running(job_id, "its resource requirements cannot be changed")
        state = job.state
        refuse_stale(state, update)
        bounds, errors = resolve_bounds(state.graph, update.bounds)
        return dry_run(state, bounds, errors, free_slots=self._pool.free)

    async def cancel(self, job_id: str, *, requested_by: str | None = None) -> None:
        view = self.job(job_id)
        if view.status.is_globally_terminal:
            if view.status.value == "CANCELED":
                return
            raise StateConflict(
                f"Job {job_id} cannot be canceled: it has already reached the terminal state {view.status.value}."
            )
        await self._jobs[job_id].worker.ask(lambda state: Verdict(CancelRequested(requested_by)))

    async def stop(
        self, job_id: str, *, trigger_id: str | None = None, requested_by: str | None = None
    ) -> str:
        job = self._running(job_id, "it cannot be stopped")
        trigger = trigger_id or self._new_id()

        def decide(state: JobState) -> Verdict:
            if state.stop is not None and state.stop.trigger_id == trigger:
                return Verdict(None, trigger)
            return Verdict(StopRequested(trigger, requested_by), trigger)

        answer: str = await job.worker.ask(decide)
        return answer

    def stop_operation(self, job_id: str, trigger_id: str) -> Stop:
        stop = self.job(job_id).state.stop
        if stop is None or stop.trigger_id != trigger_id:
            raise UnknownOperation(
                f"There is no stop operation with trigger id {trigger_id} for job {job_id}."
            )
        return stop

    async def forget(self, job_id: str) -> None:
        view = self.job(job_id)
        if not view.status.is_globally_terminal:
            raise StateConflict(
                f"Job {job_id} cannot be forgotten while it is {view.status.value}: cancel or stop it first."
            )
        await self._store.forget(job_id)
        self._ended.pop(job_id, None)
        self._jobs.pop(job_id, None)

    def explanation(self, job_id: str) -> Explanation:
        job = self._jobs.get(job_id)
        view = self.job(job_id)
        return explanation(
            view,
            now_ms=self._clock.now_ms(),
            total_slots=self._pool.total,
            free_slots=self._pool.free,
            last_batch_ms=job.last_batch_ms if job else None,
        )

    # -- history

    async def rescales(
        self,
        job_id: str,
        *,
        limit: int | None = None,
        after: int | None = None,
        cause: TriggerCause | None = None,
        state: TerminalState | None = None,
    ) -> Sequence[RescaleRecord]:
        self.job(job_id)
        return await self._store.rescales(job_id, RescalePage(limit, after, cause, state))

    async def rescale(self, job_id: str, uuid: str) -> RescaleRecord:
        self.job(job_id)
        record = await self._store.rescale(job_id, uuid)
        if record is None:
            raise UnknownRescale(f"Rescale {uuid} of job {job_id} was not found.")
        return record

    async def rescale_durations(self, job_id: str) -> Mapping[TerminalState, Sequence[int]]:
        self.job(job_id)
        return (await self._store.rescale_summary(job_id)).durations_ms

    # -- cluster

    def task_managers(self) -> Sequence[TaskManager]:
        total, available = host_memory_bytes()
        return [
            TaskManager(
                id=HOST_TASK_MANAGER,
                host="localhost",
                slots=self._pool.total,
                free_slots=self._pool.free,
                since_ms=self._started_ms,
                cpu_cores=os.cpu_count() or 1,
                memory_bytes=total,
                free_memory_bytes=available,
            )
        ]

    async def ready(self) -> list[str]:
        try:
            await self._store.ping()
        except StoreError as error:
            return [str(error)]
        return []

    # -- drivers

    async def driver_register(
        self, job_id: str, attempt: int, secret: str, epoch: int, registration: Registration
    ) -> Orders:
        job = self._of_driver(job_id, attempt, secret, epoch)
        log.info(
            "driver registered",
            job=job_id,
            attempt=attempt,
            pid=registration.pid,
            spark=registration.spark_version,
        )
        return job.orders()

    async def driver_orders(
        self, job_id: str, attempt: int, secret: str, epoch: int, *, plan: int, stop: str, wait_ms: int
    ) -> Orders:
        deadline = time.monotonic() + min(wait_ms, _MAX_WAIT_MS) / 1000
        while True:
            job = self._of_driver(job_id, attempt, secret, epoch)
            orders = job.orders()
            left_ms = int((deadline - time.monotonic()) * 1000)
            if orders.plan_version != plan or orders.stop != stop or left_ms <= 0:
                return orders
            await job.bell.wait(left_ms)

    async def driver_reports(
        self, job_id: str, attempt: int, secret: str, epoch: int, reports: Sequence[Report]
    ) -> int:
        return await self._of_driver(job_id, attempt, secret, epoch).take_down(attempt, list(reports))

    # -- inside

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
            pool=self._pool,
            places=self._places,
            submitted_ms=submitted_ms,
            submitted_by=submitted_by,
            on_grants=self._on_grants,
            on_ended=self._on_ended,
            on_lost=self._on_lost,
            validate_states=self._validate,
        )

    def _running(self, job_id: str, refusal: str) -> Job:
        view = self.job(job_id)
        job = self._jobs.get(job_id)
        if job is None or view.status.is_globally_terminal:
            raise StateConflict(
                f"Job {job_id} has reached the terminal state {view.status.value}: {refusal}."
            )
        return job

    def _of_driver(self, job_id: str, attempt: int, secret: str, epoch: int) -> Job:
        if self._closing:
            raise Unavailable("This control plane is stopping.")
        job = self._jobs.get(job_id)
        if job is None or not job.attempts.accepts(attempt, secret):
            raise Fenced(f"Attempt {attempt} of job {job_id} is over, or the secret is not the attempt's.")
        if epoch > job.writer.epoch:
            raise Unavailable(f"A newer control plane owns job {job_id}.")
        return job

    def _on_grants(self, job_ids: set[str]) -> None:
        for job_id in job_ids:
            job = self._jobs.get(job_id)
            if job is not None:
                job.slots_changed()

    def _on_ended(self, job_id: str) -> None:
        job = self._jobs[job_id]
        self._ended[job_id] = job.view()

    def _on_lost(self, job_id: str) -> None:
        job = self._jobs.pop(job_id, None)
        if job is not None:
            job.close()


def write_artifacts(directory: Path, artifacts: Mapping[str, bytes]) -> None:
    """Lay out a job's files for its drivers. The database keeps the originals."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in artifacts.items():
        (directory / name).write_bytes(content)
