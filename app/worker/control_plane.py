"""The control plane: all jobs of this process, as the API sees them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import structlog

from app.cluster.ports import DriverHost, Offer
from app.cluster.slot_pool import HOLDING_MS
from app.model.protocol import Acknowledgement, Orders, Registration, Report
from app.model.requirements import Bounds, OnTimeout
from app.model.rescale import RescaleRecord, TerminalState, TriggerCause
from app.model.scaling_policy import ScalingPolicy
from app.model.state_partitions import Numbers
from app.scheduler.adaptive.draft import status_of
from app.scheduler.adaptive.events import CancelRequested
from app.scheduler.adaptive.state import JobState, Stop
from app.store.errors import StoreError
from app.store.members import Member
from app.store.queries import RescalePage
from app.store.store import Store
from app.worker.clock import Clock
from app.worker.housekeeping.forgetting import Forgetter
from app.worker.job.job import Job
from app.worker.job.mailbox import RequestDecision, first_answer, identity_of
from app.worker.job.orders import await_orders
from app.worker.job.places import JobPlaces
from app.worker.observer import Observer, Observers
from app.worker.ownership.control_planes import ControlPlanes
from app.worker.ownership.leases import Ownership
from app.worker.ownership.recovery import JobKeeper
from app.worker.ownership.unreadable import UnreadableJob
from app.worker.refusals import (
    Fenced,
    NotServed,
    StateConflict,
    Unavailable,
    UnknownOperation,
    UnknownRescale,
)
from app.worker.requests.declared import (
    ScalingPolicyUpdate,
    SlotShareUpdate,
    decide_policy,
    decide_share,
    refuse_ended,
    refuse_stale,
    with_policy,
)
from app.worker.requests.driver_logs import DriverLogs
from app.worker.requests.dry_run import dry_run, short_of_slots
from app.worker.requests.event_feed import EventFeed
from app.worker.requests.executor_logs import ExecutorLogs
from app.worker.requests.explanation import explanation
from app.worker.requests.replacing import Replacing
from app.worker.requests.requirements import (
    RescaleCancellation,
    deadline_of,
    decide_cancellation,
    decide_update,
    not_there_yet,
    refuse_early,
    resolve_bounds,
    resolve_partitions,
)
from app.worker.requests.stop import decide_stop, savepoint_id, savepoint_of
from app.worker.requests.submission import Submission
from app.worker.retrying import reading
from app.worker.slots.doorbell import Bells
from app.worker.slots.task_managers import Shown, members_of_host, pool_of
from app.worker.views import (
    Census,
    DryRun,
    Explanation,
    JobView,
    RequirementsResult,
    RequirementsUpdate,
    Supply,
    TaskManager,
    Update,
)

log = structlog.get_logger()


class ControlPlane:
    """Every method that answers a request raises one of `app.worker.refusals`, or a subclass of one, when it refuses,
    and then changed nothing."""

    def __init__(
        self,
        store: Store,
        *,
        host: DriverHost,
        places: JobPlaces,
        clock: Clock,
        new_id: Callable[[], str],
        offer: Offer | None = None,
        shown: Shown | None = None,
        slot_holding_ms: int = HOLDING_MS,
        observers: Sequence[Observer] = (),
    ) -> None:
        """``offer``: what a cluster offers now, ``shown`` its TaskManagers; without them this host has all slots."""
        self._observers = Observers(observers)
        tell = self._observers.tell
        store.tell_commit = lambda unit, seconds: tell(lambda each: each.committed(unit, seconds))
        store.tell_failure = lambda error: tell(lambda each: each.not_committed(error))
        self.store = store
        self._host, self._places, self.working_dir = host, places, places.working_dir
        self.clock = clock
        self._new_id = new_id
        self._offer, self._slot_holding_ms = offer, slot_holding_ms
        pool = pool_of({places.task_manager: places.slots}, offer, holding_ms=slot_holding_ms)
        self._shown = shown or members_of_host(clock.now_ms())
        self._keeper = JobKeeper(
            store,
            host=host,
            pool=pool,
            places=places,
            clock=clock,
            observers=self._observers,
        )
        self.submission = Submission(self._keeper, new_id)
        self.submit = self.submission.submit
        self.logs = DriverLogs(store, lambda: self._closing)
        self.executor_logs = ExecutorLogs(store, places.cluster)
        self.replacing = Replacing(self._keeper, self.submission)
        self._forgetter = Forgetter(self._keeper)
        self.events = EventFeed(store)
        self._closing = False

    # -- life

    async def start(
        self,
        *,
        renew_every_s: float | None = None,
        member: Member | None = None,
        is_dead: Callable[[Member], bool] = lambda _: False,
        bells: Bells | None = None,
    ) -> ControlPlanes:
        """Take up every job that is not over: adopt live drivers, go on with what was decided but not done.

        ``renew_every_s``: how often leases are renewed; None where they cannot expire (one process, SQLite). ``member``
        and ``is_dead`` as `Ownership` has them; ``bells`` is how members tell each other of slots.
        """
        self._keeper.unreadable.has_others = member is not None
        if member is not None:
            self._keeper.share_slots(member, bells, self._offer, self._slot_holding_ms)
        await self._forgetter.finish()
        ownership = Ownership(self._keeper, member=member, is_dead=is_dead)
        await ownership.start(renew_every_s=renew_every_s)
        return ControlPlanes(self._keeper, ownership)

    async def close(self) -> None:
        """Stop working on every job; drivers keep running. Waiting drivers are sent away. Harmless when repeated."""
        self._closing = True
        self.events.close()
        await self.submission.syntax.close()
        await self._keeper.close()

    def take_offer(self, offer: Offer) -> None:
        """What a cluster offers from now on."""
        self._keeper.broker.take_offer(offer)

    def knows(self, job_id: str) -> bool:
        """Whether the job exists, at any owner."""
        return self._keeper.exists(job_id) or self._keeper.broker.pool.knows(job_id)

    # -- jobs

    def jobs(self) -> Sequence[JobView]:
        """Every job that is remembered, newest first."""
        return self._keeper.views()

    def job(self, job_id: str) -> JobView:
        return self._keeper.find(job_id)

    def census(self) -> Census:
        """What this control plane owns and has counted. It reads nothing from the database."""
        keeper, pool = self._keeper, self._keeper.broker.pool
        jobs = sorted(keeper.jobs.values(), key=lambda job: (job.submitted_ms, job.job_id))
        return Census(
            views=(job.view() for job in jobs),
            unreadable=len(keeper.unreadable.all()),
            slots=pool.total,
            free_slots=pool.free,
            warm_drivers=self._host.warm_ready,
            members=1 + len(keeper.peers),
            is_sure=keeper.is_sure(),
            transactions=self.store.transactions,
        )

    def unreadable_jobs(self) -> Sequence[UnreadableJob]:
        """Jobs that are stored and cannot be read here, newest first. They are not among `jobs`."""
        return self._keeper.unreadable.all()

    async def update_requirements(self, job_id: str, update: RequirementsUpdate) -> RequirementsResult:
        """Durable when it returns. Equal bounds change nothing; a known idempotency key repeats its answer."""
        job = self._keeper.jobs.get(job_id)
        ahead_ms = 0 if job is None else job.clock.ahead_ms
        now_ms = self.clock.now_ms() + ahead_ms
        decide = self._observers.decision(
            job_id, lambda state: decide_update(state, update, now_ms, ahead_ms)
        )
        return await self._put(job_id, update, decide)

    def short_of_slots(self, job_id: str) -> str | None:
        """The sentence that its lower bounds need more slots than there are; None if they do not."""
        job = self._keeper.jobs.get(job_id)
        return None if job is None else short_of_slots(job.state, self._keeper.broker.pool)

    async def cancel_rescale(self, job_id: str, asked: RescaleCancellation) -> RequirementsResult:
        """The bounds before those that the rescale follows from come back. StateConflict if it has begun or ended."""
        record = await self.rescale(job_id, asked.uuid)
        return await self._put(job_id, asked, lambda state: decide_cancellation(state, record, asked))

    async def update_slot_share(self, job_id: str, update: SlotShareUpdate) -> int:
        """Durable when it returns the version in force. What is in force already changes nothing."""
        now_ms = self._now_of(job_id)
        return (await self._put(job_id, update, lambda state: decide_share(state, update, now_ms))).version

    async def update_scaling_policy(self, job_id: str, update: ScalingPolicyUpdate) -> int:
        """As `update_slot_share`."""
        now_ms = self._now_of(job_id)
        return (await self._put(job_id, update, lambda state: decide_policy(state, update, now_ms))).version

    async def dry_run_policy(self, job_id: str, update: ScalingPolicyUpdate) -> DryRun:
        await reading(self._keeper.broker.refresh())
        state = self._running(job_id, update.refusal).state
        changed, errors = with_policy(state, update, self._now_of(job_id))
        bounds = state.requirements.as_dict()
        return self._dry_run(changed, bounds, not_there_yet(state), errors, before=state)

    async def scaling_policies(
        self, job_id: str, *, limit: int, after: int | None = None
    ) -> Sequence[ScalingPolicy]:
        """What was set, newest first; ``after``: only versions below it."""
        self.job(job_id)
        return await reading(self.store.scaling_policies(job_id, limit, after))

    async def _put(
        self, job_id: str, update: Update, decide: Callable[[JobState], RequestDecision]
    ) -> RequirementsResult:
        job, identity = self._keeper.jobs.get(job_id), identity_of(update)
        if identity is not None and (job is None or not job.worker.knows_answer(identity.key)):
            stored = await reading(self.store.answer(job_id, identity.key))
            if stored is not None:
                request_hash, version, changed = stored
                return first_answer(identity, (request_hash, RequirementsResult(version, changed)))
        worker = self._running(job_id, update.refusal).worker
        result: RequirementsResult = await worker.ask(decide, identity)
        return result

    async def dry_run(self, job_id: str, update: RequirementsUpdate) -> DryRun:
        await reading(self._keeper.broker.refresh())
        state = self._running(job_id, update.refusal).state
        refuse_early(state)
        refuse_stale(update, state.requirements.version)
        bounds, errors = resolve_bounds(state, update.bounds, self._now_of(job_id))
        numbers, more = resolve_partitions(state, bounds, update.state_partitions)
        deadline = deadline_of(state, update.deadline, self._now_of(job_id), self.job(job_id).ahead_ms)
        on_timeout = None if deadline is None else deadline.on_timeout
        return self._dry_run(state, bounds, numbers, [*errors, *more], on_timeout, retry=update.retry)

    def _dry_run(
        self,
        state: JobState,
        bounds: dict[str, Bounds],
        numbers: Numbers,
        errors: Sequence[str],
        on_timeout: OnTimeout | None = None,
        *,
        retry: bool = False,
        before: JobState | None = None,
    ) -> DryRun:
        """With the slots that there are now."""
        return dry_run(
            *(state, bounds, numbers, errors),
            reach=lambda *asked: self._keeper.broker.pool.attainable_slots(state.job_id, *asked),
            retry=retry,
            supply=self._supply(),
            on_timeout=on_timeout,
            before=before,
        )

    async def cancel(self, job_id: str, *, requested_by: str | None = None) -> None:
        """Accepted; a job that is canceled already stays so. FINISHED or FAILED: StateConflict."""
        view = self.job(job_id)
        if view.status.is_globally_terminal:
            if view.status.value == "CANCELED":
                return
            raise StateConflict(
                f"Job {job_id} cannot be canceled: it has already reached the terminal state {view.status.value}."
            )
        await self._running(job_id, "it cannot be canceled").worker.ask(
            lambda state: RequestDecision(CancelRequested(requested_by))
        )

    async def stop(
        self, job_id: str, *, trigger_id: str | None = None, requested_by: str | None = None
    ) -> str:
        """Start a stop at a batch boundary and return its trigger id."""
        stop = self.job(job_id).state.stop
        if stop is not None and stop.trigger_id == trigger_id:
            # A repeat, also when the job has ended since. What is shown is durable.
            return stop.trigger_id
        job = self._running(job_id, "it cannot be stopped")
        trigger = trigger_id or self._new_id()
        answer: str = await job.worker.ask(lambda state: decide_stop(state, trigger, requested_by))
        return answer

    def savepoint(self, job_id: str) -> str:
        """The trigger id of a savepoint, for `stop_operation`: the job runs on."""
        job = self._running(job_id, "no savepoint of it can be made")
        return savepoint_of(job.state, self._places.checkpoint_dir(job_id)).trigger_id

    def stop_operation(self, job_id: str, trigger_id: str) -> Stop:
        state = self.job(job_id).state
        if trigger_id == savepoint_id(job_id):
            return savepoint_of(state, self._places.checkpoint_dir(job_id))
        stop = state.stop
        if stop is None or stop.trigger_id != trigger_id:
            raise UnknownOperation(
                f"There is no stop operation with trigger id {trigger_id} for job {job_id}."
            )
        return stop

    async def forget(self, job_id: str) -> None:
        """Delete a terminated job with its history; StateConflict while it is not terminated."""
        await self._forgetter.forget(job_id)

    def explanation(self, job_id: str) -> Explanation:
        job = self._keeper.jobs.get(job_id)
        view = self.job(job_id)
        return explanation(
            view,
            now_ms=self.clock.now_ms() + view.ahead_ms,
            supply=self._supply(),
            allotment=self._keeper.broker.allotment(job_id),
            granted=len(self._keeper.broker.granted(job_id).slots),
            last_batch_ms=job.load.last_batch_ms if job else None,
            slow_start=self._host.slow_start,
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
        """Records newest first (an open one included); ``after``: only records numbered below it."""
        self.job(job_id)
        return await reading(self.store.rescales(job_id, RescalePage(limit, after, cause, state)))

    async def rescale(self, job_id: str, uuid: str) -> RescaleRecord:
        self.job(job_id)
        record = await reading(self.store.rescale(job_id, uuid))
        if record is None:
            raise UnknownRescale(f"Rescale {uuid} of job {job_id} was not found.")
        return record

    async def rescale_durations(self, job_id: str) -> Mapping[TerminalState, Sequence[int]]:
        """Durations in ms of all retained terminal records, oldest first."""
        self.job(job_id)
        return await reading(self.store.rescale_durations(job_id))

    # -- cluster

    def task_managers(self) -> Sequence[TaskManager]:
        return self._shown(self._keeper.broker.pool)

    def warnings(self) -> list[str]:
        """What is not well with jobs and does not keep this control plane from serving, in sentences."""
        return self._keeper.unreadable.warnings()

    async def ready(self) -> list[str]:
        """Why this control plane cannot serve, in sentences; empty when it can."""
        try:
            await self.store.ping()
            await self.store.check_writes()
        except StoreError as error:
            return [str(error)]
        return []

    # -- drivers

    async def admit_driver(self, job_id: str, attempt: int, secret: str, epoch: int) -> None:
        """Refuse a caller that is not the driver of the attempt, before its body is read."""
        await self._of_driver(job_id, attempt, secret, epoch)

    async def driver_register(
        self, job_id: str, attempt: int, secret: str, epoch: int, registration: Registration
    ) -> Orders:
        job = await self._of_driver(job_id, attempt, secret, epoch)
        log.info(
            "driver registered",
            job=job_id,
            attempt=attempt,
            pid=registration.pid,
            spark=registration.spark_version,
        )
        job.attempts.registered(attempt, registration)
        orders = job.orders()
        self._observers.tell(lambda each: each.ordered(job_id, orders.plan_version))
        return orders

    async def driver_orders(
        self,
        job_id: str,
        attempt: int,
        secret: str,
        epoch: int,
        *,
        plan: int,
        stop: str,
        wait_ms: int,
        slots: int | None = None,
        restarts: Mapping[str, int] | None = None,
    ) -> Orders:
        """Once the orders differ from ``plan``, ``stop``, ``slots`` and ``restarts``, or after ``wait_ms``."""
        (await self._of_driver(job_id, attempt, secret, epoch)).attempts.asked_for_orders()
        if (silence := self._places.silence) is not None:
            wait_ms = min(wait_ms, silence.longest_wait_ms)
        known = Orders(plan, {}, stop, slots=slots or 0, restarts=dict(restarts or {}))  # type: ignore[arg-type]
        orders = await await_orders(
            lambda: self._of_driver(job_id, attempt, secret, epoch),
            attempt,
            known,
            any_slots=slots is None,
            wait_ms=wait_ms,
        )
        self._observers.tell(lambda each: each.ordered(job_id, orders.plan_version))
        return orders

    async def driver_reports(
        self, job_id: str, attempt: int, secret: str, epoch: int, reports: Sequence[Report]
    ) -> Acknowledgement:
        """The number up to which reports are taken down, and by whom."""
        job = await self._of_driver(job_id, attempt, secret, epoch)
        return Acknowledgement(await job.take_down(attempt, list(reports)), job.writer.epoch)

    # -- inside

    def _supply(self) -> Supply:
        """The slots that there are, of this host or of the cluster."""
        pool, cluster = self._keeper.broker.pool, self._places.cluster
        master = None if cluster is None else cluster.master
        return Supply(pool.total, pool.idle, master, pool.cluster_unreachable, pool.why)

    def _now_of(self, job_id: str) -> int:
        return self.clock.now_ms() + self.job(job_id).ahead_ms

    def _running(self, job_id: str, refusal: str) -> Job:
        job = self._keeper.jobs.get(job_id)
        status = self.job(job_id).status if job is None else status_of(job.state)
        refuse_ended(job_id, status, refusal)
        if job is None:
            raise NotServed(job_id)
        return job

    async def _of_driver(self, job_id: str, attempt: int, secret: str, epoch: int) -> Job:
        """The job whose live attempt the caller is.

        Only a control plane that is sure may tell a driver to exit: not one that is stopping, nor one that was
        overtaken by another and does not know it yet, nor one that does not serve the job.
        """
        if self._closing:
            raise Unavailable("This control plane is stopping.")
        job = self._keeper.jobs.get(job_id)
        if job is None:
            stored = await reading(self.store.load_job(job_id))
            if stored is None or stored.summary.status.is_globally_terminal:
                raise Fenced(f"Job {job_id} is over.", self._places.home)
            raise Unavailable(f"Job {job_id} is not served by this control plane now.")
        if epoch > job.writer.epoch or not self._keeper.is_sure():
            raise Unavailable(f"A newer control plane owns job {job_id}, or may own it.")
        if not job.hears(attempt, secret):
            over = f"Attempt {attempt} of job {job_id} is over, or the secret is not the attempt's."
            raise Fenced(over, self._places.home)
        return job
