"""What Spark did in the batches of a query, and whether that is what its plan says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from app.driver.valves.running import Rows, Valves
from app.driver.valves.stages import StageReader, vertex_batches
from app.model.analysis import Query
from app.model.protocol import VertexBatch

if TYPE_CHECKING:
    from app.driver.gateway import BatchRun


class BatchReader:
    """Reads the batches of one run of a query, in the thread of its attempt."""

    def __init__(self, query: Query, valves: Valves, stages: StageReader) -> None:
        self._query = query
        self._valves = valves
        self._stages = stages
        self._judged = 0
        self._fault = ""

    def vertices(self, run: BatchRun, input_rows: int) -> tuple[VertexBatch, ...]:
        """What Spark says of each vertex in a batch of ``input_rows`` rows."""
        rows = self._valves.rows(run.planned)
        found = vertex_batches(
            self._query,
            run.plan.parallelism,
            rows.values(),
            self._stages.of_batch(run.batch_id),
            input_rows=input_rows,
            output_rows=run.output_rows,
        )
        if run.plan.whole and run.plan.number > self._judged:
            self._judged = run.plan.number
            removed = self._valves.removed(run.planned, has_rows=input_rows > 0)
            self._fault = fault(self._query, run.plan.parallelism, rows, removed, found)
        return found

    def not_followed(self, number: int) -> str:
        """A sentence on a vertex that has other tasks than the plan with this number says, in the first batch at it;
        empty if there is none, or no such batch."""
        return self._fault if self._judged == number else ""


def fault(
    query: Query,
    parallelism: Mapping[str, int],
    rows: Mapping[str, Rows],
    removed: Sequence[str],
    found: tuple[VertexBatch, ...],
) -> str:
    """The sentence of `BatchReader.not_followed`.

    Fewer tasks are no fault where a valve only brings partitions together: a source may have fewer splits. Nor are they
    where the job reduces the tasks of a stage by itself, so what counts then is the valve.
    """
    names = {vertex.id: vertex.name for vertex in query.flow}
    for vertex_id in removed:
        return (
            f"Vertex {names[vertex_id]} does not run as {parallelism[vertex_id]} task(s): "
            "Spark has removed its valve from the plan."
        )
    for valve in rows.values():
        number = parallelism[valve.vertex_id]
        if valve.partitions > number or (valve.shuffles and valve.partitions < number):
            return _other(names[valve.vertex_id], valve.partitions, number)
    for vertex in found:
        if vertex.tasks is not None and vertex.tasks > vertex.parallelism:
            return _other(names[vertex.vertex_id], vertex.tasks, vertex.parallelism)
    return ""


def _other(name: str, tasks: int, number: int) -> str:
    return f"Vertex {name} runs as {tasks} task(s) instead of {number}, which its valve says."
