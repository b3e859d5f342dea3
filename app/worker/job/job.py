"""One job in this control plane: its worker, its attempts, its last reports. It performs the effects of the
core.
"""

from __future__ import annotations

import asyncio
import heapq
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from app.load.reported import Load
from app.model.environment import Runtime
from app.model.graphdoc import to_document
from app.model.javaoptions import jvm_options
from app.model.protocol import DriverSpec, Orders, Report
from app.scheduler.adaptive import effects, local_failover
from app.scheduler.adaptive.draft import status_of
from app.scheduler.adaptive.events import AttemptMisplaced, Event
from app.scheduler.adaptive.record_figures import change_began_ms
from app.scheduler.adaptive.slot_declaration import may_release_otherwise
from app.scheduler.adaptive.state import Canceling, Executing, Failing, Finished, JobState
from app.store.writes import AddEvents, Write
from app.worker.clock import JobClock
from app.worker.job.attempts import Attempts
from app.worker.job.bell import Bell
from app.worker.job.building import Building
from app.worker.job.drivers import event_of, query_started, with_time_for_executors
from app.worker.job.executors_seen import ExecutorsSeen, noted
from app.worker.job.files import make_working_dir
from app.worker.job.mailbox import EventSource
from app.worker.job.orders import orders_for
from app.worker.job.own_checkpoints import refuse_checkpoint
from app.worker.job.pace import PaceMeter
from app.worker.job.persistence import JobWriter, ended_ms, latest_ms
from app.worker.job.worker import JobWorker
from app.worker.refusals import Unavailable
from app.worker.views import JobView

if TYPE_CHECKING:
    from app.worker.ownership.recovery import JobKeeper

log = structlog.get_logger()

_TIDY_UP_S = 10.0
# Each of them has had a driver, which looked for those before it.
_ENDED_JOBS_TOLD = 100


class Job:
    """Ties the worker of a job to the cluster. Everything here runs on the event loop."""

    def __init__(
        self,
        state: JobState,
        keeper: JobKeeper,
        epoch: int,
        state_seq: int,
        submitted_ms: int,
        submitted_by: str | None,
    ) -> None:
        """``epoch``: of the lease. ``state_seq``: the number of ``state`` in the database."""
        self.submitted_ms, self.submitted_by = submitted_ms, submitted_by
        self.region_progress: dict[int, Report] = {}
        self.executors: ExecutorsSeen | None = None
        self.bell = Bell()
        self._keeper, self._places = keeper, keeper.places
        self.silence = keeper.places.silence
        self.clock = JobClock(keeper.clock, latest_ms(state))
        self.writer = JobWriter(
            keeper.store,
            self.clock,
            state.job_id,
            epoch,
            state_seq=state_seq,
            is_sure=keeper.lease_certainty.is_sure,
        )
        self.load = Load(self.clock.now_ms())
        self._meter = PaceMeter()
        # (attempt, number): up to there its reports are in the mailbox or behind it.
        self.acknowledged = (0, 0)
        self._has_called = False
        self._misplaced: AttemptMisplaced | None = None
        self._taking = asyncio.Lock()
        state = with_time_for_executors(state, self._places.cluster)
        self.worker = JobWorker(state, self)
        self.attempts = Attempts(self, keeper.host)
        self.building = Building(self, keeper.host, keeper.places)

    @property
    def state(self) -> JobState:
        return self.worker.state

    @property
    def job_id(self) -> str:
        return self.worker.job_id

    @property
    def runs_on(self) -> str:
        return self._places.runs_on

    @property
    def java_options(self) -> tuple[str, ...]:
        """Settings of the job that only a new JVM can take; a job that has any never gets a warm driver."""
        return jvm_options(self.state.graph.config, self.state.graph.artifacts, str(self._artifacts_dir))

    @property
    def runtime(self) -> Runtime | None:
        """What its drivers run in; None: in the environment of the server."""
        return self.state.graph.runtime.with_artifacts(str(self._artifacts_dir))

    @property
    def _artifacts_dir(self) -> Path:
        return self._places.artifacts_dir(self.job_id, self.state.versions.current)

    def make_working_dir(self) -> Path:
        """The working directory of its drivers."""
        working_dir = self._places.working_dir(self.job_id)
        make_working_dir(working_dir)
        return working_dir

    @property
    def address_file(self) -> Path:
        """Where its drivers find whom to call."""
        return self._places.address_of(self.job_id)

    def attempt_dir(self, attempt: int) -> Path:
        return self._places.attempt_dir(self.job_id, attempt)

    def lost(self) -> None:
        """Another control plane owns the job. Its worker is closed."""
        self._keeper.lose(self.job_id)

    def diverged(self) -> None:
        """The database has another state. The worker is closed."""
        self._keeper.diverged(self.job_id)

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is going on that another control plane would have to find out about first."""
        state = self.state
        return isinstance(state.phase, Executing) and self.attempts.is_settled and not state.versions.builds

    def view(self) -> JobView:
        state = self.state
        return JobView(
            state=state,
            status=status_of(state),
            submitted_ms=self.submitted_ms,
            ended_ms=ended_ms(state),
            submitted_by=self.submitted_by,
            epoch=self.writer.epoch,
            driver_pid=self.attempts.driver_pid,
            load=self.load,
            region_progress=self.region_progress,
            executors=self.executors,
            spark_ui=self.attempts.spark_ui,
            ahead_ms=self.clock.ahead_ms,
        )

    def orders(self) -> Orders:
        return orders_for(self.state, self.writer.epoch)

    def deliver(self, source: EventSource, /, *rows: Write) -> None:
        self.worker.deliver(source, *rows)

    def hears(self, attempt: int, secret: str) -> bool:
        """Whether a caller is the driver of the attempt that is listened to."""
        heard = self.attempts.accepts(attempt, secret)
        if heard and not self._has_called:
            self._has_called = True
            self.worker.deliver(local_failover.event_of_first_call)
        return heard

    def resume_reports(self, attempt: int, number: int) -> None:
        """Reports of ``attempt`` up to ``number`` were taken down by an earlier control plane."""
        self.acknowledged = (attempt, number)

    async def take_down(self, attempt: int, reports: list[Report]) -> int:
        """Take reports of the live attempt; the number up to which they, and all that follows from them, are durable.

        Numbers that were seen are skipped: the driver repeats what it has no answer for.

        Raises:
            Unavailable: they are not durable yet; the driver is to send them again.
        """
        async with self._taking:
            self._must_be_at(attempt)
            if attempt != self.acknowledged[0]:
                self.acknowledged = (attempt, 0)
            newest_ms = max((report.at_ms for report in reports), default=0)
            for report in reports:
                if report.seq > self.acknowledged[1]:
                    await self._take(attempt, report, newest_ms)
            number = self.acknowledged[1]
        # An acknowledged report is not sent again, also one that was taken down by a call that got no answer.
        await self.worker.settle()
        return number

    async def _take(self, attempt: int, report: Report, newest_ms: int) -> None:
        try:
            await self.attempts.keep_last_word(report)
        except OSError as error:
            raise Unavailable(f"A report could not be kept: {error.strerror}. Send it again.") from error
        self._must_be_at(attempt)
        now_ms = self.clock.now_ms()
        self.executors = noted(self.executors, attempt, report, now_ms)
        self.load.note(report, attempt, self.state.graph, now_ms, newest_ms)
        if report.type == "batch":
            self._meter.note(report)
            jobs = len(self._keeper.jobs)
            told = self._keeper.observers.tell(lambda each: each.batch_reported(self, attempt, report, jobs))
            if events := tuple(event for event in told if event is not None):
                # With the report's acknowledgement, so that they cost no transaction of their own.
                self.worker.deliver(lambda _: None, AddEvents(events))
        elif report.type == "region-progress" and self._is_current_run(report):
            self.region_progress = {**self.region_progress, report.region: report}
        self.attempts.on_report(report)
        if report.type == "query-started":
            refusal = refuse_checkpoint(self.state, report.planned, self._keeper.jobs.values(), self._places)
            self.worker.deliver(lambda state: query_started(state, report, attempt, refusal))
            # Reports that follow are about its vertices.
            await self.worker.settle()
        elif (event := event_of(report, attempt, self._meter)) is not None:
            self.worker.deliver(event)
        self.acknowledged = (attempt, report.seq)

    def _is_current_run(self, report: Report) -> bool:
        """Whether it is of the last run of its region. A BATCH program is one region, and each attempt a run of it."""
        if self.state.graph.is_batch_program:
            return (report.region, report.run) == (0, self.state.attempt)
        regions = self.state.batch.regions if self.state.batch is not None else ()
        return 0 <= report.region < len(regions) and regions[report.region].run == report.run

    def _must_be_at(self, attempt: int) -> None:
        """A report may have waited until another attempt began: it must not count for that attempt."""
        current = self.attempts.current
        if current is None or current.attempt != attempt:
            raise Unavailable(f"Attempt {attempt} ended meanwhile.")

    def close(self) -> None:
        """Let go of the job without touching its driver."""
        self.worker.close()
        self.attempts.cancel()
        self.building.cancel()
        self.bell.ring()

    # -- effects

    def perform(self, effect: effects.Effect) -> None:
        match effect:
            case effects.DeclareResources():
                # What the state says now: the job may have gone on, or ended, in the same transaction.
                state = self.state
                if not isinstance(state.phase, Finished):
                    self._keeper.broker.declare(state)
            case effects.ReleaseSlots():
                held = self.state.slot_ids
                surplus = [slot_id for slot_id in effect.slot_ids if slot_id not in held]
                self._keeper.broker.release(self.job_id, surplus)
            case effects.StartAttempt():
                self.attempts.start(effect)
            case effects.SendPlan() | effects.RestartQuery():
                self.bell.ring()
            case effects.StopAttempt():
                self.attempts.stop(effect)
                self.bell.ring()
            case effects.JobTerminated():
                self._drop_results()
                self._keeper.broker.forget(self.job_id)
                self.attempts.release()
                self.load.end()
                self._keeper.job_ended(self.job_id)

    def _drop_results(self) -> None:
        """Remove the results of a BATCH job that is over; the housekeeping removes what is left."""
        if self.state.graph.runs_by_regions:
            asyncio.get_running_loop().run_in_executor(None, self._places.drop_results, self.job_id)

    def tidy_up_s(self) -> float:
        """How long a driver may take, before it is killed, to remove results that only it can remove."""
        state = self.state
        ends = isinstance(state.phase, Canceling | Failing) and state.batch is not None
        return 0.0 if self._places.are_results_local or not ends else _TIDY_UP_S

    async def cleared(self) -> None:
        """Returns when the executors of the earlier driver have ended."""
        if self._places.cluster is not None:
            await self._places.cluster.cleared(self.job_id)

    def changed(self, before: JobState, after: JobState) -> None:
        """``after`` is durable. It may be ``before``: what the job was told came to nothing."""
        self.building.settle(after)
        if not isinstance(after.phase, Finished):
            self._keeper.broker.note_held(after)
        if len(after.slots) != len(before.slots):
            self.bell.ring()
        if may_release_otherwise(before, after) and not isinstance(after.phase, Finished):
            self._keeper.broker.note_releasable(after)
        if after.phase_version != before.phase_version:
            self.bell.ring()
            if isinstance(after.phase, Executing):
                self._keeper.host.refill()
                self._move_soon()

    def slots_changed(self) -> None:
        """The cluster grants this job other slots than before."""
        self._move_soon()
        self.worker.deliver(self._granted)

    def move(self, event: AttemptMisplaced) -> None:
        """The adopted driver runs on another cluster than jobs do now: it is moved when that cluster is reachable."""
        self._misplaced = event
        self._move_soon()

    def _move_soon(self) -> None:
        if self._misplaced is not None:
            self.worker.deliver(self._moves)

    def _moves(self, state: JobState) -> Event | None:
        event = self._misplaced
        if event is None or event.attempt != state.attempt or self._keeper.broker.cluster_unreachable:
            return None
        return event

    def _granted(self, state: JobState) -> Event | None:
        """What is granted when the worker gets to it: slots that were given back since must not come again."""
        return None if isinstance(state.phase, Finished) else self._keeper.broker.granted(self.job_id)

    def make_spec(self, effect: effects.StartAttempt, secret: str) -> DriverSpec:
        state, places = self.state, self._places
        # It may have been made again since.
        plan = state.coming_plan or effect.plan
        # A BATCH job has as many tasks as the data ask for, so its slots are what limits those that run at once.
        batch = state.graph.runs_by_regions
        slots = plan.slot_count if batch else places.slots
        cluster = places.cluster
        # Where there are others, a job may have the slots of all of them.
        if not batch and (cluster is not None or places.url is not None):
            there_are = self._keeper.broker.pool.total
            slots = max(0 if cluster else places.slots, there_are, plan.slot_count)
        # Those of slots that come and go are not waited for.
        held = max(len(state.supply.stayed or state.slots), plan.slot_count)
        name = state.graph.name
        return DriverSpec(
            job_id=state.job_id,
            job_name=name
            if cluster is None
            else cluster.application_name(name, state.job_id, effect.attempt),
            attempt=effect.attempt,
            epoch=self.writer.epoch,
            secret=secret,
            address_file=str(self.address_file),
            home=places.home,
            graph=to_document(state.graph),
            plan_version=plan.version,
            parallelism=dict(plan.parallelism),
            master=f"local[{slots}]" if cluster is None else cluster.master,
            slots=slots,
            held_slots=held,
            checkpoint_dir=str(places.checkpoint_dir(state.job_id)),
            work_dir=str(self.attempt_dir(effect.attempt)),
            artifacts_dir=str(self._artifacts_dir),
            spark_conf={key: value for key, value in state.graph.config if key.startswith("spark.")},
            batch_timeout_ms=state.options.batch_timeout_ms,
            batch_interval_ms=state.options.batch_interval_ms,
            batch_target_ms=state.options.batch_target_ms,
            rescale_max_wait_ms=state.options.rescale_max_wait_ms,
            batch_interruptible=state.options.batch_interruptible,
            spread_sources=state.options.source_spread,
            available_now=state.options.batch_trigger == "available-now",
            measure_load=state.options.measure_load,
            executors=0 if cluster is None else held,
            executor_conf=dict(cluster.executor_conf(state.job_id, effect.attempt)) if cluster else {},
            results_dir=places.results_dir(state.job_id) if batch else "",
            repartition=state.partitions.repartition is not None,
            ended_results=self._results_of_ended() if batch else (),
            final_exceptions=state.options.final_exceptions,
            recoverable_exceptions=state.options.recoverable_exceptions,
            local_failover=not batch and state.options.local_timeout_ms > 0,
            private=tuple(map(str, places.private)),
            since_ms=change_began_ms(state),
            working_dir=str(places.working_dir(state.job_id)),
            on_trial=state.versions.is_on_trial,
            repartition_timeout_ms=state.options.repartition_timeout_ms,
        )

    def _results_of_ended(self) -> tuple[str, ...]:
        """Where results may have been left by drivers that were killed at the end of their jobs."""
        if self._places.are_results_local:
            return ()
        ended = [
            (view.ended_ms or 0, job_id)
            for job_id, view in self._keeper.ended.items()
            if view.state.graph.runs_by_regions and view.status.is_globally_terminal
        ]
        return tuple(self._places.results_dir(one) for _, one in heapq.nlargest(_ENDED_JOBS_TOLD, ended))
