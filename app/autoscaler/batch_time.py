"""The model of the autoscaler: the duration of Spark's batches with other numbers of tasks.

Spark runs the stages of a micro-batch one after another, so the times of the vertices of a query add up, and when the
sum reaches a second per second the query can do no more. With q tasks instead of p, the time of a vertex is divided by
q / p, except for what its longest task takes beyond the average one: that is one key or one file, which no further
task shares. The time in which no task works (planning, offsets, commits) is per batch, whatever its rows.

docs/autoscaler.md derives it, and says where it is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from app.autoscaler.seen import Load, Snapshot, Vertex

LEAST_GAIN_MS: Final = 1.0
"""One more slot that saves less than this of each second is not asked for."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The least and the greatest upper bound that a vertex may be given."""

    least: int
    most: int

    def clamp(self, value: int) -> int:
        return max(self.least, min(self.most, value))


@dataclass(frozen=True, slots=True)
class Demand:
    """What the batches of a job have to do: ``factor`` times the rows of the measured time, in batches that may take
    ``batch_ms``. ``own_ms``: of each second, what the tasks of a query cost by themselves."""

    seen: Snapshot
    load: Load
    factor: float
    batch_ms: float
    own_ms: float = 0.0

    def needed_ms(self, tasks: Mapping[str, int]) -> list[float]:
        """The time per second that each query needs with these numbers of tasks, by vertex id."""
        busy_ms = longest_query_ms(self.seen)
        rows_share = 1 - min(1.0, self.own_ms / busy_ms) if busy_ms > 0 else 1.0
        times = self.factor * rows_share
        taken = {each.id: vertex_ms(each, tasks[each.id]) * times for each in self.seen.vertices}
        fixed_ms = self.fixed_ms
        return [fixed_ms + sum(taken[vertex_id] for vertex_id in query) for query in self.seen.queries]

    @property
    def fixed_ms(self) -> float:
        """What planning, committing and the tasks by themselves take of each second.

        A backlog is there when batches have as many rows as the source may give: the more rows, the more batches.
        Else Spark makes batches longer by itself when more rows come, and needs fewer of them; how long they may become
        says the policy.
        """
        load = self.load
        measured_ms = load.fixed_share * load.batch_ms_per_second + self.own_ms
        if load.backlog_rows:
            return measured_ms * self.factor
        return measured_ms * min(1.0, load.batch_ms / self.batch_ms)

    def utilization(self, tasks: Mapping[str, int]) -> float:
        """Of the query that is closest to its limit, which is 1."""
        return max(self.needed_ms(tasks), default=0.0) / 1000


def longest_query_ms(seen: Snapshot) -> float:
    """Busy time of the average tasks, of each second, of the query that has most of it."""
    busy_ms = {each.id: each.busy_ms for each in seen.vertices}
    return max((sum(busy_ms[vertex_id] for vertex_id in query) for query in seen.queries), default=0.0)


def vertex_ms(vertex: Vertex, tasks: int) -> float:
    """The time per second that a vertex needs with this number of tasks, for the measured rows."""
    uneven_ms = vertex.busy_ms * max(0.0, vertex.skew - 1.0)
    return vertex.busy_ms * vertex.parallelism / tasks + uneven_ms


def slots_of(vertices: Iterable[Vertex], tasks: Mapping[str, int]) -> int:
    """The slots that so many tasks take, by vertex id: each group as many as the most of its vertices."""
    groups: dict[str, int] = {}
    for each in vertices:
        groups[each.group] = max(groups.get(each.group, 0), tasks[each.id])
    return sum(groups.values())


def fitting_tasks(demand: Demand, limits: Mapping[str, Limits], target: float) -> dict[str, int]:
    """The fewest slots with which every query needs at most ``target`` of the time, as tasks per vertex id.

    A slot that a job holds for one stage is idle in its others, so every vertex of a slot sharing group gets as many
    tasks as the group has slots, as far as its limits allow. Of several groups the one that gains most gets the next
    slot. Where no slot gains anything any more, or the cluster has no more, it ends, though the target is not reached.
    """
    vertices = demand.seen.vertices
    groups = sorted({each.group for each in vertices})
    slots = {
        group: max(limits[each.id].least for each in vertices if each.group == group) for group in groups
    }
    highest = {
        group: max(limits[each.id].most for each in vertices if each.group == group) for group in groups
    }

    def tasks_of(slots: Mapping[str, int]) -> dict[str, int]:
        return {each.id: limits[each.id].clamp(slots[each.group]) for each in vertices}

    def missing_ms(slots: Mapping[str, int]) -> float:
        return sum(max(0.0, each - 1000 * target) for each in demand.needed_ms(tasks_of(slots)))

    missing = missing_ms(slots)
    while missing > 0:
        there_are = demand.seen.slots
        if there_are is not None and sum(slots.values()) >= there_are:
            break
        more = [slots | {group: slots[group] + 1} for group in groups if slots[group] < highest[group]]
        if not more:
            break
        least, chosen = min(((missing_ms(each), place) for place, each in enumerate(more)))
        if missing - least < min(LEAST_GAIN_MS, missing):
            break
        slots, missing = more[chosen], least
    return tasks_of(slots)
