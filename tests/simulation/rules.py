"""The rule book of the oracles: which regions, results, slots and partitions a job has by the documents.

It shares nothing with app.scheduler, neither code nor way of working: what is computed there is here what is left when
everything that the rules forbid is crossed out (docs/batch.md, docs/slots.md, docs/state-partitions.md).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from functools import cached_property

from app.model.batch import Dataset
from app.model.jobgraph import Exchange, JobGraph, JobType, Partitioner, VertexInput
from app.model.requirements import Bounds, Requirements
from app.model.scaling_policy import FloorCeiling, ScalingPolicy
from app.scheduler.adaptive.state import JobState

# ---- regions, and what they leave for each other


def regions(graph: JobGraph) -> tuple[tuple[str, ...], ...]:
    """The vertices of each region, each region after those that it reads, otherwise in the order of the graph.

    A blocking edge makes its reader wait for its producer, a pipelined one each of them for the other. Whoever waits
    for each other, also by way of others, is one region.
    """
    waits_for: dict[str, set[str]] = {vertex.id: set() for vertex in graph.vertices}
    for vertex in graph.vertices:
        for edge in vertex.inputs:
            waits_for[vertex.id].add(edge.vertex_id)
            if edge.exchange is Exchange.PIPELINED:
                waits_for[edge.vertex_id].add(vertex.id)
    needs = {name: _reached(name, waits_for) for name in waits_for}
    left = list(
        dict.fromkeys(tuple(two for two in needs if two in needs[one] and one in needs[two]) for one in needs)
    )
    found: list[tuple[str, ...]] = []
    while left:
        done = {vertex for region in found for vertex in region}
        found.append(next(one for one in left if needs[one[0]] <= done.union(one)))
        left.remove(found[-1])
    return tuple(found)


def _reached(start: str, steps: Mapping[str, Iterable[str]]) -> set[str]:
    reached = {start}
    while more := {two for one in reached for two in steps[one]} - reached:
        reached |= more
    return reached


def lie(edge: VertexInput) -> tuple[Partitioner, tuple[str, ...]]:
    """How rows have to lie for the reader of ``edge``: by the keys that it names, whole, or as they come."""
    if edge.partitioner is Partitioner.BROADCAST:
        return Partitioner.BROADCAST, ()
    by_keys = edge.partitioner is Partitioner.HASH and len(edge.keys) > 0
    return (Partitioner.HASH, edge.keys) if by_keys else (Partitioner.REBALANCE, ())


class Layout:
    """The regions and datasets of a graph. Regions are meant by number.

    A producer leaves one dataset for each way in which its rows have to lie for readers in other regions, however many
    read it; they are numbered as the graph asks for them. ``edges``: over which edges (reader, producer) each region
    reads, and which dataset.
    """

    def __init__(self, graph: JobGraph) -> None:
        self.regions = regions(graph)
        self.region_of = {vertex: number for number, one in enumerate(self.regions) for vertex in one}
        self.datasets: dict[str, Dataset] = {}
        self.edges: dict[int, dict[tuple[str, str], str]] = {
            number: {} for number in range(len(self.regions))
        }
        crossing = [
            (edge.vertex_id, lie(edge), vertex.id)
            for vertex in graph.vertices
            for edge in vertex.inputs
            if self.region_of[edge.vertex_id] != self.region_of[vertex.id]
        ]
        for producer, group in itertools.groupby(
            sorted(crossing, key=lambda one: one[0]), key=lambda one: one[0]
        ):
            own = list(group)
            for number, way in enumerate(dict.fromkeys(asked for _, asked, _ in own)):
                readers = tuple(reader for _, asked, reader in own if asked == way)
                one = Dataset(f"{producer}-{number}", producer, *way, readers)
                self.datasets[one.id] = one
                for reader in readers:
                    self.edges[self.region_of[reader]][reader, producer] = one.id
        self.producer = {one.id: self.region_of[one.producer] for one in self.datasets.values()}
        self.readers = {
            one.id: {self.region_of[own] for own in one.readers} for one in self.datasets.values()
        }

    @cached_property
    def reads(self) -> dict[int, tuple[str, ...]]:
        """The datasets that each region reads."""
        return {number: tuple(dict.fromkeys(own.values())) for number, own in self.edges.items()}

    @cached_property
    def leaves(self) -> dict[int, tuple[str, ...]]:
        """The datasets that each region leaves."""
        return {
            number: tuple(name for name, own in self.producer.items() if own == number)
            for number in range(len(self.regions))
        }


# ---- slots

_NO_POLICY = ScalingPolicy()


def limits_of(policy: ScalingPolicy, vertex: str) -> FloorCeiling:
    """A limit of its own goes before that for all vertices."""
    own, every = dict(policy.vertices).get(vertex, FloorCeiling()), policy.all_vertices
    return FloorCeiling(
        every.floor if own.floor is None else own.floor,
        every.ceiling if own.ceiling is None else own.ceiling,
    )


def declared_within(graph: JobGraph, requirements: Requirements, policy: ScalingPolicy) -> dict[str, Bounds]:
    """What of the numbers from the lower to the upper bound is between floor and ceiling; the one of them that is
    nearest to the bounds if nothing is. A floor counts up to the partitions that there are or are to be."""
    found = {}
    for vertex, own in requirements:
        limits = limits_of(policy, vertex)
        most = max(own.upper, graph.by_id[vertex].max_parallelism)
        floor = min(limits.floor or 1, most)
        allowed = range(floor, (most if limits.ceiling is None else limits.ceiling) + 1)
        inside = [count for count in range(own.lower, own.upper + 1) if count in allowed]
        if not inside:
            inside = [allowed[0] if own.upper < allowed[0] else allowed[-1]]
        found[vertex] = Bounds(inside[0], inside[-1])
    return found


def bounds_now(
    graph: JobGraph,
    requirements: Requirements,
    back_in_force: Mapping[str, int] | None = None,
    policy: ScalingPolicy = _NO_POLICY,
) -> dict[str, Bounds]:
    """Between what each vertex may run.

    Never above the partitions of its state. Once a rescale was taken back, at no more than what is ``back_in_force``,
    as far as that names a vertex; which may be below the lower bound, and above the upper one, but not above the
    ceiling of ``policy``.
    """
    found, counting = {}, declared_within(graph, requirements, policy)
    for vertex in graph.vertices:
        declared = counting[vertex.id]
        most = (back_in_force or {}).get(vertex.id, declared.upper)
        most = min(most, vertex.max_parallelism, limits_of(policy, vertex.id).ceiling or most)
        found[vertex.id] = Bounds(min(declared.lower, most), most)
    return found


def need_slots(graph: JobGraph) -> set[str]:
    """The vertices that do: not those whose queries have all ended or were left out, unless nothing else is left."""
    reads = {vertex.id: [edge.vertex_id for edge in vertex.inputs] for vertex in graph.vertices}
    idle = {*graph.ended, *graph.left_out}
    at_work = [vertex.id for vertex in graph.vertices if vertex.is_sink and vertex.id not in idle]
    if not idle or not at_work:
        return set(reads)
    return set().union(*(_reached(sink, reads) for sink in at_work))


def _groups(graph: JobGraph, bounds: Mapping[str, Bounds]) -> dict[str, tuple[int, int]]:
    """The slots of each slot sharing group: its vertices take turns in them, so the largest bounds count."""
    counting = [vertex for vertex in graph.vertices if vertex.id in need_slots(graph)]
    names = dict.fromkeys(vertex.slot_sharing_group for vertex in graph.vertices)
    members = {name: [bounds[one.id] for one in counting if one.slot_sharing_group == name] for name in names}
    return {
        name: (max(one.lower for one in own), max(one.upper for one in own)) for name, own in members.items()
    }


def least_slots(graph: JobGraph, bounds: Mapping[str, Bounds]) -> int:
    """The slots that a job cannot do without.

    Of a BATCH job: vertices that run together need all tasks of their lower bounds at once; a vertex that is a region
    of its own needs one slot, since its tasks take turns.
    """
    if graph.type is JobType.BATCH:
        return max(
            max(bounds[vertex].lower for vertex in region) if len(region) > 1 else 1
            for region in regions(graph)
        )
    return sum(lower for lower, _ in _groups(graph, bounds).values())


def comes_back(state: JobState, least: int) -> bool:
    """Whether a job that is down may start with fewer slots than the ``least`` of its bounds: it has committed a batch,
    ran with fewer last, and there are fewer now."""
    last = state.last_plan
    if state.plan is not None or last is None or state.trial.unproven:
        return False
    return last.slot_count < least and state.usable_slots < least


def groups_of(graph: JobGraph) -> int:
    """The slots without which no job runs at all."""
    names = {vertex.slot_sharing_group for vertex in graph.vertices}
    return 1 if graph.type is JobType.BATCH else len(names)


def most_slots(graph: JobGraph, bounds: Mapping[str, Bounds]) -> int:
    """The slots with which every vertex runs at its upper bound."""
    if graph.type is JobType.BATCH:
        return max(one.upper for one in bounds.values())
    return sum(upper for _, upper in _groups(graph, bounds).values())


def parallelism(graph: JobGraph, bounds: Mapping[str, Bounds], slots: int) -> dict[str, int] | None:
    """What so many slots allow a STREAMING job; None if they are too few.

    Of all divisions that there are the one whose group with least above its lower bounds has most, then the one with
    the next least, and so on. Of equally good ones that in which the group with the wider range, and of equal ones the
    one declared later, has more.
    """
    groups = _groups(graph, bounds)
    widest = sorted(range(len(groups)), key=lambda n: (_width(list(groups.values())[n]), n), reverse=True)
    best: tuple[list[int], list[int]] | None = None
    for extra in itertools.product(*(range(_width(one) + 1) for one in groups.values())):
        if sum(extra) + sum(lower for lower, _ in groups.values()) <= slots:
            rank = (sorted(extra), [extra[n] for n in widest])
            best = rank if best is None else max(best, rank)
    if best is None:
        return None
    extra_of = dict(zip(widest, best[1], strict=True))
    share = {name: lower + extra_of[n] for n, (name, (lower, _)) in enumerate(groups.items())}
    return {
        vertex.id: min(bounds[vertex.id].upper, share[vertex.slot_sharing_group]) for vertex in graph.vertices
    }


def _width(group: tuple[int, int]) -> int:
    return group[1] - group[0]


# ---- state


def partitions(graph: JobGraph) -> dict[str, int]:
    """The state partitions of each query that has state, by the id of its sink: as many as the largest of its stateful
    vertices asks for."""
    inputs = {vertex.id: [edge.vertex_id for edge in vertex.inputs] for vertex in graph.vertices}
    found = {}
    for sink in graph.vertices:
        behind = _reached(sink.id, inputs) if sink.is_sink else set()
        asked = [one.max_parallelism for one in graph.vertices if one.stateful and one.id in behind]
        if asked:
            found[sink.id] = max(asked)
    return found
