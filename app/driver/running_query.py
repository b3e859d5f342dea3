"""One started query of an attempt: its Spark query, its gateway, and how far it has come."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from app.driver.build import QueryBuilder
from app.driver.failures import BoundaryStop, DriverError, Failure, describe
from app.driver.functions import Functions
from app.driver.gateway import BatchRun, Gateway
from app.driver.plans import DriverPlan, Plans
from app.driver.progress import Committed, Happening, QueryListener
from app.driver.recovery import GapMeter, mark_begun, read_past
from app.driver.session import query_session
from app.driver.sinks import open_sink
from app.driver.sources import register_all
from app.driver.sources.control import ControlFile
from app.driver.state_places import StatePlaces
from app.driver.valves.graph import behind_state
from app.driver.valves.running import Rows, Valves
from app.driver.valves.stages import StageReader, vertex_batches
from app.model.analysis import Query
from app.model.protocol import VertexBatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


class RunningQuery:
    """Everything about one query. Its methods are called by the attempt's own thread only."""

    def __init__(
        self,
        query: Query,
        *,
        session: SparkSession,
        control: ControlFile,
        plans: Plans,
        functions: Functions,
        checkpoint_dir: Path,
        work_dir: Path,
        slots: int,
        conf: Mapping[str, str],
        batch_interval_ms: int,
        epoch: Callable[[], int],
        may_commit: Callable[[], None],
        tell: Callable[[Happening], None],
        between_batches: Callable[[], None] = lambda: None,
        places: Callable[[str], StatePlaces] | None = None,
    ) -> None:
        """``places`` makes those of some state on a cluster, for a key; None: state is in this process."""
        self.query = query
        self.checkpoint_dir = checkpoint_dir / query.key
        # The number and the version of the newest plan that it has run at, the version only if as a whole.
        self.reached = 0
        self.applied_version = 0
        self.reprocessed_records: int | None = None
        self._state_is_even = True
        self._control = control
        self._trim = between_batches
        self._plans = plans
        self._batch_interval_ms = batch_interval_ms
        self.checkpoint_dir.mkdir(parents=True, exist_ok=True)
        self._past = read_past(self.checkpoint_dir)
        self.gaps = GapMeter(self._past)
        # A session of its own: its number of state partitions, its views, its listener.
        # Without state, tasks of what shuffles by itself, which a valve can only make fewer.
        widest = max(slots, *(vertex.parallelism for vertex in query.flow))
        self._session = query_session(session, conf, query.state_partitions or widest)
        register_all(self._session)
        self._listener = QueryListener(self._session, tell)
        self._builder = QueryBuilder(
            query, control=control, functions=functions, checkpoint_dir=self.checkpoint_dir
        )
        # The state of each vertex, on a cluster.
        self._places: dict[str, StatePlaces] = {}
        if places is not None:
            self._places = {vertex.id: places(f"{query.key} {vertex.id}") for vertex in query.stateful}
        self._sink = open_sink(query.sink, work_dir=work_dir, functions=functions)
        self.gateway = Gateway(
            query_id=lambda: self.query_id,
            sink=self._sink,
            plans=plans,
            place=self._place if places is not None else None,
            epoch=epoch,
            may_commit=may_commit,
            beginning=partial(mark_begun, self.checkpoint_dir),
            between_batches=self._between_batches,
        )
        self._frame: DataFrame | None = None
        self._valves: Valves | None = None
        self._spark_query: StreamingQuery | None = None
        self._id: str | None = None
        self._run_id = ""
        self._idle_ms = 0
        self._backlog_rows: int | None = None
        self._idle = False

    @property
    def query_id(self) -> str:
        """Spark's id of the query: it comes from the checkpoint, so it is the same in every attempt."""
        if self._id is None:
            # The first batch may begin before `start` has returned.
            self._id = _id_in(self.checkpoint_dir)
        return self._id

    @property
    def run_id(self) -> str:
        return self._run_id

    def check(self) -> None:
        """Before anything of the job runs: see whether the document says the truth of the plan.

        A query that has committed a batch was seen then: neither its graph nor its artifacts can change.

        Raises:
            DriverError: it does not, or a vertex cannot be built.
        """
        if not self._past.committed_ms:
            self._frame = self._builder.build(self._session, self._plans.current.parallelism)
            self._builder.check()
            self._sink.check(self._frame)

    def start(self, *, available_now: bool = False) -> None:
        """Build the plan and start. ``available_now``: end by itself, without a planned batch, when nothing is left.

        Raises:
            DriverError: a vertex cannot be built, or its sink cannot be written.
        """
        self._sink.prepare()
        frame, self._frame = self._frame, None
        if frame is None:
            frame = self._builder.build(self._session, self._plans.current.parallelism)
        writer = (
            frame.writeStream.outputMode(self.query.sink.operation.output_mode.value)  # type: ignore[union-attr]
            .option("checkpointLocation", str(self.checkpoint_dir))
            .foreachBatch(self.gateway)
        )
        if available_now:
            writer = writer.trigger(availableNow=True)
        elif self._batch_interval_ms:
            writer = writer.trigger(processingTime=f"{self._batch_interval_ms} milliseconds")
        try:
            self._builder.check_state()
            self._spark_query = writer.start()
        except Exception as error:
            vertex = (*self.query.stateful, self.query.sink)[0]
            raise DriverError.of(describe(error, vertex=vertex.name)) from error
        self._run_id = str(self._spark_query.runId)
        self._valves = Valves(self._spark_query, self.query, self._builder.valves.get)
        self.gateway.started(self._valves, StageReader(self._session.sparkContext, self._run_id))

    def _between_batches(self) -> None:
        self._trim()
        self._builder.look_at_side_tables()

    def _place(self, rows: Mapping[str, Rows], parallelism: Mapping[str, int]) -> bool:
        """Give the tasks of a batch that has not run yet the executors that have their state. Whether it will stay."""
        for vertex_id, labels in behind_state(self.query, self._builder.valves, parallelism).items():
            found = [rows[label].rdd for label in labels if label in rows]
            if labels[0] in rows:
                self._places[vertex_id].arrange(found[0], found[1:])
        return all(each.is_even for each in self._places.values())

    # -- what happened

    def committed(self, happening: Committed, now_ms: int) -> tuple[BatchRun | None, DriverPlan]:
        """A batch was committed: the run of it, if this attempt ran it, and the plan it ran at."""
        self._idle = False
        self._backlog_rows = happening.backlog_rows
        run = self.gateway.committed(happening.batch_id)
        plan = run.plan if run is not None else self._plans.current
        self._state_is_even = run is None or run.state_is_even
        self._reached(plan)
        self.gaps.committed(now_ms, at_plan=plan.whole and plan.number >= self._plans.current.number)
        if happening.batch_id == self._past.interrupted:
            self.reprocessed_records = happening.input_rows
        elif self.reprocessed_records is None:
            self.reprocessed_records = 0
        return run, plan

    def was_reprocessed(self, batch_id: int) -> bool:
        """Whether an earlier attempt had begun this batch."""
        return batch_id == self._past.interrupted

    def idle(self, at_ms: int) -> None:
        """At ``at_ms`` the query had nothing to do: its next batch will run at the plan of now."""
        if self._valves is not None:
            self._valves.settle()
        self._reached(self._plans.current)
        self._idle_ms = max(self._idle_ms, at_ms)
        self._idle = True

    def _reached(self, plan: DriverPlan) -> None:
        self.reached = max(self.reached, plan.number)
        if plan.whole:
            self.applied_version = max(self.applied_version, plan.version)

    @property
    def is_active(self) -> bool:
        return self._spark_query is not None and bool(self._spark_query.isActive)

    def is_gone(self) -> bool:
        """Whether nothing of the query writes any more: neither its thread nor a task that it has started."""
        reader = self.gateway.stages
        return not self.is_active and (reader is None or not reader.has_active_tasks())

    def await_end(self, timeout_s: float) -> None:
        """Returns when the query has ended, for whatever reason, or after ``timeout_s``."""
        with contextlib.suppress(Exception):
            if self._spark_query is not None:
                self._spark_query.awaitTermination(timeout_s)  # type: ignore[arg-type]

    def vertices(self, run: BatchRun, input_rows: int) -> tuple[VertexBatch, ...]:
        """What Spark says of each vertex in a batch of ``input_rows`` rows."""
        reader = self.gateway.stages
        if reader is None or self._valves is None:
            return ()
        return vertex_batches(
            self.query,
            run.plan.parallelism,
            self._valves.rows(run.planned).values(),
            reader.of_batch(run.batch_id),
            input_rows=input_rows,
            output_rows=run.output_rows,
        )

    def overdue(self, limit_ms: int) -> Failure | None:
        """The failure of a batch that takes longer than ``limit_ms``; 0 is no limit."""
        if not limit_ms or self.gateway.batch_age_s * 1000 <= limit_ms:
            return None
        name = self.query.sink.name
        return Failure(
            f"A micro-batch of sink {name} takes longer than {limit_ms} ms (slotwise.batch.timeout).", ""
        )

    @property
    def settled(self) -> int:
        """The number of the newest plan that it has run at and all of whose state is in its place, 0 if some is not."""
        return self.reached if self._state_is_even else 0

    @property
    def longest_batch_ms(self) -> int:
        """How long the longest of its batches took in this attempt, one that failed too."""
        return int(self.gateway.longest_s * 1000)

    @property
    def begun_version(self) -> int:
        """The newest plan that a batch was begun with, or its sources were split by; 0 without any."""
        split = self._plans.split_by(self.query.own_sources, self.query.key)
        return max(self.gateway.begun_version, split.version if split is not None else 0)

    @property
    def backlog(self) -> int | None:
        """Records that wait at the sources; None if a source cannot tell."""
        if self._has_other_sources:
            return self._backlog_rows
        waiting = [self._control.backlog(source, self.query.key) for source in self.query.own_sources]
        if not waiting or any(each is None for each in waiting):
            return None
        return sum(each for each in waiting if each is not None)

    @property
    def is_done(self) -> bool:
        """Whether nothing will come any more: every source has said so, and Spark has found nothing to do since the
        last batch. After the last input it may run batches without data, to let out what a watermark held back.
        """
        return (
            not self._has_other_sources
            and self._idle
            and self.gateway.running_batch is None
            and all(self._control.exhausted(source, self.query.key) for source in self.query.own_sources)
        )

    @property
    def _has_other_sources(self) -> bool:
        return len(self.query.streams) > len(self.query.own_sources)

    @property
    def running_batch(self) -> int | None:
        """The batch that was begun and is not known to be committed yet."""
        return self.gateway.running_batch

    def plan_changed(self) -> None:
        """Batches that begin from now on run at the newest plan."""
        self.gaps.changing()
        if self._valves is not None and self.is_active:
            self._valves.set(self._plans.current.parallelism)

    # -- ending

    def stop_at_boundary(self) -> None:
        """The batch in flight is the last."""
        self.gateway.stop_at_boundary()

    def is_drained(self, since_ms: int) -> bool:
        """Whether every planned batch is committed, the sources having been told to advance no more at ``since_ms``.

        A source that Spark plans itself cannot be told: then the end of a batch has to do.
        """
        return not self.is_active or self._has_other_sources or self._idle_ms > since_ms

    def try_stop(self) -> bool:
        """End the query between two batches, if it is between two now; whether it has ended.

        `stop_at_boundary` must have been called: a batch that begins meanwhile ends itself, untouched.
        """
        if self._spark_query is not None and self.is_active and self.gateway.running_batch is None:
            self._spark_query.stop()
        return not self.is_active

    def failure(self) -> Failure | None:
        """Why the query ended; None if it ended between two batches, as asked."""
        failure = self.gateway.failure
        if failure is None:
            error = None if self._spark_query is None else self._spark_query.exception()
            if error is None or BoundaryStop.MARK in str(error):
                return None
            # Outside of its function: in the source, or where Spark commits.
            failure = describe(error)
        return replace(failure, query_id=self.query_id)

    def close(self) -> None:
        """Stop whatever runs, at once."""
        with contextlib.suppress(Exception):
            self._listener.close()
        if self._spark_query is not None:
            with contextlib.suppress(Exception):
                self._spark_query.stop()

    def release(self) -> None:
        """Nothing of it lives any more, and another one is in its place."""
        with contextlib.suppress(OSError):
            self._sink.close()


def _id_in(checkpoint_dir: Path) -> str:
    """The id that Spark wrote into the checkpoint when the query was started first."""
    deadline = time.monotonic() + 5.0
    while True:
        try:
            return str(json.loads((checkpoint_dir / "metadata").read_text(encoding="utf-8"))["id"])
        except (OSError, ValueError, KeyError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
