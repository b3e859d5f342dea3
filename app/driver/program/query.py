"""One started query of a program: Spark's own query with valves in its plan, and how far it has come.

Nothing of ours stands between two batches here: a batch runs at the numbers that its valves had when Spark planned it,
which is looked up afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.driver.failures import Failure, describe
from app.driver.gateway import BatchRun
from app.driver.plans import DriverPlan, Plans
from app.driver.program.origin import SINK_NOTE
from app.driver.progress import Committed
from app.driver.recovery import mark_begun
from app.driver.started_query import StartedQuery
from app.driver.valves.labels import Label
from app.driver.valves.running import Valves
from app.model.analysis import Query
from app.model.planned import PlannedVertex

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_POISONED = "Number of partitions (0) must be positive"
_ANY_BATCH = 2**62


class ProgramQuery(StartedQuery):
    """One run of a query of a program."""

    def __init__(
        self,
        query: Query,
        *,
        session: SparkSession,
        plans: Plans,
        checkpoint_dir: Path,
        own_dir: Path,
        ends_by_itself: bool,
        begin: Callable[[Mapping[str, int]], StreamingQuery],
    ) -> None:
        """``checkpoint_dir`` is Spark's, which the program may have chosen; ``own_dir`` is for notes of this driver.

        ``ends_by_itself``: its trigger lets it end when there is nothing left. ``begin`` starts it with valves in its
        plan, at these numbers by vertex id.
        """
        own_dir.mkdir(parents=True, exist_ok=True)
        (own_dir / SINK_NOTE).write_text(query.sink.name, encoding="utf-8")
        super().__init__(query, plans=plans, checkpoint_dir=checkpoint_dir, begun_in=own_dir)
        self.ends_by_itself = ends_by_itself
        self._session = session
        self._own_dir = own_dir
        self._begin = begin
        self._valves: Valves | None = None
        self._ran: DriverPlan = plans.current
        self._begun_version = plans.current.version
        self._set_ms = 0
        self._last_batch = self._past.newest
        self._busy_since: float | None = None
        self._longest_s = 0.0
        self._stopping = False

    # -- start

    def start(self) -> None:
        """In the thread of the program, and when it is started again in that of the attempt."""
        # A batch that is planned from here on may have been begun when this process dies.
        mark_begun(self._own_dir, _ANY_BATCH)
        self._spark_query = self._begin(self._plans.current.parallelism)
        self._valves = Valves(self._spark_query, self.query, Label.of)
        self._read_batches(self._valves, self._session.sparkContext)

    @property
    def spark_query(self) -> StreamingQuery:
        assert self._spark_query is not None
        return self._spark_query

    @property
    def query_id(self) -> str:
        return "" if self._spark_query is None else str(self._spark_query.id)

    # -- what happened

    def plan_changed(self) -> None:
        self.gaps.changing()
        self.take_plan()

    def take_plan(self) -> None:
        """Set the valves to the numbers of the newest plan."""
        if self._valves is not None and not self._stopping:
            self._valves.set(self._plans.current.parallelism)
            self._set_ms = time.time_ns() // 1_000_000

    def committed(self, happening: Committed, now_ms: int) -> tuple[BatchRun, DriverPlan]:
        self._last_batch = happening.batch_id
        self._busy_since = None
        self._longest_s = max(self._longest_s, happening.duration_ms / 1000)
        started_ms = now_ms - happening.duration_ms
        planned = None if self._valves is None else self._valves.planned(happening.batch_id)
        plan = self._ran = self._plan_of(planned, started_ms)
        self._note_committed(happening, plan, now_ms)
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
        # None: it was planned while the valves were being set, one after another, so it is at no plan as a whole.
        return plan if plan is not None else replace(self._ran, whole=False)

    def idle(self, at_ms: int) -> None:
        self._reached(self._plans.current)
        self._busy_since = None

    def _reached(self, plan: DriverPlan) -> None:
        super()._reached(plan)
        self._begun_version = max(self._begun_version, plan.version)

    @property
    def begun_version(self) -> int:
        return self._begun_version

    @property
    def has_ended_well(self) -> bool:
        """Whether it is over because the program, or its trigger, wanted it."""
        return not self.is_active and self._spark_query is not None and self._spark_query.exception() is None

    @property
    def running_batch(self) -> int | None:
        return self._last_batch + 1 if self._is_triggered else None

    @property
    def _is_triggered(self) -> bool:
        return self.is_active and bool(self._spark_query.status["isTriggerActive"])  # type: ignore[union-attr]

    @property
    def backlog(self) -> int | None:
        return self._backlog_rows

    @property
    def is_done(self) -> bool:
        """A query is done when it has ended, and the program says what follows from that."""
        return False

    @property
    def _batch_age_s(self) -> float:
        # Spark does not say when a batch began: it is as old as the first look at it.
        if not self._is_triggered:
            self._busy_since = None
        elif self._busy_since is None:
            self._busy_since = time.monotonic()
        return 0.0 if self._busy_since is None else time.monotonic() - self._busy_since

    @property
    def _longest_ms(self) -> int:
        return int(self._longest_s * 1000)

    # -- ending

    def stop_at_boundary(self) -> None:
        # The next one cannot be planned.
        if not self._stopping and self._valves is not None:
            self._stopping = True
            self._valves.poison()

    def is_drained(self, since_ms: int) -> bool:
        """Spark's sources cannot be told to stand still: the end of a batch has to do."""
        return True

    def try_stop(self) -> bool:
        if self._spark_query is not None and self.is_active and not self._is_triggered:
            self._spark_query.stop()
        if self.is_active:
            return False
        if self._is_poisoned or self.has_ended_well:
            # What is planned was not begun.
            mark_begun(self._own_dir, self._last_batch)
        return True

    @property
    def _is_poisoned(self) -> bool:
        return (
            self._stopping
            and self._spark_query is not None
            and _POISONED in str(self._spark_query.exception() or "")
        )

    def failure(self) -> Failure | None:
        error = None if self._spark_query is None else self._spark_query.exception()
        if error is None or self._is_poisoned:
            return None
        return replace(describe(error), query_id=self.query_id, batch_id=self._last_batch + 1)


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
    return told


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "nothing"
