"""The run time of a stage, split among the vertices that share it, for each of its tasks.

Spark measures the tasks of a stage, and a few operators in them: what runs in Python, and what keeps state. Their time
is that of their vertices. The rest of a task is split by how many operators of a vertex had how many rows in it: that
is an estimate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from app.driver.load import Stage
from app.driver.valves.operators import Operator, added, below


@dataclass(frozen=True, slots=True)
class Part:
    """What is known of the work of a vertex in a task. ``passes``: rows, once for each operator that had them."""

    timed_ms: int = 0
    passes: int = 0


def shares_of_time(busy_ms: int, parts: Mapping[str, Part]) -> dict[str, int]:
    """``busy_ms`` split among vertices; the sum is ``busy_ms``."""
    timed = sum(part.timed_ms for part in parts.values())
    rest = max(0, busy_ms - timed)
    # A metric of an operator that waits for others may be longer than the task.
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


def times_by_task(
    stage: Stage, members: Sequence[str], operators: Sequence[Operator]
) -> dict[str, Sequence[int]]:
    """The run time of each task of a stage in ms, by the ids of the vertices ``members`` that have valves in it. A
    stage whose tasks were not noted is as one task."""
    run_ms = stage.by_task.run_ms
    if len(members) == 1:
        return {members[0]: run_ms or [stage.busy_ms]}
    works = _operators_of(members, stage.rdd_ids, operators)
    if not run_ms:
        parts = {
            vertex_id: Part(
                sum(each.timed_ms for each in own), sum(each.rows or 0 for each in own if each.works)
            )
            for vertex_id, own in works.items()
        }
        return {vertex_id: [ms] for vertex_id, ms in shares_of_time(stage.busy_ms, parts).items()}
    columns = {
        vertex_id: (
            _padded(added(each.timed_ms_by_task for each in own), len(run_ms)),
            _padded(added(each.rows_by_task for each in own if each.works), len(run_ms)),
        )
        for vertex_id, own in works.items()
    }
    tasks = [
        shares_of_time(
            ms, {key: Part(timed[number], passes[number]) for key, (timed, passes) in columns.items()}
        )
        for number, ms in enumerate(run_ms)
    ]
    return {vertex_id: [task[vertex_id] for task in tasks] for vertex_id in members}


def _padded(column: Sequence[int], length: int) -> list[int]:
    return [*column[:length], *[0] * (length - len(column))]


def _operators_of(
    members: Sequence[str], rdd_ids: frozenset[int], operators: Sequence[Operator]
) -> dict[str, list[Operator]]:
    """The operators of each vertex in the stage whose tasks went through ``rdd_ids``, in which ``members`` have
    valves."""
    found: dict[str, list[Operator]] = {vertex_id: [] for vertex_id in members}
    for top in operators:
        if top.parent is not None and not top.parent.begins_stage:
            continue
        inside = list(_in_stage(top))
        if not any(each.valve is not None and each.valve.rdd_id in rdd_ids for each in inside):
            continue
        for operator in inside:
            if (vertex_id := _owner(operator)) in found:
                found[vertex_id].append(operator)
    # What a sink does is not in the plan: it is as one more operator with the rows of its valve.
    valve = next((each for each in operators if each.valve is not None), None)
    if valve is not None and valve.valve is not None and valve.valve.vertex_id in found:
        found[valve.valve.vertex_id].append(_sink_of(valve))
    return found


def _sink_of(valve: Operator) -> Operator:
    rows = {"numOutputRows": valve.rows or 0}
    return Operator("Sink", False, rows, by_task={"numOutputRows": valve.rows_by_task})


def _in_stage(top: Operator) -> Iterator[Operator]:
    """``top`` and what runs in its stage. An exchange at the end of it is read there."""
    yield top
    if not top.begins_stage:
        for child in top.children:
            yield from _in_stage(child)


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
