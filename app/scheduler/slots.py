"""SlotAllocator: how many slots a job needs, what parallelism a number of slots allows, and which slots to take.

FLIP-160's component of that name, with the distribution of production Flink: a slot sharing group needs the largest
of its vertices' bounds, a job the sum over its groups. Every tie is broken by declared order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

from app.model.batch_layout import layout_of
from app.model.jobgraph import JobGraph
from app.model.plan import Plan, Slot
from app.model.requirements import Bounds, Requirements
from app.model.value import value


@value
class GroupBounds:
    """The bounds of a slot sharing group, in slots: the largest lower and the largest upper bound of its vertices."""

    name: str
    lower: int
    upper: int


@value
class Demand:
    """What requirements ask for, worked out once: bounds per vertex id and per group, and slots.

    With ``desired`` slots every vertex runs at its upper bound; without ``minimal`` slots the job cannot run.
    """

    graph: JobGraph
    requirements: Requirements
    bounds: Mapping[str, Bounds]
    groups: tuple[GroupBounds, ...]
    desired: int
    minimal: int

    @classmethod
    def of(cls, graph: JobGraph, requirements: Requirements) -> Demand:
        """A step asks for the same one again and again, so the last one is kept: all of it are values."""
        last = _last[0]
        if last is None or last.graph is not graph or last.requirements is not requirements:
            last = _last[0] = cls._worked_out(graph, requirements)
        return last

    @classmethod
    def _worked_out(cls, graph: JobGraph, requirements: Requirements) -> Demand:
        bounds = _within(graph, requirements.as_dict())
        if graph.runs_by_regions:
            return cls._of_batch(graph, requirements, bounds)
        groups = []
        desired = minimal = 0
        resting = graph.resting
        for name, members in graph.groups:
            # All vertices of a program are in one group, so it has some that need slots.
            own = [bounds[vertex] for vertex in members if vertex not in resting]
            group = GroupBounds(name, max([one.lower for one in own]), max([one.upper for one in own]))
            desired += group.upper
            minimal += group.lower
            groups.append(group)
        return cls(graph, requirements, bounds, tuple(groups), desired, minimal)

    @classmethod
    def _of_batch(cls, graph: JobGraph, requirements: Requirements, bounds: Mapping[str, Bounds]) -> Demand:
        """Regions run one after another, or side by side where there is room: the widest one counts.

        Vertices that are pipelined run together, so all tasks of their lower bounds must have a slot at once. Tasks
        of a vertex that is a region of its own take turns.
        """
        lower = max(
            max(bounds[vertex].lower for vertex in region.vertices) if len(region.vertices) > 1 else 1
            for region in layout_of(graph).regions.all
        )
        upper = max(own.upper for own in bounds.values())
        group = GroupBounds(graph.groups[0][0], lower, upper)
        return cls(graph, requirements, bounds, (group,), upper, lower)

    def parallelism(self, slot_count: int) -> dict[str, int] | None:
        """Per vertex id, what ``slot_count`` slots allow, in declared order; None if they do not suffice."""
        shares = distribute(self.groups, slot_count)
        return None if shares is None else self.per_vertex(shares)

    def per_vertex(self, shares: Mapping[str, int]) -> dict[str, int]:
        """The parallelism per vertex id with ``shares`` slots per group."""
        result = {}
        for vertex in self.graph.vertices:
            upper, share = self.bounds[vertex.id].upper, shares[vertex.slot_sharing_group]
            result[vertex.id] = upper if upper < share else share
        return result


_last: list[Demand | None] = [None]


def _within(graph: JobGraph, bounds: dict[str, Bounds]) -> dict[str, Bounds]:
    """``bounds`` as far as the max parallelism of each vertex allows: state may have to be redistributed first."""
    for vertex in graph.vertices:
        own, most = bounds[vertex.id], vertex.max_parallelism
        if own.upper > most:
            bounds[vertex.id] = Bounds(min(own.lower, most), most)
    return bounds


def distribute(groups: Sequence[GroupBounds], slot_count: int) -> dict[str, int] | None:
    """Slots per group, in declared order; None if there are fewer than the groups' lower bounds need.

    Groups with a narrow range are served first, each with an equal share of what is left above the lower bounds of
    the others; so remainders go to the groups with the widest range, and equal ranges in declared order.
    """
    remaining = sum(group.lower for group in groups)
    if remaining > slot_count:
        return None
    free = slot_count
    left = len(groups)
    shares: dict[str, int] = {}
    for group in sorted(groups, key=lambda one: one.upper - one.lower):
        share = (free - remaining) // left
        shares[group.name] = group.lower + min(group.upper - group.lower, share)
        remaining -= group.lower
        free -= shares[group.name]
        left -= 1
    return {group.name: shares[group.name] for group in groups}


def assign(
    demand: Demand,
    slots: Sequence[Slot],
    *,
    count: int | None = None,
    version: int,
    previous: Plan | None = None,
    prefer_minimal_taskmanagers: bool = True,
) -> Plan | None:
    """The plan for ``count`` of ``slots``, or for all of them; None if they do not suffice.

    A group keeps slots that it had in ``previous``, those on the fullest TaskManagers first. What is missing comes
    from TaskManagers that are in use anyway, then from those with the most free slots, so that few are needed; or in
    the order of ``slots`` if few TaskManagers are not preferred.
    """
    shares = distribute(demand.groups, len(slots) if count is None else count)
    if shares is None:
        return None
    manager_of = {slot.id: slot.task_manager_id for slot in slots}
    kept = _kept(shares, manager_of, previous, prefer_minimal_taskmanagers)
    if any([len(kept[name]) < count for name, count in shares.items()]):
        taken = set().union(*kept.values())
        free = [slot for slot in slots if slot.id not in taken]
        if prefer_minimal_taskmanagers:
            free = _fewest_managers_first(free, {manager_of[slot] for slot in taken})
        spare = iter([slot.id for slot in free])
        for name, count in shares.items():
            kept[name] = (*kept[name], *islice(spare, count - len(kept[name])))
    group_slots = tuple([(name, kept[name]) for name in shares])
    parallelism = demand.per_vertex(shares)
    return Plan(version=version, parallelism=tuple(parallelism.items()), group_slots=group_slots)


def _kept(
    shares: Mapping[str, int], manager_of: Mapping[str, str], previous: Plan | None, fullest_first: bool
) -> dict[str, tuple[str, ...]]:
    if previous is None:
        return {name: () for name in shares}
    held = {name: [slot for slot in own if slot in manager_of] for name, own in previous.group_slots}
    used: dict[str, int] = {}
    for own in held.values():
        for slot in own:
            used[manager_of[slot]] = used.get(manager_of[slot], 0) + 1
    kept: dict[str, tuple[str, ...]] = {}
    for name, count in shares.items():
        own = held.get(name, [])
        if fullest_first and len(own) > count:
            own = sorted(own, key=lambda slot: -used[manager_of[slot]])
        kept[name] = tuple(own[:count])
    return kept


def _fewest_managers_first(free: Sequence[Slot], in_use: set[str]) -> list[Slot]:
    counts: dict[str, int] = {}
    for slot in free:
        counts[slot.task_manager_id] = counts.get(slot.task_manager_id, 0) + 1
    order = {name: index for index, name in enumerate(counts)}
    return sorted(
        free,
        key=lambda slot: (
            slot.task_manager_id not in in_use,
            -counts[slot.task_manager_id],
            order[slot.task_manager_id],
        ),
    )
