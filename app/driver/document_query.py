"""One run of a query of a graph document: builds its plan, and starts it with its sink."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from app.driver.build import QueryBuilder
from app.driver.failures import DriverError, Failure, describe
from app.driver.functions import Functions
from app.driver.gate import start_behind
from app.driver.gateway import BatchRun
from app.driver.plans import DriverPlan
from app.driver.progress import Committed, Happening, QueryListener
from app.driver.session import query_session
from app.driver.sinks import BatchRef, Sink, Written, open_sink
from app.driver.sinks.native import NativeSink
from app.driver.sources.planned_files import check_planned_files, may_be_gone
from app.driver.sources.splits import Splits
from app.driver.started_query import Shared, StartedQuery
from app.model.analysis import Query
from app.model.formats import rate_options
from app.model.jobgraph import JobVertex, SinkSpec, SourceSpec
from app.model.protocol import DriverSpec
from app.model.sink_formats import OWN_SINKS


class DocumentQuery(StartedQuery):
    """One run of a query of a graph document."""

    def __init__(
        self,
        query: Query,
        shared: Shared,
        *,
        session: SparkSession,
        functions: Functions,
        checkpoint_dir: Path,
        work_dir: Path,
        slots: int,
        conf: Mapping[str, str],
        trigger: Mapping[str, Any],
        epoch: Callable[[], int],
        tell: Callable[[Happening], None],
    ) -> None:
        """``trigger``: what `DataStreamWriter.trigger` is given; empty: one batch after the other."""
        own_dir = checkpoint_dir / query.key
        own_dir.mkdir(parents=True, exist_ok=True)
        super().__init__(query, shared, checkpoint_dir=own_dir)
        self._epoch = epoch
        self._trigger = {**trigger}
        self._has_ended = False
        # A session of its own: its number of state partitions, its views, its listener.
        # Without state, tasks of what shuffles by itself, which a valve can only make fewer.
        widest = max(slots, *(vertex.parallelism for vertex in query.flow))
        self._session = query_session(session, conf, query.state_partitions or widest)
        self._listener = QueryListener(tell)
        self._listener.listen(self._session)
        self._splits = Splits(conf, self._plans.current.parallelism, work_dir / "splits" / query.key)
        self._builder = QueryBuilder(query, self._splits, functions)
        spec = query.sink.operation
        assert isinstance(spec, SinkSpec)
        self._sink: Sink | NativeSink
        if spec.format in OWN_SINKS:
            self._sink = open_sink(query.sink, work_dir=work_dir, functions=functions)
        else:
            self._sink = NativeSink.open(
                query.sink.name, spec, self._session, self.checkpoint_dir, shared.lock_file
            )
        self._frame: DataFrame | None = None
        self._idle = False

    def check(self) -> None:
        """Compare the document with Spark's plan, before anything of the job runs.

        A query that has committed a batch was seen then: neither its graph nor its artifacts can change.

        Raises:
            DriverError: they contradict each other, or a vertex cannot be built.
        """
        if not self._past.committed_ms:
            self._frame = self._builder.build(self._session, self._plans.current.parallelism)
            self._builder.check()
            if not isinstance(self._sink, NativeSink):
                self._sink.check(self._frame)

    def start(self) -> None:
        self._sink.prepare()
        options = [each for vertex in self.query.streams for each in vertex.operation.options]  # type: ignore[union-attr]
        check_planned_files(self.checkpoint_dir, may_be_gone=partial(may_be_gone, self._session, options))
        frame, self._frame = self._frame, None
        if frame is None:
            frame = self._builder.build(self._session, self._plans.current.parallelism)
        writer = frame.writeStream.outputMode(self.query.sink.operation.output_mode.value).option(  # type: ignore[union-attr]
            "checkpointLocation", str(self.checkpoint_dir)
        )
        if trigger := {"once": True} if self._once else self._trigger:
            writer = writer.trigger(**trigger)
        try:
            self._builder.check_state()
            if isinstance(self._sink, NativeSink):
                started = start_behind(self.gateway, self._session, partial(self._sink.start, writer))
            else:
                started = writer.foreachBatch(self.gateway).start()
        except Exception as error:
            vertex = (*self.query.stateful, self.query.sink)[0]
            raise DriverError.of(describe(error, vertex=vertex.name)) from error
        self._started(started, self._session.sparkContext)

    def write(self, frame: DataFrame, batch_id: int) -> Written:
        assert not isinstance(self._sink, NativeSink)
        ref = BatchRef(self.query_id, batch_id, self._epoch())
        return self._sink.write(frame, ref, self._shared.may_commit)

    def begins(self, batch_id: int) -> None:
        if isinstance(self._sink, NativeSink):
            self._sink.check_batch(batch_id)
        super().begins(batch_id)

    def written(self, batch_id: int) -> None:
        if isinstance(self._sink, NativeSink):
            self._sink.check_written(batch_id)

    def between_batches(self) -> None:
        super().between_batches()
        self._builder.look_at_side_tables()

    # -- what happened

    def committed(self, happening: Committed, now_ms: int) -> tuple[BatchRun | None, DriverPlan]:
        self._idle = False
        run, plan = super().committed(happening, now_ms)
        if plan.number >= self._plans.current.number:
            self._splits.settle(plan.parallelism)
        return run, plan

    def idle(self, at_ms: int) -> None:
        super().idle(at_ms)
        self._idle = True

    @property
    def is_done(self) -> bool:
        """Whether nothing will come any more: all rows of sources that end are in committed batches, and Spark has
        found nothing to do since the last one. After the last input it may run batches without data, to let out what
        a watermark held back.
        """
        counts = [_row_count(vertex) for vertex in self.query.streams]
        if not self._idle or self.gateway.running_batch is not None or None in counts:
            return False
        if not any(counts):
            return True
        from app.driver.sources.rate import is_read

        return is_read(self.checkpoint_dir)

    def take_plan(self) -> None:
        self._splits.raise_to(self._plans.current.parallelism)
        super().take_plan()

    # -- ending

    def ended_for(self) -> Failure | None:
        if "availableNow" in self._trigger:
            return self.failure()
        return self.failure() or Failure("A query of the job ended by itself.", "")

    def ended(self) -> None:
        super().ended()
        self._has_ended = True

    @property
    def is_over(self) -> bool:
        return self._has_ended and not self.is_active and self.ended_for() is None

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._listener.close()
        super().close()


def _row_count(vertex: JobVertex) -> int | None:
    """After how many rows a source ends; None if it does not end by itself."""
    source = vertex.operation
    assert isinstance(source, SourceSpec)
    return rate_options(dict(source.options)).row_count if source.format == "rate" else None


def trigger_of(spec: DriverSpec) -> dict[str, Any]:
    """When the queries of a job run a batch, and whether they end by themselves: what Spark's `trigger` is given."""
    if spec.available_now:
        return {"availableNow": True}
    return {"processingTime": f"{spec.batch_interval_ms} milliseconds"} if spec.batch_interval_ms else {}
