"""What Spark did in the batches of a query, and whether that is what its plan says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.driver.valves.running import Rows, Valves
from app.driver.valves.stages import StageReader, vertex_batches
from app.model.analysis import Query
from app.model.protocol import VertexBatch

if TYPE_CHECKING:
    from app.driver.gateway import BatchRun


@dataclass(frozen=True, slots=True)
class Fault:
    """A vertex that has other tasks in a batch than its plan says, or whose valve was removed: the ``sentence`` on it.
    Empty: there is none."""

    vertex_id: str = ""
    sentence: str = ""


NO_FAULT = Fault()


def told_faults(*faults: Fault) -> dict[str, str]:
    """The fields of a report on the first of them, if there is one."""
    first = next((each for each in faults if each.sentence), NO_FAULT)
    return {"not_followed": first.sentence, "not_followed_vertex": first.vertex_id}


class BatchReader:
    """Reads the batches of one run of a query, in the thread of its attempt."""

    def __init__(self, query: Query, valves: Valves, stages: StageReader) -> None:
        self._query = query
        self._valves = valves
        self._stages = stages
        self._judged = 0
        self._fault = self._before = NO_FAULT

    def vertices(self, run: BatchRun, input_rows: int) -> tuple[VertexBatch, ...]:
        """What Spark says of each vertex in a batch of ``input_rows`` rows."""
        rows, removed = self._valves.read(run.planned)
        found = vertex_batches(
            self._query,
            run.plan.parallelism,
            rows.values(),
            self._stages.of_batch(run.batch_id),
            input_rows=input_rows,
            output_rows=run.output_rows,
        )
        # A batch without rows lacks valves that the plan has, and one that Spark has left behind tells of none.
        if input_rows > 0 and run.planned is not None and run.plan.whole:
            self._judged = run.plan.number
            self._before = self._fault
            self._fault = fault(self._query, run.plan.parallelism, rows, removed, found)
        return found

    def not_followed(self, number: int) -> Fault:
        """That of the latest batch that was judged, if it was at the plan with this number."""
        return self._fault if self._judged == number else NO_FAULT

    @property
    def stays_unfollowed(self) -> Fault:
        """That of the latest batch, if the batch before had one in the same vertex: one alone says little."""
        return (
            self._fault
            if self._fault.sentence and self._fault.vertex_id == self._before.vertex_id
            else NO_FAULT
        )


def fault(
    query: Query,
    parallelism: Mapping[str, int],
    rows: Mapping[str, Rows],
    removed: Sequence[str],
    found: tuple[VertexBatch, ...],
) -> Fault:
    """What is wrong in a batch at these numbers.

    Fewer tasks are no fault where a valve only brings partitions together: a source may have fewer splits. Nor are they
    where the job reduces the tasks of a stage by itself, so what counts then is the valve.
    """
    names = {vertex.id: vertex.name for vertex in query.flow}
    for vertex_id in removed:
        return Fault(
            vertex_id,
            f"Vertex {names[vertex_id]} does not run as {parallelism[vertex_id]} task(s): "
            "Spark has removed its valve from the plan.",
        )
    for valve in rows.values():
        number = parallelism[valve.vertex_id]
        if valve.partitions > number or (valve.shuffles and valve.partitions < number):
            return Fault(valve.vertex_id, _other(names[valve.vertex_id], valve.partitions, number))
    for vertex in found:
        if vertex.tasks is not None and vertex.tasks > vertex.parallelism:
            return Fault(vertex.vertex_id, _other(names[vertex.vertex_id], vertex.tasks, vertex.parallelism))
    return NO_FAULT


def _other(name: str, tasks: int, number: int) -> str:
    return f"Vertex {name} runs as {tasks} task(s) instead of {number}, which its valve says."
