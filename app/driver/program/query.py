"""One started query of a program: Spark's own query with valves in its plan, and how far it has come.

It has the face of `app.driver.running_query.RunningQuery`, for the attempt. Nothing of ours stands between two batches
here: a batch runs at the numbers that its valves had when Spark planned it, which is looked up afterwards.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.driver.failures import Failure, describe
from app.driver.gateway import BatchRun
from app.driver.plans import DriverPlan, Plans
from app.driver.program.origin import SINK_NOTE
from app.driver.progress import Committed
from app.driver.recovery import GapMeter, mark_begun, read_past
from app.driver.valves.labels import Label
from app.driver.valves.running import Valves
from app.driver.valves.stages import StageReader, vertex_batches
from app.model.analysis import Query
from app.model.planned import PlannedVertex
from app.model.protocol import VertexBatch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_POISONED = "Number of partitions (0) must be positive"
_ANY_BATCH = 2**62


class ProgramQuery:
    """Everything about one query. Its methods are called by the attempt's own thread only, but for `start`."""

    def __init__(
        self,
        query: Query,
        *,
        session: SparkSession,
        plans: Plans,
        checkpoint_dir: Path,
        own_dir: Path,
        ends_by_itself: bool,
    ) -> None:
        """``checkpoint_dir`` is Spark's, which the program may have chosen; ``own_dir`` is for notes of this driver.

        ``ends_by_itself``: its trigger lets it end when there is nothing left.
        """
        self.query = query
        self.checkpoint_dir = checkpoint_dir
        self.reached = 0
        self.applied_version = 0
        self.begun_version = plans.current.version
        self.reprocessed_records: int | None = None
        self.ends_by_itself = ends_by_itself
        self._session = session
        self._plans = plans
        self._own_dir = own_dir
        own_dir.mkdir(parents=True, exist_ok=True)
        (own_dir / SINK_NOTE).write_text(query.sink.name, encoding="utf-8")
        self._past = read_past(checkpoint_dir, begun_in=own_dir)
        self.gaps = GapMeter(self._past)
        self._query: StreamingQuery | None = None
        self._valves: Valves | None = None
        self._stages: StageReader | None = None
        self._ran: DriverPlan = plans.current
        self._set_ms = 0
        self._last_batch = -1
        self._backlog_rows: int | None = None
        self._busy_since: float | None = None
        self._longest_s = 0.0
        self._stopping = False

    # -- start

    def start(self, begin: Callable[[], StreamingQuery]) -> StreamingQuery:
        """Start it: ``begin`` starts the writer, whose plan has its valves already. In the thread of the program."""
        # A batch that is planned from here on may have been begun when this process dies.
        mark_begun(self._own_dir, _ANY_BATCH)
        self._query = begin()
        self._valves = Valves(self._query, self.query, Label.of)
        self._stages = StageReader(self._session.sparkContext, self.run_id)
        return self._query

    @property
    def query_id(self) -> str:
        return "" if self._query is None else str(self._query.id)

    @property
    def run_id(self) -> str:
        return "" if self._query is None else str(self._query.runId)

    # -- what happened

    def plan_changed(self) -> None:
        """Batches that Spark plans from now on run at the newest plan."""
        self.gaps.changing()
        self.take_plan()

    def take_plan(self) -> None:
        """Set the valves to the numbers of the newest plan."""
        if self._valves is not None and not self._stopping:
            self._valves.set(self._plans.current.parallelism)
            self._set_ms = time.time_ns() // 1_000_000

    def committed(self, happening: Committed, now_ms: int) -> tuple[BatchRun, DriverPlan]:
        """A batch was committed: its run, and the plan it ran at."""
        self._note_end()
        self._backlog_rows = happening.backlog_rows
        self._last_batch = happening.batch_id
        started_ms = now_ms - happening.duration_ms
        planned = None if self._valves is None else self._valves.planned(happening.batch_id)
        plan = self._ran = self._plan_of(planned, started_ms)
        self._reached(plan)
        self.gaps.committed(now_ms, at_plan=plan.whole and plan.number >= self._plans.current.number)
        if happening.batch_id == self._past.interrupted:
            self.reprocessed_records = happening.input_rows
        elif self.reprocessed_records is None:
            self.reprocessed_records = 0
        run = BatchRun(happening.batch_id, plan, planned, started_ms, happening.output_rows)
        return run, plan

    def _plan_of(self, planned: Any, started_ms: int) -> DriverPlan:
        """The plan by which Spark planned a batch."""
        assert self._valves is not None
        numbers = self._valves.in_force(planned)
        if numbers is None:
            # Spark is at the next batch already.
            return self._plans.current if started_ms >= self._set_ms else self._ran
        plan = self._plans.newest_with(numbers)
        # None: it was planned while the valves were being set, one after another.
        return plan if plan is not None else self._ran

    def was_reprocessed(self, batch_id: int) -> bool:
        """Whether an earlier attempt had begun this batch."""
        return batch_id == self._past.interrupted

    def idle(self, at_ms: int) -> None:
        """At ``at_ms`` the query had nothing to do: its next batch will run at the plan of now."""
        self._reached(self._plans.current)
        self._busy_since = None

    def _reached(self, plan: DriverPlan) -> None:
        self.reached = max(self.reached, plan.number)
        self.begun_version = max(self.begun_version, plan.version)
        if plan.whole:
            self.applied_version = max(self.applied_version, plan.version)

    @property
    def settled(self) -> int:
        """The number of the newest plan that it has run at."""
        return self.reached

    @property
    def is_active(self) -> bool:
        return self._query is not None and bool(self._query.isActive)

    @property
    def has_ended_well(self) -> bool:
        """Whether it is over because the program, or its trigger, wanted it."""
        return not self.is_active and self._query is not None and self._query.exception() is None

    def is_gone(self) -> bool:
        """Whether nothing of the query writes any more: neither its thread nor a task that it has started."""
        return not self.is_active and (self._stages is None or not self._stages.has_active_tasks())

    @property
    def running_batch(self) -> int | None:
        """The batch that may be under way; None if there is none for certain."""
        return self._last_batch + 1 if self._is_triggered else None

    @property
    def _is_triggered(self) -> bool:
        return self.is_active and bool(self._query.status["isTriggerActive"])  # type: ignore[union-attr]

    @property
    def backlog(self) -> int | None:
        """Records that wait at the sources; None if a source cannot tell."""
        return self._backlog_rows

    @property
    def is_done(self) -> bool:
        """A query is done when it has ended, and the program says what follows from that."""
        return False

    def vertices(self, run: BatchRun, input_rows: int) -> tuple[VertexBatch, ...]:
        """What Spark says of each vertex in a batch of ``input_rows`` rows."""
        if self._valves is None or self._stages is None:
            return ()
        return vertex_batches(
            self.query,
            run.plan.parallelism,
            self._valves.rows(run.planned).values(),
            self._stages.of_batch(run.batch_id),
            input_rows=input_rows,
            output_rows=run.output_rows,
        )

    def overdue(self, limit_ms: int) -> Failure | None:
        """The failure of a batch that takes longer than ``limit_ms``; 0 is no limit."""
        if not limit_ms:
            return None
        if not self._is_triggered:
            self._busy_since = None
        elif self._busy_since is None:
            self._busy_since = time.monotonic()
        elif (time.monotonic() - self._busy_since) * 1000 > limit_ms:
            name = self.query.sink.name
            return Failure(
                f"A micro-batch of sink {name} takes longer than {limit_ms} ms (slotwise.batch.timeout).", ""
            )
        return None

    def _note_end(self) -> None:
        """A batch has ended: the next one has its own time."""
        if self._busy_since is not None:
            self._longest_s = max(self._longest_s, time.monotonic() - self._busy_since)
            self._busy_since = time.monotonic()

    @property
    def longest_batch_ms(self) -> int:
        """How long the longest of its batches took in this attempt, as far as it was looked at."""
        return int(self._longest_s * 1000)

    # -- ending

    def stop_at_boundary(self) -> None:
        """The batch in flight is the last: the next one cannot be planned."""
        if not self._stopping and self._valves is not None:
            self._stopping = True
            self._valves.poison()

    def is_drained(self, since_ms: int) -> bool:
        """Spark's sources cannot be told to stand still: the end of a batch has to do."""
        return True

    def try_stop(self) -> bool:
        """End the query between two batches, if it is between two now; whether it has ended.

        `stop_at_boundary` must have been called: a batch that begins meanwhile ends itself before it is planned.
        """
        if self._query is not None and self.is_active and not self._is_triggered:
            self._query.stop()
        if self.is_active:
            return False
        if self._is_poisoned or self.has_ended_well:
            # What is planned was not begun.
            mark_begun(self._own_dir, self._last_batch)
        return True

    @property
    def _is_poisoned(self) -> bool:
        return self._stopping and self._query is not None and _POISONED in str(self._query.exception() or "")

    def failure(self) -> Failure | None:
        """Why the query ended; None if nothing failed."""
        error = None if self._query is None else self._query.exception()
        if error is None or self._is_poisoned:
            return None
        return replace(describe(error), query_id=self.query_id, batch_id=self._last_batch + 1)

    def close(self) -> None:
        """Stop whatever runs, at once."""
        if self._query is not None:
            with contextlib.suppress(Exception):
                self._query.stop()

    def release(self) -> None:
        """Nothing of it lives any more, and nothing is to be let go of."""


def differences(query: Query, found: Sequence[PlannedVertex]) -> list[str]:
    """What ``found``, which an attempt has read from its plan, has other than ``query`` of the stored graph."""
    told: list[str] = []
    stored = {vertex.name: vertex for vertex in query.flow}
    read = {vertex.name: vertex for vertex in found}
    told += [f"{name} was there before and is not now" for name in stored if name not in read]
    for name, vertex in read.items():
        before = stored.get(name)
        if before is None:
            told.append(f"{name} ({vertex.operator}) is there now and was not before")
            continue
        inputs = tuple(edge.vertex_name for edge in before.inputs)
        if inputs != vertex.inputs:
            told.append(f"{name} reads {_listed(vertex.inputs)} now, and read {_listed(inputs)} before")
        if before.stateful is not vertex.stateful:
            told.append(f"{name} {'keeps' if vertex.stateful else 'does not keep'} state now")
        elif vertex.stateful and vertex.state_partitions != before.max_parallelism:
            told.append(
                f"{name} has {vertex.state_partitions} state partitions now, and had {before.max_parallelism} before"
            )
    return told


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "nothing"
