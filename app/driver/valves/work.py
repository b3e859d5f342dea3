"""The split of a stage's run time among the vertices that share it.

Spark measures a stage, and a few operators: what runs in Python, and what keeps state. Their time is that of their
vertices. The rest is split by how many operators of a vertex had how many rows: that is an estimate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from app.driver.valves.operators import Operator, below


@dataclass(frozen=True, slots=True)
class Part:
    """What is known of the work of a vertex in a stage. ``passes``: rows, once for each operator that had them."""

    timed_ms: int = 0
    passes: int = 0


def shares(busy_ms: int, parts: Mapping[str, Part]) -> dict[str, int]:
    """``busy_ms`` split among vertices; the sum is ``busy_ms``."""
    timed = sum(part.timed_ms for part in parts.values())
    rest = max(0, busy_ms - timed)
    # A metric of an operator that waits for others may be longer than the stage.
    scale = min(1.0, busy_ms / timed) if timed else 0.0
    passes = sum(part.passes for part in parts.values())
    found: dict[str, int] = {}
    before = exact = 0.0
    for vertex_id, part in parts.items():
        fraction = part.passes / passes if passes else 1 / len(parts)
        exact += part.timed_ms * scale + rest * fraction
        found[vertex_id] = round(exact) - round(before)
        before = exact
    return found


def parts_of(
    members: Sequence[str], rdd_ids: frozenset[int], operators: Sequence[Operator]
) -> dict[str, Part]:
    """The work of each vertex in the stage whose tasks went through ``rdd_ids``, in which ``members`` have valves."""
    found = dict.fromkeys(members, Part())
    for top in operators:
        if top.parent is not None and not top.parent.begins_stage:
            continue
        inside = list(_stage(top))
        if not any(each.valve is not None and each.valve.rdd_id in rdd_ids for each in inside):
            continue
        for operator in inside:
            vertex_id = _owner(operator)
            if vertex_id in found:
                part = found[vertex_id]
                passes = part.passes + (operator.rows or 0 if operator.works else 0)
                found[vertex_id] = Part(part.timed_ms + operator.timed_ms, passes)
    if members and operators:
        # What a sink does is not in the plan.
        found = _with_sink(found, operators)
    return found


def _with_sink(parts: dict[str, Part], operators: Sequence[Operator]) -> dict[str, Part]:
    valve = next((each for each in operators if each.valve is not None), None)
    if valve is None or valve.valve is None or (sink := valve.valve.vertex_id) not in parts:
        return parts
    part = parts[sink]
    return {**parts, sink: Part(part.timed_ms, part.passes + (valve.rows or 0))}


def _stage(top: Operator) -> Iterator[Operator]:
    """``top`` and what runs in its stage. An exchange at the end of it is read there."""
    yield top
    if not top.begins_stage:
        for child in top.children:
            yield from _stage(child)


def _owner(operator: Operator) -> str:
    """The vertex whose valve is the next one above in the stage, or below if that valve belongs to what follows."""
    node: Operator | None = operator
    while node is not None:
        if node.valve is not None and not (node.valve.is_front and node is not operator):
            return node.valve.vertex_id
        if node.valve is not None or node.parent is None or node.parent.begins_stage:
            break
        node = node.parent
    return next((each.valve.vertex_id for each in below(operator) if each.valve is not None), "")
