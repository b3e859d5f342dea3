"""A graph document as the program of its job: it reads the sources, applies each vertex, starts a query for each sink,
and waits for them.

Where a vertex gets its parallelism: at its valves, which take the place of its marks (`app.driver.valves.marks`); a
source splits its rows finely enough (`app.driver.sources.opening`). Frames are made anew for each run of a query, since
some sources are told only then into how many parts.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from app.driver.checkpoints import newest_batch, standing
from app.driver.failures import DriverError, Failure, describe
from app.driver.program.checks import FirstStart
from app.driver.program.document_checks import check_keys, check_plan
from app.driver.program.handle import Handle
from app.driver.program.takeover import Start, Takeover
from app.driver.session import query_session
from app.driver.sinks.base import BatchRef, Sink
from app.driver.sinks.folder import SinkFolder
from app.driver.sinks.opening import open_sink
from app.driver.sources.opening import Splits, open_stream, read_static
from app.driver.started_query import StartedQuery
from app.driver.upkeep import Upkeep
from app.driver.valves.marks import Content, Mark, marked, read_vertices, with_valves
from app.driver.valves.spark import WriterFacts, kind_of
from app.driver.vertices import Functions, apply_operation, guarded
from app.model.analysis import Query, queries
from app.model.formats import FILE_FORMATS, rate_options
from app.model.jobgraph import JobGraph, JobVertex, Partitioner, Role, SinkSpec, SourceSpec
from app.model.ownsettings import SHUFFLE_PARTITIONS
from app.model.planned import PlannedVertex
from app.model.protocol import DriverSpec
from app.model.sink_formats import OWN_SINKS, TABLE_SINKS
from app.model.statefulness import analysed

_POLL_S: Final = 0.2
_WAIT_S: Final = 5


def run_document(graph: JobGraph, functions: Functions, calls: Takeover) -> Failure | None:
    """Run the document to its end, in the main thread. Why it failed; None if it ended well."""
    try:
        session = SparkSession.builder.appName(graph.name).getOrCreate()
        made = [DocumentQuery(graph, query, session, functions, calls) for query in queries(graph)]
        stateful = {vertex for each in made for vertex in each.check()}
        graph = analysed(graph, stateful)
        for each, query in zip(made, queries(graph), strict=True):
            each.know(graph, query, made)
        handles = [each.start() for each in made]
        if have_ends := all(each.has_end for each in made):
            for each, handle in zip(made, handles, strict=True):
                each.await_end(handle)
            for handle in handles:
                handle.stop()
        _await(handles, may_end=have_ends or calls.host.spec.available_now)
    except BaseException as error:
        failure = describe(error)
        # What is told of a script begins with its line.
        is_clause = failure.sentence.startswith("the ")
        return replace(failure, sentence=f"T{failure.sentence[1:]}") if is_clause else failure
    return None


def _await(handles: Sequence[Handle], *, may_end: bool) -> None:
    """Wait until all have ended.

    Raises:
        DriverError: one has, and should not.
        StreamingQueryException: one has failed.
    """
    running = list(handles)
    while running:
        for each in handles:
            if each in running and each.awaitTermination(_WAIT_S):
                if not may_end:
                    raise DriverError("A query of the job ended by itself.", recoverable=True)
                running.remove(each)


class QueryBuilder:
    """One query's vertices as DataFrames, with a mark over each, and one below those with one streaming input."""

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

    def check(self) -> set[str]:
        """Compare the document with what Spark makes of it, once it is built. The ids of the vertices with state.

        Raises:
            DriverError: they do not agree.
        """
        return check_plan(self.query, self._frames)

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
        if len(streams) == 1:
            (edge,) = streams
            moves = edge.partitioner in (Partitioner.HASH, Partitioner.REBALANCE)
            front = Mark(vertex.name, reads=edge.vertex_name, moves=moves)
            inputs[edge.vertex_id] = marked(inputs[edge.vertex_id], front, edge.keys)
            if vertex.is_sink:
                return inputs[edge.vertex_id]
        frame = apply_operation(session, vertex, inputs, self._functions)
        # Where several streams come together, their tasks would add up.
        return marked(frame, Mark(vertex.name, moves=len(streams) > 1))


class DocumentQuery(Upkeep):
    """A query of a document, in whichever run of it: its frames, its sink, and what both need while it runs."""

    def __init__(
        self, graph: JobGraph, query: Query, session: SparkSession, functions: Functions, calls: Takeover
    ) -> None:
        self.graph, self.query = graph, query
        self._calls = calls
        spec = calls.host.spec
        self.checkpoint = Path(spec.checkpoint_dir) / query.key
        # A session of its own: its number of state partitions, its views, its listener.
        self.session = query_session(session, spec.spark_conf, query.state_partitions or self._widest({}))
        self._functions = functions
        self._splits = Splits(spec.spark_conf, spec.parallelism, self._splits_dir)
        self._builder = QueryBuilder(query, self._splits, functions)
        self.all: Sequence[DocumentQuery] = (self,)
        # Built to be checked, and not started yet.
        self._built: DataFrame | None = None
        self._run: StartedQuery | None = None
        assert isinstance(query.sink.operation, SinkSpec)
        self._to = query.sink.operation
        # A sink of ours, or the folder of a sink of Spark's.
        self._sink: Sink | None = None
        self._folder: SinkFolder | None = None
        if self._to.format in OWN_SINKS:
            self._sink = self._opened_sink()
        elif self._to.format in FILE_FORMATS:
            self._folder = SinkFolder.open(
                query.sink.name, self._to.path or "", self.session, self.checkpoint
            )

    def know(self, graph: JobGraph, query: Query, everyone: Sequence[DocumentQuery]) -> None:
        """The job's ``graph`` and the query in it, as Spark has analysed them, and all queries of the document."""
        self.graph, self.query, self.all = graph, query, everyone

    def check(self) -> set[str]:
        """Compare the document with Spark's plan, before anything of the job runs. The ids of vertices with state.

        A query that has committed a batch was seen then: graph and artifacts change with a new version only.

        Raises:
            DriverError: they contradict each other, or a vertex cannot be built.
        """
        is_known = not any(vertex.is_assumed for vertex in self.query.flow)
        if newest_batch(self.checkpoint / "commits") >= 0 and is_known and not self._calls.host.spec.on_trial:
            return {vertex.id for vertex in self.query.stateful}
        self._built = self._builder.build(self.session)
        stateful = self._builder.check()
        if self._sink is not None:
            self._sink.check(self._built)
        return stateful

    def start(self) -> Handle:
        """Start it, as a script would.

        Raises:
            DriverError: a vertex cannot be built, or its sink cannot be written.
        """
        if self._built is None:
            self._built = self._builder.build(self.session)
        writer = self._built.writeStream.outputMode(self._to.output_mode.value)
        if trigger := trigger_of(self._calls.host.spec):
            writer = writer.trigger(**trigger)
        table = None
        if self._sink is not None:
            writer = writer.foreachBatch(self._write)
        else:
            options = dict(self._to.options)
            if self._to.format.lower() in TABLE_SINKS:
                table = options.pop("table", None)
            if self._to.path is not None:
                options["path"] = self._to.path
            writer = writer.format(self._to.format).options(**options)
        handle = Handle(self._calls, self.session, partial(_start, table=table))
        try:
            self._calls.host.start(Start(writer, handle, table, document=self))
        except Exception as error:
            raise DriverError.of(describe(error, vertex=self.query.sink.name)) from error
        return handle

    @property
    def has_end(self) -> bool:
        """Whether all of its sources end by themselves."""
        return None not in self._counts

    def await_end(self, handle: Handle) -> None:
        """Wait until all rows of sources that end are in committed batches, and Spark has found nothing to do since:
        after the last input it may run batches without data, to let out what a watermark held back."""
        if any(self._counts):
            from app.driver.sources.rate import is_read

            read = False
            while not read and handle.isActive:
                time.sleep(_POLL_S)
                # Another directory may be in its place just now.
                with contextlib.suppress(OSError, ValueError):
                    read = is_read(self.checkpoint)
        handle.processAllAvailable()

    @property
    def _counts(self) -> list[int | None]:
        return [_row_count(vertex) for vertex in self.query.streams]

    @property
    def first(self) -> FirstStart:
        """What is looked at before it is started for the first time."""
        frame = self._built
        assert frame is not None
        mode, place = self._to.output_mode.value, self.checkpoint
        found = read_vertices(frame, mode)
        vertices = tuple(_planned(vertex, found.get(vertex.name, Content())) for vertex in self.query.flow)
        form = self._to.format if self._sink is None else None
        facts = WriterFacts(form, path=self._to.path, output_mode=mode)
        return FirstStart(frame, facts, vertices, None, place, place)

    def check_records(self, checkpoint: Path, epoch: int) -> None:
        """See whether what its sink has on record goes with ``checkpoint``, which the query is to go on from.

        Raises:
            DriverError: batches of it would be taken for ones that were written, or be refused.
        """
        if self._sink is not None:
            self._sink.prepare()
            query_id = json.loads((checkpoint / "metadata").read_text(encoding="utf-8"))["id"]
            self._sink.check_records(BatchRef(query_id, standing(checkpoint).committed + 1, epoch))

    # -- in each run

    def build(self, parallelism: Mapping[str, int]) -> DataFrame:
        self._splits.raise_to(parallelism)
        if self.query.state_partitions is None:
            self.session.conf.set(SHUFFLE_PARTITIONS, self._widest(parallelism))
        frame, self._built = self._built, None
        if frame is None:
            frame = self._builder.build(self.session)
        return guarded(self.query.sink, partial(with_valves, frame, self.query.flow, parallelism))

    def prepare(self, lock_file: str) -> None:
        self._follow_attempt()
        if self._sink is not None:
            self._sink.prepare()
        if self._folder is not None:
            self._folder.prepare(lock_file)

    def begins(self, run: StartedQuery, batch_id: int) -> None:
        self._run = run
        if self._folder is not None:
            self._folder.check_batch(batch_id)

    def _write(self, frame: DataFrame, batch_id: int) -> None:
        """What Spark's ``foreachBatch`` calls."""
        assert self._run is not None and self._sink is not None
        self._run.gateway.write(frame, batch_id, self._sink)

    def written(self, batch_id: int) -> None:
        if self._folder is not None:
            self._folder.check_written(batch_id)

    def between_batches(self) -> None:
        self._builder.look_at_side_tables()

    def plan_changed(self, parallelism: Mapping[str, int]) -> None:
        self._splits.raise_to(parallelism)

    def settled(self, parallelism: Mapping[str, int]) -> None:
        self._splits.settle(parallelism)

    @property
    def _splits_dir(self) -> Path:
        return Path(self._calls.host.spec.work_dir) / "splits" / self.query.key

    def _follow_attempt(self) -> None:
        """An attempt may follow another one in this process, whose directory the server empties."""
        if self._splits.directory == self._splits_dir:
            return
        self._splits.move_to(self._splits_dir)
        self._built = None
        if self._sink is not None:
            self._sink = self._opened_sink()

    def _opened_sink(self) -> Sink:
        work_dir = Path(self._calls.host.spec.work_dir)
        return open_sink(self.query.sink, work_dir=work_dir, functions=self._functions)

    def _widest(self, parallelism: Mapping[str, int]) -> int:
        """Of a query without state, the tasks of what shuffles by itself: a valve can only make them fewer."""
        numbers = (parallelism.get(vertex.id, vertex.parallelism) for vertex in self.query.flow)
        return max(self._calls.host.spec.slots, *numbers)


def _start(writer: DataStreamWriter, *, table: str | None) -> Any:
    jwriter: Any = writer._jwrite
    return jwriter.start() if table is None else jwriter.toTable(table)


def _planned(vertex: JobVertex, content: Content) -> PlannedVertex:
    role = Role.SOURCE if vertex.is_source else Role.SINK if vertex.is_sink else Role.OPERATOR
    # Of several the one of which Spark would run functions to find out what its state is.
    operator = max(content.state, key=lambda each: each.startswith("TransformWithState"), default="")
    return PlannedVertex(vertex.name, role, operator, tuple(content.inputs), bool(content.state))


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
