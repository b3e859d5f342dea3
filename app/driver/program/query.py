"""One started query of a program: Spark's own query with valves in its plan and a gateway before its sink."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from app.driver.gate import start_behind
from app.driver.gateway import BatchRun, Gateway
from app.driver.plans import DriverPlan, Plans
from app.driver.program.origin import SINK_NOTE
from app.driver.progress import Committed
from app.driver.recovery import mark_begun
from app.driver.started_query import StartedQuery
from app.driver.state_places import StatePlaces
from app.model.analysis import Query
from app.model.planned import PlannedVertex

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


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
        may_commit: Callable[[], None],
        begin: Callable[[Mapping[str, int]], StreamingQuery],
        between_batches: Callable[[], None],
        places: Callable[[str], StatePlaces] | None,
    ) -> None:
        """``checkpoint_dir`` is Spark's, which the program may have chosen; ``own_dir`` is for notes of this driver.

        ``ends_by_itself``: its trigger lets it end when there is nothing left. ``begin`` starts it with valves in its
        plan, at these numbers by vertex id.
        """
        own_dir.mkdir(parents=True, exist_ok=True)
        (own_dir / SINK_NOTE).write_text(query.sink.name, encoding="utf-8")
        super().__init__(query, plans=plans, checkpoint_dir=checkpoint_dir, begun_in=own_dir, places=places)
        self.ends_by_itself = ends_by_itself
        self._session = session
        self._begin = begin
        self._busy_since: float | None = None
        self.gateway = Gateway(
            plans=plans,
            may_commit=may_commit,
            beginning=partial(mark_begun, own_dir),
            between_batches=between_batches,
            place=self._place if places is not None else None,
        )

    def start(self) -> None:
        """In the thread of the program, and when it is started again in that of the attempt."""
        begin = partial(self._begin, self._plans.current.parallelism)
        started = start_behind(self.gateway, self._session, begin)
        self._started(started, self._session.sparkContext)

    @property
    def spark_query(self) -> StreamingQuery:
        assert self._spark_query is not None
        return self._spark_query

    @property
    def query_id(self) -> str:
        return "" if self._spark_query is None else str(self._spark_query.id)

    def committed(self, happening: Committed, now_ms: int) -> tuple[BatchRun | None, DriverPlan]:
        self._busy_since = None
        return super().committed(happening, now_ms)

    @property
    def _batch_age_s(self) -> float:
        """Its planning and its commit count: they wait for sources and places that the program has chosen."""
        # Spark does not say when it began to plan a batch: that is as long ago as the first look at it.
        if not self._is_triggered:
            self._busy_since = None
            return 0.0
        self._busy_since = self._busy_since or time.monotonic()
        return max(super()._batch_age_s, time.monotonic() - self._busy_since)

    @property
    def is_done(self) -> bool:
        """A query is done when it has ended, and the program says what follows from that."""
        return False


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
