"""What the tests of valves share: a query with valves, changed at random while it runs."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from app.driver.valves.insert import insert_valves
from app.driver.valves.reading import read_query
from app.driver.valves.running import Valves
from app.driver.valves.spark import replace_frame, writer_facts, writer_frame
from app.model.planned import PlannedVertex
from app.model.protocol import VertexBatch

STATE_PARTITIONS = 4
DEADLINE_S = 60.0


def until(true: Callable[[], Any], query: StreamingQuery) -> Any:
    """What ``true`` answers, once that is true."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        if found := true():
            return found
        if not query.isActive:
            raise AssertionError(f"the query has ended: {query.exception()}")
        time.sleep(0.01)
    raise AssertionError("it did not come")


@dataclass
class Ran:
    """A batch: the numbers that it was planned with, and what Spark did for each vertex, by its name."""

    batch_id: int
    numbers: dict[str, int]
    vertices: dict[str, VertexBatch]

    @property
    def tasks(self) -> dict[str, int | None]:
        return {name: vertex.tasks for name, vertex in self.vertices.items()}


@dataclass
class Running:
    query: StreamingQuery
    vertices: tuple[PlannedVertex, ...]
    valves: Valves
    random: random.Random
    stateful: set[str] = field(default_factory=set)

    @property
    def names(self) -> list[str]:
        return [vertex.name for vertex in self.vertices]

    def at(self, parallelism: Mapping[str, int], *, data: bool = True) -> Ran:
        """Set these numbers; the first batch that was planned with them, once it is done."""
        self.valves.set(parallelism)
        return until(lambda: self._ran(parallelism, data), self.query)

    def _ran(self, parallelism: Mapping[str, int], data: bool) -> Ran | None:
        progress = self.query.lastProgress
        if progress is None or (data and not progress["numInputRows"]):
            return None
        batch_id = progress["batchId"]
        numbers = self.valves.in_force(batch_id)
        if numbers != parallelism:
            return None
        found = self.valves.vertex_batches(
            batch_id, {name: name for name in self.names}, parallelism, input_rows=progress["numInputRows"]
        )
        if all(each.tasks is None for each in found):
            # A later batch has been planned meanwhile.
            return None
        return Ran(batch_id, dict(numbers), {each.vertex_id: each for each in found})

    def at_random(self, most: int = STATE_PARTITIONS) -> Ran:
        return self.at({name: self.random.randint(1, most) for name in self.names})


@contextmanager
def running(writer: DataStreamWriter, table: str | None = None, **numbers: int) -> Iterator[Running]:
    """The query of ``writer`` with valves, each at 2 or at what ``numbers`` says; stopped at the end."""
    facts = writer_facts(writer, table)
    frame = writer_frame(writer)
    vertices = read_query(frame, facts, (), STATE_PARTITIONS)
    parallelism = {vertex.name: numbers.get(vertex.name, 2) for vertex in vertices}
    replace_frame(writer, insert_valves(frame, vertices, parallelism))
    query = writer.toTable(table) if table else writer.start()
    try:
        yield Running(query, vertices, Valves(query, vertices), random.Random(21))
    finally:
        query.stop()
