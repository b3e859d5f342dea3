"""What a streaming attempt does while its queries run: orders and plans, batches, failures, and the stop. How it begins
is in `app.driver.program.attempt`."""

from __future__ import annotations

import logging
import queue
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from app.driver.base_attempt import LAST_WORD_S, TOLD_TO_END, BaseAttempt, Ending, Terminate, epoch_ms
from app.driver.batch_watcher import told_of_batches
from app.driver.checkpoints import forget_old, note_committed
from app.driver.failover import END_S, LocalFailover
from app.driver.failures import Failure, Fenced, describe
from app.driver.load import LoadNews, spark_figures
from app.driver.plans import Plans, PlanSteps
from app.driver.program.asked import Shared
from app.driver.progress import Committed, Ended, measured
from app.driver.session import is_stopped
from app.driver.started_query import StartedQuery
from app.driver.state_places import StatePlaces
from app.model.analysis import Query, queries
from app.model.measured import KeptReason, LongBatch, VertexBatch
from app.model.protocol import Orders

log = logging.getLogger(__name__)

_TICK_S = 0.1


class Attempt(BaseAttempt):
    """Runs the queries of a streaming job."""

    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(*args, **fields)
        self._queries: list[StartedQuery] = []
        self._by_run: dict[str, StartedQuery] = {}
        self._reported_version = 0
        self._stop: Orders | Terminate | None = None
        self._past_first_batch: set[str] = set()
        self._tick_at = 0.0

    def _until_end(self) -> Ending:
        ending = self._start()
        while ending is None:
            ending = self._turn()
        return ending

    # -- start

    @abstractmethod
    def _start(self) -> Ending | None:
        """Until the attempt runs; its end, if that comes before."""

    def _take_up(self, session: SparkSession) -> None:
        """Connect to the control plane, and take up the plan of the assignment."""
        self._session = session
        self._keep_to_slots(session)
        client = self._connect(session)
        program = self._graph.vertices[0].id if self._graph.awaits_query else None
        self._plans = Plans(self.spec.plan_version, self.spec.parallelism, program)
        self._steps = PlanSteps(
            self._plans,
            self._executors,
            changed=self._plan_changed,
            settled=lambda: min((each.settled for each in self._queries), default=0),
        )
        figures = spark_figures(session.sparkContext, in_full=self.spec.measure_load)
        figures.begin()
        self._load = LoadNews(
            figures if self.spec.measure_load else None,
            client.report,
            idle=self._idle_queries,
            long_batches=self._long_batches,
        )
        at_work = None if self._executors is None else self._executors.at_work
        self._shared = Shared(
            plans=self._plans,
            lock_file=self._lock_file,
            may_commit=self._may_commit,
            limit_ms=self.spec.batch_timeout_ms,
            target_ms=self.spec.batch_target_ms,
            max_wait_ms=self.spec.rescale_max_wait_ms,
            interruptible=self.spec.batch_interruptible,
            spread_sources=self.spec.spread_sources,
            measure_load=self.spec.measure_load,
            between_batches=self._trim,
            # On one host all state is in this process.
            places=None if at_work is None else partial(StatePlaces, executors=at_work, board={}),
            since_ms=lambda: 0 if self._reported_version else self.spec.since_ms,
            epoch=lambda: client.epoch,
        )

    def _expect_failures(self, make: Callable[[Query], StartedQuery]) -> None:
        """From now on a query that fails, or is interrupted, can be restarted alone. ``make`` makes the new run."""

        def restart(failed: StartedQuery) -> StartedQuery:
            running = make(failed.query)
            running.follows(failed)
            try:
                running.start()
            except BaseException:
                running.close()
                raise
            self._by_run.pop(failed.run_id, None)
            self._by_run[running.run_id] = running
            self._queries[self._queries.index(failed)] = running
            return running

        self._restart = restart
        self._failover = LocalFailover(
            report=self._report, begun_version=self._begun_version, restart=restart
        )

    # -- the loop

    def _turn(self) -> Ending | None:
        try:
            message = self._inbox.get(timeout=_TICK_S)
        except queue.Empty:
            return self._tick()
        match message:
            case Exception():
                raise message
            case Orders():
                return self._on_orders(message)
            case Terminate():
                self._begin_stop(message)
            case Committed():
                self._on_committed(message)
            case Ended():
                self._on_ended(message)
            case _:
                return self._on_other(message)
        # By time too: with many queries there may always be another message.
        is_due = isinstance(message, Ended) or self._stop is not None or time.monotonic() >= self._tick_at
        return self._tick() if is_due else None

    def _on_ended(self, happening: Ended) -> None:
        if ended := self._by_run.get(happening.run_id):
            ended.ended()

    @abstractmethod
    def _on_other(self, message: object) -> Ending | None:
        """What is no order and nothing of Spark's."""

    def _on_orders(self, orders: Orders) -> Ending | None:
        if orders.stop == "kill":
            return Ending.DONE
        if orders.stop in ("boundary", "drain"):
            self._begin_stop(orders)
            return None
        self._failover.take_orders(orders.restarts)
        if self._host_slots is not None and orders.slots:
            self._host_slots.set(orders.slots)
        self._steps.order(orders)
        return None

    def _plan_changed(self) -> None:
        for running in self._queries:
            running.plan_changed()

    def _trim(self) -> None:
        """Between two batches of a query: executors that are too many can go, once no plan needs them."""
        if self._executors is not None and not self._steps.is_waiting:
            self._executors.trim()

    def _on_committed(self, happening: Committed) -> None:
        running = self._by_run.get(happening.run_id)
        if running is None:
            return
        now_ms = epoch_ms()
        happening = running.with_intake(happening)
        run, plan = running.committed(happening, now_ms)
        if running.query.key not in self._past_first_batch:
            self._past_first_batch.add(running.query.key)
            forget_old(running.checkpoint_dir)
            note_committed(self._checkpoint_dir / running.query.key)
        vertices: tuple[VertexBatch, ...] = ()
        if run is not None:
            read = running.batches.vertices
            known = (run, happening.input_rows, happening.sources, happening.states)
            vertices = measured("the work of vertices", lambda: read(*known), ())
        self._report_applied()
        self._report(
            type="batch",
            plan_version=plan.version,
            whole_plan=plan.whole and (run is None or run.state_is_even),
            query_id=running.query_id,
            run_id=happening.run_id,
            batch_id=happening.batch_id,
            started_ms=run.started_ms if run is not None else now_ms - happening.duration_ms,
            input_rows=happening.input_rows,
            output_rows=run.output_rows if run is not None else None,
            state_rows=happening.state_rows,
            backlog_rows=running.backlog,
            reprocessed=running.was_reprocessed(happening.batch_id),
            vertices=vertices,
            output_gap_ms=self._gap_so_far(now_ms),
            watermark_ms=happening.watermark_ms,
            phases_ms=happening.phases_ms,
            not_followed=dict(running.batches.stays_unfollowed),
            **self._news.known,
            **self._load.figures(),
        )
        self._note_well(running)

    def _gap_so_far(self, now_ms: int) -> int | None:
        """The longest pause that the plan on its way has made yet, in any query."""
        if self._plans.current.version <= self._reported_version:
            return None
        gaps = [each.gaps.so_far(now_ms) for each in self._queries]
        return max((gap for gap in gaps if gap is not None), default=None)

    def _note_well(self, running: StartedQuery) -> None:
        if self._failover.proven(running) and self._plans.current.version <= self._reported_version:
            # Its pause was that of a failure; the next change of plan has one of its own.
            running.gaps.forget()

    def _on_idle(self, running: StartedQuery) -> None:
        running.idle(epoch_ms())
        self._report_applied()
        self._note_well(running)

    def _report_applied(self) -> None:
        """Say once that a plan is in force in every query."""
        plan = self._plans.current
        version = plan.version
        behind = [each for each in self._queries if each.applied_version < version]
        if behind or version <= self._reported_version:
            return
        gaps = [gap for each in self._queries if (gap := each.gaps.take()) is not None]
        repeated = [
            each.reprocessed_records for each in self._queries if each.reprocessed_records is not None
        ]
        again = [one for each in self._runs if (one := each.take_again()) is not None]
        # A change in place reprocesses nothing, but for a batch that was interrupted for it.
        rows = sum(one.rows or 0 for one in again)
        first = self._reported_version == 0
        self._reported_version = version
        self._report(
            type="plan-applied",
            plan_version=version,
            output_gap_ms=max(gaps) if gaps else None,
            reprocessed_records=(sum(repeated) if repeated else None) if first else rows,
            interrupted=" ".join(one.sentence for one in again),
            not_followed={
                key: why
                for each in self._queries
                for key, why in each.batches.not_followed(plan.number).items()
            },
            **self._news.figures(),
        )

    def _tick(self) -> Ending | None:
        self._tick_at = time.monotonic() + _TICK_S
        if self._fenced:
            raise Fenced
        for running in self._queries:
            if running.waits_for_data:
                self._on_idle(running)
        if self._executors is not None:
            self._steps.turn()
            self._executors.check()
            self._news.turn()
            if not self._steps.is_waiting and all(
                each.gateway.running_batch is None for each in self._queries
            ):
                self._executors.trim_idle()
        self._load.turn(self._news.known)
        # Also while the job is being stopped: a batch that hangs would hold up the end for ever.
        for running in self._queries:
            if overdue := running.overdue():
                return self._fail(overdue)
        if self._stop is not None:
            return self._try_stop()
        if not self._steps.is_waiting:
            for running in self._queries:
                # One that was started again after a failure has to commit a batch first, and in time.
                if not self._failover.awaits(running):
                    running.interrupt_if_due()
        return self._look_at_ended()

    def _look_at_ended(self) -> Ending | None:
        for running in list(self._queries):
            if running.is_active or self._failover.holds(running):
                continue
            if running.is_interrupted:
                if (ending := self._run_again(running)) is not None:
                    return ending
                continue
            failure = running.failure()
            if failure is None:
                # It may end by itself: then it has nothing to do any more.
                self._failover.proven(running)
                self._on_well_ended(running)
            elif self._may_hold(failure):
                log.error("a query failed and is held: %s\n%s", failure.sentence, failure.stack)
                self._failover.hold(running, failure)
            else:
                return self._fail(failure)
        hanging = self._failover.turn()
        return None if hanging is None else self._fail(hanging)

    def _run_again(self, interrupted: StartedQuery) -> Ending | None:
        """Start a query again whose batch was interrupted, once nothing of it writes any more and Spark has told all
        of it."""
        is_late = interrupted.interrupted_s > END_S
        sink = interrupted.query.sink.name
        if not interrupted.is_gone():
            text = f"What an interrupted batch of {sink} had begun did not end within {END_S:.0f} s."
            return self._fail(Failure(text, "")) if is_late else None
        if not interrupted.is_silent and not is_late:
            return None
        try:
            self._restart(interrupted)
        except Fenced:
            raise
        except Exception as error:
            failed = replace(describe(error, vertex=sink), query_id=interrupted.query_id)
            return self._fail(replace(failed, batch_id=interrupted.committed_batches))
        log.info("the query of %s was interrupted, and runs again", sink)
        return None

    def _goes_on(self, running: StartedQuery) -> bool:
        """Whether it runs, or will again."""
        return running.is_active or running.is_interrupted or self._failover.holds(running)

    @abstractmethod
    def _on_well_ended(self, running: StartedQuery) -> None:
        """``running`` has ended as it may, while the job is not being stopped."""

    def _may_hold(self, failure: Failure) -> bool:
        """Whether the others can run on while the control plane decides what becomes of a query that failed."""
        several = self.spec.local_failover and len(queries(self._graph)) > 1
        return several and failure.recoverable and not is_stopped(self._session)

    # -- ends

    def _idle_queries(self) -> tuple[str, ...]:
        """Those that have nothing to do, by their keys."""
        return tuple(each.query.key for each in self._queries if each.is_idle)

    def _long_batches(self) -> tuple[LongBatch, ...]:
        def kept(running: StartedQuery) -> KeptReason:
            if self._steps.is_waiting:
                return "executors"
            return "restarted" if self._failover.awaits(running) else ""

        return told_of_batches((each.batch_watcher, kept(each)) for each in self._queries)

    @property
    @abstractmethod
    def _runs(self) -> Sequence[StartedQuery]:
        """The latest run of each query, of those too that have ended and are followed no more."""

    def _fail(self, failure: Failure, *, repartition_failed: bool = False) -> Ending:
        if not failure.query_id:
            # By this it is known whether the job has got further since it failed so before.
            committed = sum(each.committed_batches for each in self._runs)
            failure = replace(failure, batch_id=committed)
        return super()._fail(failure, repartition_failed=repartition_failed)

    def _begun_version(self) -> int:
        return max([self.spec.plan_version, *(each.gateway.begun_version for each in self._runs)])

    def _begin_stop(self, order: Orders | Terminate) -> None:
        if self._stop is not None:
            return
        self._stop = order
        for running in self._queries:
            running.stop_at_boundary()

    def _try_stop(self) -> Ending | None:
        draining = isinstance(self._stop, Orders) and self._stop.stop == "drain"
        # What is held has been told, and starts again with the next attempt. It cannot be drained.
        ended = [e for e in self._queries if not e.is_active and (draining or not self._failover.holds(e))]
        if failure := next((found for each in ended if (found := each.failure())), None):
            return self._fail(failure)
        if not self._failover.is_quiet:
            hanging = self._failover.hanging()
            return None if hanging is None else self._fail(hanging)
        if not all([each.try_stop() for each in self._queries]):
            return None
        if any(each.is_interrupted and not each.is_gone() for each in self._queries):
            return None
        if failure := self._why_failed():
            return self._fail(failure)
        if isinstance(self._stop, Terminate):
            return self._fail(TOLD_TO_END)
        assert self._client is not None
        if isinstance(self._stop, Orders) and self._stop.stop == "boundary" and self._can_be_followed():
            self._client.report(type="stopped", driver_alive=True)
            if self._client.flush(LAST_WORD_S):
                return Ending.PARKED
            # No acknowledgement, no next assignment: then this process is of no use.
        return self._last_word(type="stopped", drained=draining, location=self._location())

    @abstractmethod
    def _can_be_followed(self) -> bool:
        """Whether this process can run the next attempt. All queries have been stopped."""

    def _why_failed(self) -> Failure | None:
        """Why one of the queries that have been stopped had failed before."""
        stopped = (each for each in self._queries if not self._failover.holds(each))
        return next((failure for each in stopped if (failure := each.failure())), None)

    @abstractmethod
    def _location(self) -> str:
        """Where the checkpoints are."""
