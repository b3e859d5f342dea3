"""The graph of a program's streaming query, which a driver reads from its plan before it runs.

The vertices of a query are its streaming sources, its stateful operators, and its sink, inputs first. Operators
between two vertices (filters, projections, functions) run in the stage of the preceding vertex.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.model.jobgraph import JobVertex, PlannedSpec, Role


@dataclass(frozen=True, slots=True)
class PlannedVertex:
    """``name`` is unique in its program, and equal in every attempt. ``operator``: as in `jobgraph.PlannedSpec`.

    ``inputs`` are names. ``stateful``: it keeps state; then ``state_partitions`` is how many partitions the state of
    its query has, which is fixed by its checkpoint. ``checkpoint`` and ``path``, of a sink: as in
    `jobgraph.PlannedSpec`. ``fixed``, of an operator with state: as there.
    """

    name: str
    role: Role
    operator: str
    inputs: tuple[str, ...] = ()
    stateful: bool = False
    state_partitions: int | None = None
    checkpoint: str | None = None
    path: str | None = None
    fixed: str | None = None


def planned_of(vertex: JobVertex) -> PlannedVertex:
    """``vertex`` of a job graph as a driver tells of it, but for the partitions of its state."""
    of = vertex.operation
    assert isinstance(of, PlannedSpec)
    inputs = tuple(edge.vertex_name for edge in vertex.inputs)
    own = (vertex.name, of.role, of.operator, inputs, vertex.stateful)
    return PlannedVertex(*own, checkpoint=of.checkpoint, path=of.path, fixed=of.fixed)
