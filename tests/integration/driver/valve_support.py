"""What the tests of valves share: a query with valves, changed at random while it runs."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from app.driver.load import SparkFigures
from app.driver.progress import Committed, committed_of
from app.driver.valves.insert import insert_valves
from app.driver.valves.query_valves import Valves
from app.driver.valves.shape import read_query
from app.driver.valves.spark import replace_frame, writer_facts, writer_frame
from app.driver.valves.stages import Told, vertex_batches
from app.model.analysis import Query, queries
from app.model.measured import VertexBatch
from app.model.planned import PlannedVertex
from tests.program_graphs import grown_program

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
    started: StreamingQuery
    query: Query
    valves: Valves
    figures: SparkFigures
    random: random.Random

    @property
    def names(self) -> list[str]:
        return [vertex.name for vertex in self.query.flow]

    def set(self, numbers: Mapping[str, int]) -> None:
        self.valves.set({vertex.id: numbers[vertex.name] for vertex in self.query.flow})

    def at(self, numbers: Mapping[str, int], *, data: bool = True) -> Ran:
        """Set these numbers; the first batch that was planned with them, once it is done."""
        self.set(numbers)
        return until(lambda: self._ran(numbers, data), self.started)

    def _ran(self, numbers: Mapping[str, int], data: bool) -> Ran | None:
        progress = self.started.lastProgress
        if progress is None or (data and not progress["numInputRows"]):
            return None
        ran = self.ran(progress["batchId"], progress["numInputRows"])
        # A later batch may have been planned meanwhile.
        return ran if ran is not None and ran.numbers == numbers else None

    def latest(self) -> Ran | None:
        """The latest batch that has ended, with all that Spark tells of it; None if a newer one is planned by now."""
        progress = self.started._jsq.lastProgress()
        if progress is None or not progress.numInputRows():
            return None
        # That of Python has offsets as texts.
        said = committed_of(json.loads(progress.json()))
        return self.ran(said.batch_id, said.input_rows, said)

    def ran(self, batch_id: int, input_rows: int | None = None, said: Committed | None = None) -> Ran | None:
        """The latest batch, if it is this one."""
        planned = self.valves.planned()
        if planned is None or int(planned.currentBatchId()) != batch_id:
            return None
        numbers = self.valves.in_force(planned)
        if numbers is None:
            return None
        rows, stages = (
            self.valves.read(planned)[0].values(),
            self.figures.stages(str(self.started.runId), batch_id),
        )
        told = Told()
        if said is not None:
            named = self.valves.sources
            operators = self.figures.operators(planned, rows)
            told = Told(operators, dict(zip(named, said.sources, strict=True)), said.states)
        found = vertex_batches(
            self.query, numbers, rows, stages, input_rows=input_rows, output_rows=None, told=told
        )
        names = {vertex.id: vertex.name for vertex in self.query.flow}
        return Ran(
            batch_id,
            {names[vertex_id]: number for vertex_id, number in numbers.items()},
            {names[each.vertex_id]: each for each in found},
        )

    def at_random(self, most: int = STATE_PARTITIONS) -> Ran:
        return self.at({name: self.random.randint(1, most) for name in self.names})


@contextmanager
def running(writer: DataStreamWriter, table: str | None = None, **numbers: int) -> Iterator[Running]:
    """The query of ``writer`` with valves, each at 2 or at what ``numbers`` says; stopped at the end."""
    facts = writer_facts(writer, table)
    frame = writer_frame(writer)
    vertices = read_query(frame, facts, (), STATE_PARTITIONS)
    query = query_of(vertices)
    ids = {vertex.name: vertex.id for vertex in query.flow}
    parallelism = {vertex_id: numbers.get(name, 2) for name, vertex_id in ids.items()}
    replace_frame(writer, insert_valves(frame, vertices, ids, parallelism))
    figures = SparkFigures(frame.sparkSession.sparkContext)
    # From now on it notes what tasks do.
    figures.executors()
    started = writer.toTable(table) if table else writer.start()
    try:
        valves = Valves(started, query, parallelism)
        yield Running(started, query, valves, figures, random.Random(21))
    finally:
        started.stop()


def query_of(vertices: tuple[PlannedVertex, ...]) -> Query:
    """The query of a program that was planned as ``vertices``."""
    program = {"name": "valves", "script": "job.py", "artifacts": ["job.py"]}
    (query,) = queries(grown_program(program, vertices))
    return query
