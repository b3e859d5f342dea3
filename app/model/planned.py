"""What a driver reads from the plans of a program: the graph of its streaming queries, before any of them runs.

The vertices of a query are its streaming sources, its operators that keep state, and its sink, inputs first. What lies
between two of them (filters, projections, functions) runs in the stage of the one before it.
"""

from __future__ import annotations

from collections.abc import Mapping
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


def planned_to_json(planned: Planned) -> dict[str, object]:
    """What `planned_from_json` reads."""
    if planned.error is not None:
        return {"error": planned.error, "stack": planned.stack, "conflict": planned.conflict}
    return {
        "vertices": [
            {
                "name": vertex.name,
                "role": vertex.role.value,
                "operator": vertex.operator,
                "inputs": list(vertex.inputs),
                "stateful": vertex.stateful,
                "statePartitions": vertex.state_partitions,
                "checkpoint": vertex.checkpoint,
                "path": vertex.path,
                "fixed": vertex.fixed,
            }
            for vertex in planned.vertices
        ]
    }


def planned_from_json(value: Mapping[str, object]) -> Planned:
    """
    Raises:
        ValueError, TypeError, KeyError: it is nothing that `planned_to_json` made.
    """
    if "error" in value:
        error, stack = str(value["error"]), str(value.get("stack", ""))
        return Planned(error=error, stack=stack, conflict=value.get("conflict") is True)
    vertices = value["vertices"]
    if not isinstance(vertices, list):
        raise TypeError("vertices should be a list")
    return Planned(
        tuple(
            PlannedVertex(
                name=str(each["name"]),
                role=Role(each["role"]),
                operator=str(each["operator"]),
                inputs=tuple(map(str, each["inputs"])),
                stateful=bool(each["stateful"]),
                state_partitions=each["statePartitions"],
                checkpoint=None if each.get("checkpoint") is None else str(each["checkpoint"]),
                path=None if each.get("path") is None else str(each["path"]),
                fixed=None if each.get("fixed") is None else str(each["fixed"]),
            )
            for each in vertices
        )
    )
