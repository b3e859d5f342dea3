"""One run of a query in an attempt, with valves in Spark's own plan and a gateway before its sink: its start, its
batches, its number of tasks, its state, and its end.

Methods are called by the attempt's own thread only.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from app.driver.batch_watcher import BatchWatcher
from app.driver.causes import WORKER_CRASHED
from app.driver.checkpoints import mark_begun, mark_idle, newest_batch, read_past
from app.driver.damaged import named
from app.driver.failures import BoundaryStop, DriverError, Failure, describe
from app.driver.file_backlog import FileBacklog
from app.driver.gap_meter import GapMeter
from app.driver.gate import start_behind
from app.driver.gateway import BatchRun, Gateway
from app.driver.intake import INTAKE_NOTE, Intake
from app.driver.interruption import Interrupter, Interruption, is_of_interruption, takes_again
from app.driver.load import spark_figures
from app.driver.plans import DriverPlan
from app.driver.program.asked import Asked, Shared
from app.driver.program.facts import PLAN_NOTE, plan_digest
from app.driver.program.origin import SINK_NOTE
from app.driver.progress import Committed
from app.driver.scala import scala_context
from app.driver.sources.planned_files import check_planned_files, note_sizes
from app.driver.state_places import StatePlaces
from app.driver.valves.batches import BatchReader
from app.driver.valves.query_valves import Valves
from app.driver.valves.spark import copy_of_writer, execution_of, replace_frame
from app.driver.valves.spreading import goes_by_no_order
from app.model.jobgraph import SinkSpec

_LIMITED = ("processing-time", "available-now")
"""The triggers of which a batch need not have all that waits."""
_POLL_S = 0.1
# A query without data is seen at each look, unless a look at its sources takes long.
_IDLE_S = 5.0
# Spark itself starts up in it.
_FIRST_PLANNING_S = 60.0


class StartedQuery:
    """Everything about one run of one query."""

    def __init__(self, asked: Asked, shared: Shared) -> None:
        asked.prepare()
        (asked.own_dir / SINK_NOTE).write_text(asked.query.sink.name, encoding="utf-8")
        if asked.checkpoint is None and asked.vertices:
            (asked.own_dir / PLAN_NOTE).write_text(plan_digest(asked.frame), encoding="ascii")
        self.asked = asked
        self.query = query = asked.query
        self.checkpoint_dir = asked.place or Path(asked.location)
        # The job's own directory for the query, where begun batches are noted.
        self._begun_in = asked.own_dir
        self.ends_by_itself = asked.facts.ends_by_itself
        # Spark has told of its end, and tells nothing of it any more.
        self.is_silent = False
        # The newest plan that it has run at: its number, and its version once all of its steps are reached.
        self.reached = 0
        self.applied_version = 0
        self.reprocessed_records: int | None = None
        self.longest_before_ms = 0
        # Of the batch in flight; and of one that this run had to run again, until it is told.
        self._interruption: Interruption | None = None
        self._again: Interruption | None = None
        self._shared = shared
        self._plans = shared.plans
        # It ends behind the batch that is planned.
        self._once = False
        # The state of each vertex, on a cluster.
        self._places: dict[str, StatePlaces] = {}
        if (places := shared.places) is not None:
            self._places = {vertex.id: places(f"{query.key} {vertex.id}") for vertex in query.stateful}
        self.gateway = Gateway(self, shared)
        since_ms = shared.since_ms()
        self._past = read_past(self.checkpoint_dir, begun_in=self._begun_in, since_ms=since_ms)
        self.gaps = GapMeter(self._past, since_ms)
        self._has_begun = False
        self._idle_noted = -1
        self._last_batch = self._past.newest
        self._spark_query: StreamingQuery | None = None
        # Spark's ids of the query, which is the same in every attempt, and of this run; empty before it is started.
        self.query_id = self.run_id = ""
        # Records that wait at the sources; None if a source cannot tell.
        self.backlog: int | None = None
        self._state_is_even = True
        self._busy_since: float | None = None
        self._idle_at = -_IDLE_S

    def start(self) -> None:
        """In the thread of the program, and when it is started again in that of the attempt.

        Raises:
            DriverError: a file of the batch that is planned and not committed is not what it was; or a vertex of a
                document cannot be built, or its sink cannot be written.
        """
        asked = self.asked
        asked.upkeep.prepare(self._shared.lock_file)
        if asked.place is not None:
            check_planned_files(asked.place, notes=asked.own_dir, may_be_gone=asked.files_may_be_gone)
        numbers, may_spread = self._plans.current.parallelism, self._may_spread
        frame = asked.frame_at(numbers, may_spread=may_spread)
        self._intake = Intake(
            self._begun_in / INTAKE_NOTE,
            target_ms=self._shared.target_ms,
            may_limit=not self._once and asked.facts.trigger in _LIMITED,
        )
        spark_query = start_behind(self.gateway, asked.session, partial(self._begin, frame))
        self._spark_query = spark_query
        self.query_id, self.run_id = str(spark_query.id), str(spark_query.runId)
        self._valves = Valves(spark_query, self.query, numbers)
        self._figures = spark_figures(asked.session.sparkContext, in_full=self._shared.measure_load)
        self.batches = BatchReader(
            self.query, self._valves, self._figures, self.run_id, may_spread=may_spread
        )
        self._files = FileBacklog(partial(self._figures.waiting_files, execution_of(spark_query)))
        tasks, may_interrupt = partial(self._figures.tasks, self.run_id), self._may_interrupt
        self._interrupter = Interrupter(
            self._begun_in,
            self.gateway,
            sink=self.query.sink.name,
            vertices=tuple(vertex.id for vertex in self.query.flow),
            max_wait_ms=self._shared.max_wait_ms if may_interrupt else 0,
            tasks=tasks,
            cancel=partial(self._figures.cancel, self.run_id),
        )
        self.batch_watcher = BatchWatcher(
            self.query,
            self.query_id,
            self.run_id,
            self.gateway,
            self._interrupter,
            tasks,
            asked.place,
            may_interrupt,
        )
        self.gateway.started(self._valves)

    @property
    def _may_interrupt(self) -> bool:
        if (asked_for := self._shared.interruptible) is not None:
            return asked_for
        return takes_again(self.asked.facts, self._own_sink)

    @property
    def _may_spread(self) -> bool:
        if (asked_for := self._shared.spread_sources) is not None:
            return asked_for
        return goes_by_no_order(self.query, self.asked.facts, self._own_sink)

    @property
    def _own_sink(self) -> str | None:
        """The format of the sink of a document."""
        sink = self.query.sink.operation
        return sink.format if isinstance(sink, SinkSpec) else None

    def _begin(self, frame: DataFrame) -> StreamingQuery:
        asked = self.asked
        writer = copy_of_writer(asked.writer).option("checkpointLocation", asked.location)
        # Spark's thread of a query takes them, such as its scheduler pool, from the one that starts it.
        scala_context(asked.session.sparkContext).setLocalProperties(asked.properties.clone())
        replace_frame(writer, frame)
        with asked.state_partitions():
            if self._once:
                return asked.handle.begin_unseen(writer.trigger(once=True))
            return asked.handle.begin(writer)

    # -- in the thread of the query, by its gateway

    def opens(self, execution: Any) -> None:
        """Nothing of it is planned yet."""
        self._intake.begin(execution)

    def begins(self, batch_id: int) -> None:
        """The first of a batch: nothing of it has run."""
        self.asked.upkeep.begins(self, batch_id)
        mark_begun(self._begun_in, batch_id, is_first=not self._has_begun)
        self._has_begun = True
        note_sizes(self.checkpoint_dir, batch_id, self._begun_in)

    def between_batches(self) -> None:
        self._shared.between_batches()
        self.asked.upkeep.between_batches()

    def place(self, valves: Valves, planned: Any) -> bool:
        """Give the tasks of a batch that has not run yet the executors that have their state. Whether it will stay."""
        for vertex_id, (first, *behind) in valves.stages_of_state(planned).items():
            self._places[vertex_id].arrange(first, behind)
        return all(each.is_even for each in self._places.values())

    def written(self, batch_id: int) -> None:
        """Spark's sink has the batch, and its commit is next."""
        self.asked.upkeep.written(batch_id)
        took_ms = self.gateway.batch_age_s * 1000
        self._intake.batch_ended(took_ms, tasks=self._tasks_of_sources, is_changing=self.gateway.is_plan_new)

    def _tasks_of_sources(self) -> list[int]:
        numbers = self._plans.current.parallelism
        return [numbers.get(vertex_id, 1) for vertex_id in self._valves.sources]

    # -- what happened

    def plan_changed(self) -> None:
        """Batches that Spark plans from now on run at the newest plan."""
        self.gaps.changing()
        self.take_plan()

    def take_plan(self) -> None:
        """Set the valves to the numbers of the newest plan."""
        self.asked.upkeep.plan_changed(self._plans.current.parallelism)
        if self.is_active:
            self._valves.set(self._plans.current.parallelism)

    def with_intake(self, happening: Committed) -> Committed:
        """With what waits at its sources of files, and how much of what waits the next batch gets."""
        sources = enumerate(self._files.told(happening.sources))
        limit = self._intake.limit_of
        return replace(happening, sources=tuple(replace(each, limit=limit(place)) for place, each in sources))

    def committed(self, happening: Committed, now_ms: int) -> tuple[BatchRun | None, DriverPlan]:
        """A batch was committed: the run of it, if this attempt ran it, and the plan it ran at."""
        self._last_batch = happening.batch_id
        self._busy_since = None
        run = self.gateway.committed(happening.batch_id)
        if self._interruption is not None and self._interruption.batch_id <= happening.batch_id:
            # It was done before it could be cancelled.
            self._interruption = None
        plan = run.plan if run is not None else self._plans.current
        self._state_is_even = run is None or run.state_is_even
        if run is not None and run.output_rows is None:
            run = replace(run, output_rows=happening.output_rows)
        if plan.number >= self._plans.current.number:
            self.asked.upkeep.settled(plan.parallelism)
        self._note_committed(happening, plan, now_ms)
        return run, plan

    def _note_committed(self, happening: Committed, plan: DriverPlan, now_ms: int) -> None:
        self.backlog = happening.backlog_rows
        self._reached(plan)
        at_plan = plan.whole and plan.number >= self._plans.current.number
        if happening.has_input:
            self.gaps.committed(now_ms, at_plan=at_plan)
        else:
            # Spark lets time pass in such a batch only if it finds no input.
            self.gaps.idle(now_ms - happening.duration_ms, at_plan=at_plan)
        if self.was_reprocessed(happening.batch_id):
            self.reprocessed_records = happening.input_rows
        elif self.reprocessed_records is None:
            self.reprocessed_records = 0
        if self._again is not None and self._again.batch_id == happening.batch_id:
            self._again = replace(self._again, rows=happening.input_rows)

    def was_reprocessed(self, batch_id: int) -> bool:
        """Whether an earlier attempt had begun this batch."""
        return batch_id == self._past.interrupted

    @property
    def waits_for_data(self) -> bool:
        """Whether Spark found no data when it last looked, and no batch is under way: the next one will run at the plan
        of now."""
        if self.gateway.running_batch is not None or not self.is_active:
            return False
        self._valves.apply_pending()
        status: dict[str, Any] = self._spark_query.status  # type: ignore[union-attr]
        is_busy = status["isTriggerActive"] or status["isDataAvailable"]
        return not is_busy and status["message"].startswith("Waiting")

    def idle(self, at_ms: int) -> None:
        """It waits for data at ``at_ms``."""
        self._idle_at = time.monotonic()
        self._reached(self._plans.current)
        self.gaps.idle(at_ms, at_plan=self._plans.current.whole)
        if self._idle_noted < self._last_batch:
            self._idle_noted = self._last_batch
            with contextlib.suppress(OSError):
                mark_idle(self._begun_in, self._last_batch)

    def _reached(self, plan: DriverPlan) -> None:
        self.reached = max(self.reached, plan.number)
        if plan.whole:
            self.applied_version = max(self.applied_version, plan.version)

    @property
    def settled(self) -> int:
        """The number of the newest plan that it has run at and all of whose state is in its place, 0 if some is not."""
        return self.reached if self._state_is_even else 0

    @property
    def longest_batch_ms(self) -> int:
        """How long the longest of its batches took in this attempt, one that failed too."""
        return max(self.longest_before_ms, int(self.gateway.longest_s * 1000))

    def overdue(self) -> Failure | None:
        """The failure of a batch that takes longer than it may."""
        limit_ms = self._shared.limit_ms
        if not limit_ms or self._batch_age_s * 1000 <= limit_ms:
            return None
        name = self.query.sink.name
        return Failure(
            f"A micro-batch of sink {name} takes longer than {limit_ms} ms (slotwise.batch.timeout).", ""
        )

    @property
    def _batch_age_s(self) -> float:
        """How long the batch in flight has been running, its planning and its commit included; 0 without one."""
        # Spark does not say when it began to plan a batch: that is as long ago as the first look at it.
        if not self._is_triggered:
            self._busy_since = None
            return 0.0
        self._busy_since = self._busy_since or time.monotonic()
        start_s = _FIRST_PLANNING_S if self._last_batch == self._past.newest else 0.0
        return max(self.gateway.batch_age_s, time.monotonic() - self._busy_since - start_s)

    @property
    def _is_triggered(self) -> bool:
        return self.is_active and bool(self._spark_query.status["isTriggerActive"])  # type: ignore[union-attr]

    @property
    def is_idle(self) -> bool:
        """Whether it has nothing to do: it has said so just now, waits for its next trigger, or has ended as it may.
        One that hangs in a source does neither."""
        if not self.is_active:
            return self._spark_query is not None and self.failure() is None and not self.is_interrupted
        if self.gateway.running_batch is not None:
            return False
        return time.monotonic() - self._idle_at < _IDLE_S or not self._is_triggered

    # -- interrupted

    def interrupt_if_due(self) -> None:
        """Interrupt the batch in flight if a plan has waited for it long enough: then the query ends."""
        if self._interruption is None and self.is_active:
            self._interruption = self._interrupter.look()

    @property
    def is_interrupted(self) -> bool:
        """Whether it has ended because its batch was interrupted, and is to be started again."""
        if self._interruption is None or self.is_active:
            return False
        error = self._spark_query.exception()  # type: ignore[union-attr]
        return self.gateway.failure is None and (
            self.gateway.is_cancelled or (error is not None and is_of_interruption(error))
        )

    @property
    def interrupted_s(self) -> float:
        """How long ago it was interrupted."""
        return 0.0 if self._interruption is None else time.monotonic() - self._interruption.at

    def follows(self, before: StartedQuery) -> None:
        """It is in the place of a run that has failed or was interrupted, and is about to be started."""
        self.longest_before_ms = before.longest_batch_ms
        self._again = before._again
        cut = before._interruption
        if cut is not None and self.was_reprocessed(cut.batch_id):
            self._again = cut

    def take_again(self) -> Interruption | None:
        """The batch that was interrupted and has run again, once."""
        done = self._again
        if done is None or done.rows is None:
            return None
        self._again = None
        return done

    # -- ending

    @property
    def is_active(self) -> bool:
        return self._spark_query is not None and bool(self._spark_query.isActive)

    def is_gone(self) -> bool:
        """Whether nothing of the query writes any more: neither its thread nor a task that it has started."""
        return not self.is_active and not self._figures.has_active_tasks(self.run_id)

    def stop_at_boundary(self) -> None:
        """The batch in flight is the last."""
        self.gateway.stop_at_boundary()

    def try_stop(self) -> bool:
        """End the query between two batches, if it is between two now; whether it has ended.

        `stop_at_boundary` must have been called: a batch that begins meanwhile ends itself, untouched.
        """
        # What Spark tells of a commit may be held up by a listener of the program.
        if self._spark_query is not None and (self.gateway.running_batch is None or not self._is_triggered):
            self._spark_query.stop()
        return not self.is_active

    def failure(self) -> Failure | None:
        """Why the query ended; None if it ended between two batches, as asked, because it was to, or interrupted."""
        if self.is_interrupted:
            return None
        failure = self.gateway.failure
        if failure is None:
            error = None if self._spark_query is None else self._spark_query.exception()
            if error is None or BoundaryStop.MARK in str(error):
                return None
            # Outside of what is ours: in the plan, in the source or the sink, or where Spark commits.
            failure = replace(describe(error, query=self.query.sink.name), batch_id=self.committed_batches)
        failure = named(failure, self.checkpoint_dir)
        if failure.user_error == WORKER_CRASHED:
            failure = self.batches.with_functions(failure)
        return replace(failure, query_id=self.query_id)

    @property
    def committed_batches(self) -> int:
        """How many batches are committed: the number of the next one. Spark may not have told of the last ones yet."""
        return max(self._last_batch, newest_batch(self.checkpoint_dir / "commits")) + 1

    @property
    def has_committed(self) -> bool:
        """Whether this run has committed a batch."""
        return self.committed_batches > self._past.newest + 1

    def run_planned_batch(self) -> None:
        """Run the batch that is planned, and nothing else.

        Raises:
            DriverError: it failed.
            Fenced: another driver owns the job.
        """
        self._once = True
        try:
            self.start()
            while self.is_active:
                self._shared.may_commit()
                if overdue := self.overdue():
                    raise DriverError(overdue.sentence, recoverable=True)
                with contextlib.suppress(Exception):
                    self._spark_query.awaitTermination(_POLL_S)  # type: ignore[union-attr, arg-type]
            failure = self.failure()
        finally:
            self.close()
        if failure is not None:
            raise DriverError.of(failure)

    def ended(self) -> None:
        """Spark has said that it is over; what it had to say of batches was said before."""
        self.gateway.ended()
        self.is_silent = True

    def close(self) -> None:
        """Stop whatever runs, at once."""
        if self._spark_query is not None:
            with contextlib.suppress(Exception):
                self._spark_query.stop()
