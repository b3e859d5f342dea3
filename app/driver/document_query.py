"""One run of a query of a graph document: builds its plan, from its sources to what its sink gets, and starts it.

Where a vertex gets its parallelism: at its valves, which take the place of its marks (`app.driver.valves.marks`); a
source splits its rows finely enough (`app.driver.sources.opening`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from app.driver.failures import DriverError, Failure, describe
from app.driver.gate import start_behind
from app.driver.gateway import BatchRun
from app.driver.plan_check import check_by_spark, check_keys, check_plan
from app.driver.plans import DriverPlan
from app.driver.progress import Committed, Happening, QueryListener
from app.driver.session import query_session
from app.driver.sinks.base import BatchRef, Sink, Written
from app.driver.sinks.native import NativeSink
from app.driver.sinks.opening import open_sink
from app.driver.sources.opening import Splits, open_stream, read_static
from app.driver.sources.planned_files import check_planned_files, may_be_gone
from app.driver.started_query import Shared, StartedQuery
from app.driver.valves.marks import Mark, marked, with_valves
from app.driver.valves.spark import kind_of
from app.driver.vertices import Functions, apply_operation, guarded
from app.model.analysis import Query
from app.model.formats import rate_options
from app.model.jobgraph import JobVertex, Partitioner, SinkSpec, SourceSpec
from app.model.protocol import DriverSpec
from app.model.sink_formats import OWN_SINKS


class QueryBuilder:
    """One query's vertices as DataFrames, with a mark over each, and one below those without state."""

    def __init__(self, query: Query, splits: Splits, functions: Functions) -> None:
        self.query = query
        self._splits = splits
        self._functions = functions
        self._frames: dict[str, DataFrame] = {}
        # What Spark knows of the files of the side tables.
        self._listings: list[Any] = []

    def build(self, session: SparkSession) -> DataFrame:
        """What the sink gets, in ``session``, which is the query's own.

        Raises:
            DriverError: a vertex cannot be built, with its name.
        """
        self._frames, self._listings = {}, []
        for vertex in self.query.static:
            self._frames[vertex.id] = guarded(vertex, partial(self._static, session, vertex))
        for vertex in self.query.flow:
            self._frames[vertex.id] = guarded(vertex, partial(self._streaming, session, vertex))
        return self._frames[self.query.sink.id]

    def check(self) -> None:
        """Compare the document with what Spark makes of it, once it is built.

        Raises:
            DriverError: they do not agree.
        """
        check_plan(self.query, self._frames)

    def check_state(self) -> None:
        """Let Spark check whether what keeps state can do so with the output mode.

        Not all of the plan: what follows sees one micro-batch at a time, which it may put in order, for example.

        Raises:
            AnalysisException, Py4JError: it cannot.
        """
        sink = self.query.sink.operation
        assert isinstance(sink, SinkSpec)
        for vertex in self.query.stateful:
            check_by_spark(self._frames[vertex.id], sink.output_mode)

    def look_at_side_tables(self) -> None:
        """Look which files the side tables have now, for micro-batches that are planned from now on."""
        for listing in self._listings:
            listing.refresh()

    # -- inside

    def _static(self, session: SparkSession, vertex: JobVertex) -> DataFrame:
        if isinstance(vertex.operation, SourceSpec):
            frame = read_static(session, vertex)
            table = frame._jdf.queryExecution().analyzed()
            if kind_of(table) == "LogicalRelation" and kind_of(table.relation()) == "HadoopFsRelation":
                self._listings.append(table.relation().location())
            return frame
        return apply_operation(session, vertex, self._frames, self._functions)

    def _streaming(self, session: SparkSession, vertex: JobVertex) -> DataFrame:
        if isinstance(vertex.operation, SourceSpec):
            frame = open_stream(session, vertex, self._splits)
            return marked(frame, Mark(vertex.name))
        check_keys(vertex, self._frames)
        inputs = dict(self._frames)
        streams = self.query.streaming_inputs(vertex)
        gathers = len(streams) > 1 and not vertex.stateful
        if len(streams) == 1 and not vertex.stateful:
            (edge,) = streams
            moves = edge.partitioner in (Partitioner.HASH, Partitioner.REBALANCE)
            front = Mark(vertex.name, reads=edge.vertex_name, moves=moves)
            inputs[edge.vertex_id] = marked(inputs[edge.vertex_id], front, edge.keys)
            if vertex.is_sink:
                return inputs[edge.vertex_id]
        frame = apply_operation(session, vertex, inputs, self._functions)
        # Where several streams come together, their tasks would add up.
        return marked(frame, Mark(vertex.name, moves=gathers))


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

    def check(self) -> None:
        """Compare the document with Spark's plan, before anything of the job runs.

        A query that has committed a batch was seen then: neither its graph nor its artifacts can change.

        Raises:
            DriverError: they contradict each other, or a vertex cannot be built.
        """
        if not self._past.committed_ms:
            self._frame = self._builder.build(self._session)
            self._builder.check()
            if not isinstance(self._sink, NativeSink):
                self._sink.check(self._frame)

    def start(self) -> None:
        self._sink.prepare()
        options = [each for vertex in self.query.streams for each in vertex.operation.options]  # type: ignore[union-attr]
        gone = partial(may_be_gone, self._session, options)
        check_planned_files(self.checkpoint_dir, notes=self.checkpoint_dir, may_be_gone=gone)
        frame, self._frame = self._frame, None
        if frame is None:
            frame = self._builder.build(self._session)
        ids = {vertex.name: vertex.id for vertex in self.query.flow}
        frame = guarded(self.query.sink, partial(with_valves, frame, ids, self._plans.current.parallelism))
        writer = frame.writeStream.outputMode(self.query.sink.operation.output_mode.value).option(  # type: ignore[union-attr]
            "checkpointLocation", str(self.checkpoint_dir)
        )
        if trigger := {"once": True} if self._once else self._trigger:
            writer = writer.trigger(**trigger)
        vertex = (*self.query.stateful, self.query.sink)[0]
        try:
            self._builder.check_state()
            vertex = self.query.sink
            if isinstance(self._sink, NativeSink):
                started = start_behind(self.gateway, self._session, partial(self._sink.start, writer))
            else:
                started = writer.foreachBatch(self.gateway).start()
        except Exception as error:
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
        run, plan = super().committed(happening, now_ms)
        if plan.number >= self._plans.current.number:
            self._splits.settle(plan.parallelism)
        return run, plan

    @property
    def is_done(self) -> bool:
        """Whether nothing will come any more: all rows of sources that end are in committed batches, and Spark has
        found nothing to do since the last one. After the last input it may run batches without data, to let out what
        a watermark held back.
        """
        counts = [_row_count(vertex) for vertex in self.query.streams]
        if not self._has_nothing_to_do or self.gateway.running_batch is not None or None in counts:
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
