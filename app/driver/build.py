"""Builds a query's streaming plan (its head), and applies what follows (its tail) to each micro-batch.

Where a vertex gets its parallelism: a built-in source from the control file in each batch; a stateful vertex by
``coalesce(P)`` over its state partitions; a stateless one by an exchange in front of it where its parallelism
differs from its input's, or where its edge asks for one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from app.driver.functions import Functions
from app.driver.plan_check import check_plan
from app.driver.sources import open_stream, read_static
from app.driver.sources.control import ControlFile
from app.driver.state_places import StatePlaces
from app.driver.vertices import apply_operation, guarded
from app.model.analysis import Query
from app.model.jobgraph import JobVertex, Partitioner, SourceSpec, VertexInput

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class QueryBuilder:
    """One query's vertices as DataFrames.

    ``groups`` says, once the head is built and as the tail is applied, which vertices share a stage, first to last.
    """

    def __init__(
        self,
        query: Query,
        *,
        control: ControlFile,
        functions: Functions,
        checkpoint_dir: Path,
        places: StatePlaces | None = None,
    ) -> None:
        """``places``: where on a cluster the state partitions are that the cut has; None without a cluster."""
        self.query = query
        self._places = places
        self._control = control
        self._functions = functions
        self._checkpoint_dir = checkpoint_dir
        self._static: dict[str, JobVertex] = {}
        self._head_groups: list[tuple[str, ...]] = []
        self._frames: dict[str, DataFrame] = {}

    def head(self, session: SparkSession, parallelism: Mapping[str, int]) -> DataFrame:
        """The streaming plan up to the cut, in ``session``, which is the query's own.

        Raises:
            DriverError: a vertex cannot be built, with its name.
        """
        frames: dict[str, DataFrame] = {}
        for vertex in self.query.static:
            frames[vertex.id] = guarded(vertex, partial(self._static_frame, session, vertex, frames))
        groups: dict[str, tuple[str, ...]] = {}
        for vertex in self.query.head:
            frame = guarded(vertex, partial(self._head_vertex, session, vertex, frames, parallelism, groups))
            frames[vertex.id] = frame
        self._head_groups = list(groups.values())
        self._frames = frames
        return frames[self.query.cut.id]

    def check(self, session: SparkSession) -> DataFrame:
        """Compare the document with what Spark makes of it, once `head` has been called with ``session``.

        The answer is what the sink would get, as a stream.

        Raises:
            DriverError: they do not agree.
        """
        return check_plan(self.query, session, self._frames, self._functions)

    @property
    def state_is_even(self) -> bool:
        """Whether no state has to move any more after the latest micro-batch."""
        return self._places is None or self._places.is_even

    @property
    def head_groups(self) -> int:
        """The number of stages up to the cut."""
        return len(self._head_groups)

    def tail(
        self, frame: DataFrame, parallelism: Mapping[str, int]
    ) -> tuple[DataFrame, list[tuple[str, ...]]]:
        """``frame``, a micro-batch at the cut, taken up to the sink's input; and the vertices per stage."""
        session = frame.sparkSession
        cut = self.query.cut
        groups = list(self._head_groups)
        if cut.stateful:
            coalesce = self._places.coalesce if self._places is not None else type(frame).coalesce
            frame = coalesce(frame, parallelism[cut.id])
        elif not cut.is_source:
            # Several streams come together: the number of their tasks is the sum of theirs.
            frame = frame.repartition(parallelism[cut.id])
            groups.append((cut.id,))
        width = parallelism[cut.id]
        static: dict[str, DataFrame] = {}
        for vertex in self.query.tail:
            edge = next(edge for edge in vertex.inputs if edge.vertex_id not in self._static)
            wanted = parallelism[vertex.id]
            if _needs_exchange(edge, width, wanted):
                frame = _exchange(frame, edge, wanted)
                groups.append((vertex.id,))
            else:
                groups[-1] = (*groups[-1], vertex.id)
            width = wanted
            if not vertex.is_sink:
                # An operation that shuffles by itself has as many tasks as Spark's default says: hence the coalesce.
                build = partial(self._apply_in_batch, session, vertex, edge, frame, static)
                frame = guarded(vertex, build).coalesce(wanted)
        return frame, groups

    # -- inside

    def _head_vertex(
        self,
        session: SparkSession,
        vertex: JobVertex,
        frames: dict[str, DataFrame],
        parallelism: Mapping[str, int],
        groups: dict[str, tuple[str, ...]],
    ) -> DataFrame:
        inner = vertex is not self.query.cut
        if inner or vertex.stateful or vertex.is_source:
            groups[vertex.id] = (vertex.id,)
        if isinstance(vertex.operation, SourceSpec):
            return open_stream(session, vertex, self._control, self.query.key, self._checkpoint_dir)
        wanted = parallelism[vertex.id]
        streaming = [edge for edge in vertex.inputs if edge.vertex_id not in self._static]
        if inner and not vertex.stateful and len(streaming) == 1:
            # Its parallelism is fixed while the query runs, its input's may change: always an exchange of its own.
            edge = streaming[0]
            source = _exchange(frames[edge.vertex_id], edge, wanted)
            return self._apply(session, vertex, {**frames, edge.vertex_id: source})
        frame = self._apply(session, vertex, frames)
        if inner:
            return frame.coalesce(wanted) if vertex.stateful else frame.repartition(wanted)
        return frame

    def _static_frame(
        self, session: SparkSession, vertex: JobVertex, frames: dict[str, DataFrame]
    ) -> DataFrame:
        if isinstance(vertex.operation, SourceSpec):
            frame = read_static(session, vertex)
            # Read anew in each batch of the tail: without a schema Spark would look into the file every time.
            ddl = frame._jdf.schema().toDDL()
            known = dataclasses.replace(vertex.operation, schema=vertex.operation.schema or ddl)
            self._static[vertex.id] = dataclasses.replace(vertex, operation=known)
        else:
            frame = self._apply(session, vertex, frames)
            self._static[vertex.id] = vertex
        return frame

    def _apply_in_batch(
        self,
        session: SparkSession,
        vertex: JobVertex,
        streaming: VertexInput,
        frame: DataFrame,
        static: dict[str, DataFrame],
    ) -> DataFrame:
        frames = {streaming.vertex_id: frame}
        for edge in vertex.inputs:
            if edge.vertex_id in self._static:
                frames[edge.vertex_id] = self._static_in_batch(session, edge.vertex_id, static)
        return self._apply(session, vertex, frames)

    def _static_in_batch(
        self, session: SparkSession, vertex_id: str, static: dict[str, DataFrame]
    ) -> DataFrame:
        if vertex_id not in static:
            vertex = self._static[vertex_id]
            if isinstance(vertex.operation, SourceSpec):
                frame = read_static(session, vertex)
            else:
                inputs = {
                    e.vertex_id: self._static_in_batch(session, e.vertex_id, static) for e in vertex.inputs
                }
                frame = self._apply(session, vertex, inputs)
            static[vertex_id] = frame
        return static[vertex_id]

    def _apply(self, session: SparkSession, vertex: JobVertex, frames: Mapping[str, DataFrame]) -> DataFrame:
        return apply_operation(session, vertex, frames, self._functions)


def _needs_exchange(edge: VertexInput, width: int, wanted: int) -> bool:
    """FORWARD rows move only if they must; HASH with keys and REBALANCE are asked for and always move."""
    if edge.partitioner is Partitioner.HASH and edge.keys:
        return True
    return edge.partitioner is Partitioner.REBALANCE or width != wanted


def _exchange(frame: DataFrame, edge: VertexInput, wanted: int) -> DataFrame:
    if edge.partitioner is Partitioner.HASH and edge.keys:
        return frame.repartition(wanted, *edge.keys)
    return frame.repartition(wanted)
