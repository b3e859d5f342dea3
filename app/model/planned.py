"""The graph of a program's streaming queries, which a driver reads from their plans before any of them runs.

The vertices of a query are its streaming sources, its stateful operators, and its sink, inputs first. Operators
between two vertices (filters, projections, functions) run in the stage of the preceding vertex.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.model.jobgraph import Role


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


@dataclass(frozen=True, slots=True)
class Planned:
    """What a program turned out to be: its ``vertices``, or the sentence that says why it cannot be a job, with the
    stack of the program if it has one. ``conflict``: it is not the program that is wrong, but what is stored or runs
    does not go with it."""

    vertices: tuple[PlannedVertex, ...] = ()
    error: str | None = None
    stack: str = ""
    conflict: bool = False
