"""Defects to plant where the graph of a job grows with the queries that its program starts; see `planted_bugs`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from app.model.ids import derive_id
from app.model.requirements import Bounds
from app.scheduler import validate
from app.scheduler.adaptive import growth, rescaling
from app.scheduler.adaptive.events import QueryStarted
from app.scheduler.adaptive.evolve import evolve
from app.scheduler.adaptive.state import Rescaling
from app.worker.job import drivers, persistence
from tests.simulation.planted_batch_bugs import instead
from tests.simulation.planted_member_bugs import several
from tests.simulation.programs import MOST_QUERIES


def another_query_comes() -> contextlib.AbstractContextManager[None]:
    """The vertices of another query of the program come with those of the one that was started."""
    original = drivers.grown

    def other(name: str) -> str:
        return f"{name[:-1]}{(int(name[-1]) + 1) % MOST_QUERIES}"

    def grown(graph: Any, found: Any) -> Any:
        others = (replace(one, name=other(one.name), inputs=tuple(map(other, one.inputs))) for one in found)
        return original(graph, (*found, *others))

    return instead(drivers, "grown", grown)


def another_query_ends() -> contextlib.AbstractContextManager[None]:
    """It is not looked at which query has ended: the first one of the graph that has not counts as ended."""
    original = growth.note

    def note(draft: Any, event: Any) -> None:
        if not isinstance(event, QueryStarted):
            graph = draft.state.graph
            sinks = [one.id for one in graph.vertices if one.is_sink and one.id not in graph.ended]
            event = replace(event, query=sinks[0] if sinks else event.query)
        original(draft, event)

    return instead(growth, "note", note)


def bounds_lost_when_it_comes_again() -> contextlib.AbstractContextManager[None]:
    """A query that comes again has the bounds that it came with."""
    original = growth.note

    def note(draft: Any, event: Any) -> None:
        again = isinstance(event, QueryStarted) and event.query in draft.state.graph.ended
        original(draft, event)
        state = draft.state
        if not again or draft.state.timeline.open is not None:
            return
        own = growth._of_queries(state.graph, [event.query])
        bounds = tuple(
            (
                one.id,
                Bounds(one.lower_bound, one.parallelism) if one.id in own else state.requirements[one.id],
            )
            for one in state.graph.vertices
        )
        if bounds != state.requirements.bounds:
            number = state.requirements.version + 1
            uuid = derive_id(state.job_id, "requirements", number)
            reason = "The program has started a query with what it had."
            draft.set(
                requirements=evolve(
                    state.requirements, version=number, uuid=uuid, bounds=bounds, reason=reason
                )
            )

    return instead(growth, "note", note)


def beyond_the_slots() -> contextlib.AbstractContextManager[None]:
    """A vertex that comes is part of the plan with a task more than that has slots. Nor does the core check itself."""
    original = growth._add_to_plans

    def add_to_plans(draft: Any, graph: Any, new: Any) -> None:
        original(draft, graph, new)
        plan, came = draft.state.plan, dict(new)
        if plan is not None:
            most = plan.slot_count + 1
            more = tuple((one, most if one in came else count) for one, count in plan.parallelism)
            plan = evolve(plan, parallelism=more)
            draft.set(plan=plan, last_plan=plan)

    return several(instead(growth, "_add_to_plans", add_to_plans), _unchecked())


def not_stored() -> contextlib.AbstractContextManager[None]:
    """What comes is part of the state, and not of the document that is stored of the job."""
    return instead(persistence, "_is_other_graph", lambda _before, _after: False)


def target_without_it() -> contextlib.AbstractContextManager[None]:
    """The target of a rescale that is on its way stays as it is. Nor does the core check itself."""
    original, add_to_plans = rescaling.retarget, growth._add_to_plans
    came: set[str] = set()

    def noted(draft: Any, graph: Any, new: Any) -> None:
        add_to_plans(draft, graph, new)
        came.update(one for one, _ in new)

    def retarget(draft: Any) -> None:
        original(draft)
        phase = draft.state.phase
        if isinstance(phase, Rescaling) and came:
            left = tuple(pair for pair in phase.target.parallelism if pair[0] not in came)
            draft.set_phase(target=evolve(phase.target, parallelism=left))
        came.clear()

    return several(
        instead(growth, "_add_to_plans", noted), instead(rescaling, "retarget", retarget), _unchecked()
    )


def _unchecked() -> contextlib.AbstractContextManager[None]:
    left = tuple(one for one in validate._CHECKS if "plans_fit" not in one.__name__)
    return instead(validate, "_CHECKS", left)


PLANTED: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
    "vertices of another query come": another_query_comes,
    "another query counts as ended": another_query_ends,
    "bounds are lost when a query comes again": bounds_lost_when_it_comes_again,
    "a query comes with more tasks than slots": beyond_the_slots,
    "a graph that has grown is not stored": not_stored,
    "a plan on its way lacks a query that comes": target_without_it,
}
