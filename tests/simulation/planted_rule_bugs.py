"""Defects of the rules themselves: of regions, datasets, bounds, slots, and of what a job says of them.

Each stands for a wrong function of app.scheduler. Oracles that asked that function what is right would agree with it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from app.model import batch_layout as layout
from app.model import batch_regions as regions
from app.model.batch_regions import Region, Regions
from app.model.jobgraph import JobGraph, Partitioner
from app.model.requirements import Bounds
from app.model.value import evolve
from app.scheduler import explain, slots
from app.scheduler.adaptive import attempts, goal, in_place, starting
from app.scheduler.slots import Demand
from tests import invariants
from tests.simulation.planted_batch_bugs import instead
from tests.simulation.planted_member_bugs import several


@contextlib.contextmanager
def laid_out_anew(bug: contextlib.AbstractContextManager[None]) -> Iterator[None]:
    """Layouts are kept: none may be known from before ``bug``, nor from ``bug`` afterwards."""
    layout._known.clear()
    with bug:
        yield
    layout._known.clear()


def one_region() -> contextlib.AbstractContextManager[None]:
    """Every batch job is one region."""

    def regions_of(graph: JobGraph) -> Regions:
        return Regions((Region(0, tuple(vertex.id for vertex in graph.vertices), ()),))

    return laid_out_anew(instead(layout, "regions_of", regions_of))


def every_edge_a_border() -> contextlib.AbstractContextManager[None]:
    """Pipelined edges separate regions, too."""
    alone = lambda graph: {vertex.id: vertex.id for vertex in graph.vertices}  # noqa: E731
    return laid_out_anew(instead(regions, "_joined_by_pipelines", alone))


def dataset_forgotten() -> contextlib.AbstractContextManager[None]:
    """Of what a region leaves for others, the first dataset only is written."""
    original = layout.Layout.written_by
    return instead(layout.Layout, "written_by", lambda self, region: original(self, region)[:1])


def dataset_shared_by_others() -> contextlib.AbstractContextManager[None]:
    """Readers by other keys get the rows as they lie for the first one."""

    def partitioning(edge: Any) -> Any:
        found, keys = original(edge)
        return found, keys and ("k",)

    original = layout.partitioning
    return laid_out_anew(instead(layout, "partitioning", partitioning))


def dataset_for_each_reader() -> contextlib.AbstractContextManager[None]:
    """A broadcast result is written as if it were to be divided."""

    def partitioning(edge: Any) -> Any:
        found, keys = original(edge)
        return (Partitioner.REBALANCE if found is Partitioner.BROADCAST else found), keys

    original = layout.partitioning
    return laid_out_anew(instead(layout, "partitioning", partitioning))


def lower_bound_forgotten_when_taken_back() -> contextlib.AbstractContextManager[None]:
    """A job that has taken a rescale back has no lower bounds any more."""

    original = goal.bounds_after_rollback

    def effective(state: Any) -> Any:
        found = original(state)
        if state.trial.taken_back is None:
            return found
        return evolve(found, bounds=tuple((vertex, Bounds(1, own.upper)) for vertex, own in found))

    return instead(goal, "bounds_after_rollback", effective)


def more_than_the_slots_allow() -> contextlib.AbstractContextManager[None]:
    """Each vertex runs with one task more than its group has slots. Nor does the core check itself."""
    original = Demand.per_vertex

    def per_vertex(self: Demand, shares: Any) -> dict[str, int]:
        return original(self, {name: count + 1 for name, count in shares.items()})

    unchecked = tuple(one for one in invariants._CHECKS if "plans_fit" not in one.__name__)
    return several(instead(Demand, "per_vertex", per_vertex), instead(invariants, "_CHECKS", unchecked))


def remainder_to_the_first() -> contextlib.AbstractContextManager[None]:
    """A slot that cannot be divided goes to the group that is served first."""

    def distribute(groups: Any, slot_count: int) -> dict[str, int] | None:
        found = original(groups, slot_count)
        if found is None or len(found) < 2:
            return found
        first, last = groups[0], groups[-1]
        if found[last.name] == found[first.name] + 1 and found[first.name] < first.upper > last.lower:
            return {**found, first.name: found[first.name] + 1, last.name: found[last.name] - 1}
        return found

    original = slots.distribute
    return instead(slots, "distribute", distribute)


def a_slot_too_few() -> contextlib.AbstractContextManager[None]:
    """A job counts as able to run with one slot less than its lower bounds need."""
    original = Demand.of

    def of(graph: Any, requirements: Any) -> Demand:
        found = original(graph, requirements)
        return replace(found, minimal=max(1, found.minimal - 1))

    return instead(Demand, "of", staticmethod(of))


def said_to_be_satisfied() -> contextlib.AbstractContextManager[None]:
    """A job that runs outside of its bounds says of no vertex that it does."""
    original = explain.violations
    return several(
        instead(explain, "violations", lambda state: () if state.batch is None else original(state)),
        instead(invariants, "violations", original),
    )


def what_came_and_went_is_trusted() -> contextlib.AbstractContextManager[None]:
    """A start that was spoiled is followed by one in the same slots, if they are there again."""
    original = in_place.plan_for_slots

    def plan_for_slots(draft: Any, previous: Any) -> Any:
        draft.set_part("supply", stayed=())
        return original(draft, previous)

    return several(
        *(instead(owner, "plan_for_slots", plan_for_slots) for owner in (attempts, starting)),
    )


def never_comes_back() -> contextlib.AbstractContextManager[None]:
    """A job that was left to run below its lower bounds waits for them when it is down."""
    return instead(goal, "comes_back", lambda _state: False)


PLANTED: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
    "every batch job is one region": one_region,
    "a pipelined edge separates regions": every_edge_a_border,
    "a dataset is forgotten": dataset_forgotten,
    "a dataset is shared by readers of other keys": dataset_shared_by_others,
    "a broadcast dataset is divided": dataset_for_each_reader,
    "lower bounds are forgotten when a rescale is taken back": lower_bound_forgotten_when_taken_back,
    "vertices run at more than their slots allow": more_than_the_slots_allow,
    "the slot that is left over goes to another group": remainder_to_the_first,
    "a job is started with a slot too few": a_slot_too_few,
    "a job outside of its bounds says that all is well": said_to_be_satisfied,
    "a start after a spoiled one takes slots that come and go": what_came_and_went_is_trusted,
    "a job below its lower bounds does not come back": never_comes_back,
}
