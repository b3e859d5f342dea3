"""The valves of a graph document's query: one behind each of its vertices, and one in front of those without state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from app.driver.valves.spark import analysed, frame_of, mark, new_valve
from app.model.analysis import Query
from app.model.jobgraph import Partitioner, VertexInput

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def label_before(vertex_id: str) -> str:
    return f"before {vertex_id}"


def label_behind(vertex_id: str) -> str:
    return f"behind {vertex_id}"


@dataclass(frozen=True, slots=True)
class GraphValve:
    """``edge``: what the valve in front of a vertex lets in; None: it is behind the vertex. ``gathers``: behind it,
    where several streams come together, whose tasks add up."""

    vertex_id: str
    edge: VertexInput | None = None
    gathers: bool = False

    @property
    def label(self) -> str:
        return label_behind(self.vertex_id) if self.edge is None else label_before(self.vertex_id)

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys by which rows go to tasks; with them they always move."""
        return self.edge.keys if self.edge is not None and self.edge.partitioner is Partitioner.HASH else ()

    def shuffles(self, parallelism: Mapping[str, int]) -> bool:
        """Whether rows move here. FORWARD ones do only if they must."""
        edge = self.edge
        if edge is None:
            return self.gathers
        if self.keys or edge.partitioner is Partitioner.REBALANCE:
            return True
        return parallelism[edge.vertex_id] != parallelism[self.vertex_id]

    def setting(self, parallelism: Mapping[str, int]) -> tuple[int, bool]:
        """The number of the valve, and whether it shuffles."""
        return parallelism[self.vertex_id], self.shuffles(parallelism)

    def over(self, frame: DataFrame, parallelism: Mapping[str, int]) -> DataFrame:
        """``frame`` with this valve in it."""
        jvm: Any = frame.sparkSession._jvm
        number, shuffle = self.setting(parallelism)
        if self.keys:
            node = mark(jvm, analysed(frame.repartition(number, *self.keys)), self.label)
        else:
            node = new_valve(jvm, analysed(frame), number, shuffle=shuffle, label=self.label)
        return frame_of(frame, node)


def behind_state(
    query: Query, valves: Mapping[str, GraphValve], parallelism: Mapping[str, int]
) -> dict[str, list[str]]:
    """By the id of each stateful vertex: the labels of the valves in the stage that begins with it, inputs first."""
    stages = {vertex.id: [label_behind(vertex.id)] for vertex in query.stateful}
    start = {vertex.id: vertex.id for vertex in query.stateful}
    for vertex in query.flow:
        front = valves.get(label_before(vertex.id))
        if front is None or front.edge is None or front.shuffles(parallelism):
            continue
        if begun := start.get(front.edge.vertex_id):
            start[vertex.id] = begun
            stages[begun] += [front.label] if vertex.is_sink else [front.label, label_behind(vertex.id)]
    return stages
