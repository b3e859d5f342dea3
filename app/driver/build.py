"""Builds a query as one streaming plan of Spark's, from its sources to what its sink gets.

Where a vertex gets its parallelism: at its valves (`app.driver.valves.labels`); a source splits its rows finely enough
(`app.driver.sources.splits`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from app.driver.functions import Functions
from app.driver.plan_check import check_by_spark, check_keys, check_plan
from app.driver.sources.opening import open_stream, read_static
from app.driver.sources.splits import Splits
from app.driver.valves.labels import Label
from app.driver.valves.spark import analysed, frame_in, kind_of, mark, new_valve
from app.driver.vertices import apply_operation, guarded
from app.model.analysis import Query
from app.model.jobgraph import JobVertex, Partitioner, SinkSpec, SourceSpec


class QueryBuilder:
    """One query's vertices as DataFrames, with a valve behind each, and one in front of those without state."""

    def __init__(self, query: Query, splits: Splits, functions: Functions) -> None:
        self.query = query
        self._splits = splits
        self._functions = functions
        self._frames: dict[str, DataFrame] = {}
        # What Spark knows of the files of the side tables.
        self._listings: list[Any] = []

    def build(self, session: SparkSession, parallelism: Mapping[str, int]) -> DataFrame:
        """What the sink gets, in ``session``, which is the query's own.

        Raises:
            DriverError: a vertex cannot be built, with its name.
        """
        self._frames, self._listings = {}, []
        for vertex in self.query.static:
            self._frames[vertex.id] = guarded(vertex, partial(self._static, session, vertex))
        for vertex in self.query.flow:
            self._frames[vertex.id] = guarded(vertex, partial(self._streaming, session, vertex, parallelism))
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

    def _streaming(
        self, session: SparkSession, vertex: JobVertex, parallelism: Mapping[str, int]
    ) -> DataFrame:
        if isinstance(vertex.operation, SourceSpec):
            frame = open_stream(session, vertex, self._splits)
            return _through(Label(vertex.id), frame, parallelism)
        check_keys(vertex, self._frames)
        inputs = dict(self._frames)
        streams = self.query.streaming_inputs(vertex)
        gathers = len(streams) > 1 and not vertex.stateful
        if len(streams) == 1 and not vertex.stateful:
            (edge,) = streams
            moves = edge.partitioner in (Partitioner.HASH, Partitioner.REBALANCE)
            front = Label(vertex.id, before=edge.vertex_id, spreads=moves)
            inputs[edge.vertex_id] = _through(front, inputs[edge.vertex_id], parallelism, edge.keys)
            if vertex.is_sink:
                return inputs[edge.vertex_id]
        frame = apply_operation(session, vertex, inputs, self._functions)
        # Where several streams come together, their tasks would add up.
        return _through(Label(vertex.id, spreads=gathers), frame, parallelism)


def _through(
    label: Label, frame: DataFrame, parallelism: Mapping[str, int], keys: Sequence[str] = ()
) -> DataFrame:
    """``frame`` with the valve of ``label`` in it. ``keys``: those by which rows go to tasks."""
    jvm: Any = frame.sparkSession._jvm
    number, shuffle = label.setting(parallelism)
    if keys:
        node = mark(jvm, analysed(frame.repartition(number, *keys)), label.text)
    else:
        node = new_valve(jvm, analysed(frame), number, shuffle=shuffle, label=label.text)
    return frame_in(frame.sparkSession, node)
