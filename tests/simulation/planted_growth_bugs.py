"""Defects to plant where the graph of a job grows with the queries that its program starts; see `planted_bugs`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from app.model.analysis import queries
from app.model.ids import derive_id
from app.model.requirements import Bounds
from app.model.value import evolve
from app.scheduler.adaptive import (
    attempts,
    executing,
    growth,
    in_place,
    program_queries,
    rescaling,
    slot_declaration,
    timeline,
    trial,
    version_outcome,
    versions,
)
from app.scheduler.adaptive import draft as drafts
from app.scheduler.adaptive.events import QueryStarted
from app.scheduler.adaptive.state import Rescaling
from app.worker.job import drivers, persistence
from app.worker.job.building import Building
from tests import invariants
from tests.parts import with_part
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
    original = growth.take_query_event

    def note(draft: Any, event: Any) -> None:
        if not isinstance(event, QueryStarted):
            graph = draft.state.graph
            sinks = [one.id for one in graph.vertices if one.is_sink and one.id not in graph.ended]
            event = replace(event, query=sinks[0] if sinks else event.query)
        original(draft, event)

    return instead(growth, "take_query_event", note)


def bounds_lost_when_it_comes_again() -> contextlib.AbstractContextManager[None]:
    """A query that comes again has the bounds that it came with."""
    original = growth.take_query_event

    def note(draft: Any, event: Any) -> None:
        again = isinstance(event, QueryStarted) and event.query in draft.state.graph.ended
        original(draft, event)
        state = draft.state
        if not again or draft.state.timeline.open is not None:
            return
        own = program_queries.vertices_of_queries(state.graph, [event.query])
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
            draft.set_requirements(
                evolve(state.requirements, version=number, uuid=uuid, bounds=bounds, reason=reason)
            )

    return instead(growth, "take_query_event", note)


def beyond_the_slots(*, first: bool) -> contextlib.AbstractContextManager[None]:
    """A vertex that comes is part of the plan with a task more than that has slots. Nor does the core check itself.
    ``first``: only if it is one of the first query."""
    original = growth._add_to_plans

    def add_to_plans(draft: Any, graph: Any, new: Any, *, is_first: bool) -> None:
        original(draft, graph, new, is_first=is_first)
        plan, came = draft.state.plan, dict(new)
        if plan is not None and (is_first or not first):
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
    original, add_to_plans = in_place.retarget, growth._add_to_plans
    came: set[str] = set()

    def noted(draft: Any, graph: Any, new: Any, *, is_first: bool) -> None:
        add_to_plans(draft, graph, new, is_first=is_first)
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


def bounds_of_the_program_survive() -> contextlib.AbstractContextManager[None]:
    """The vertices of the first query have the bounds of the one that stood for the program."""
    original = growth._grow

    def grow(draft: Any, graph: Any, event: Any) -> None:
        if draft.state.graph.awaits_query:
            ((_, own),) = draft.state.requirements.bounds
            vertices = tuple(
                replace(one, lower_bound=own.lower, parallelism=own.upper) for one in graph.vertices
            )
            graph = evolve(graph, vertices=vertices)
        original(draft, graph, event)

    return instead(growth, "_grow", grow)


def bounds_by_name_forgotten() -> contextlib.AbstractContextManager[None]:
    """What the document says of vertices that come is not looked at."""
    original = drivers.grown

    def grown(graph: Any, found: Any) -> Any:
        return replace(original(replace(graph, bounds=()), found), bounds=graph.bounds)

    return instead(drivers, "grown", grown)


def bounds_left_behind() -> contextlib.AbstractContextManager[None]:
    """What was declared for vertices goes with them."""
    return instead(growth, "_with_bounds_of", lambda graph, _gone, _declared: graph.bounds)


def running_too_early() -> contextlib.AbstractContextManager[None]:
    """A program runs as soon as its attempt does."""
    original = drafts.status_of

    def status_of(state: Any) -> Any:
        return original(with_part(state, "driver", started=("a query",)))

    return several(*(instead(owner, "status_of", status_of) for owner in (drafts, persistence)))


def still_being_started() -> contextlib.AbstractContextManager[None]:
    """A program whose queries are known runs only when it has started one of them."""
    original = attempts.take_up_plan

    def take_up_plan(draft: Any, event: Any) -> bool:
        is_known = event.begun and not draft.state.graph.awaits_query
        return not is_known and original(draft, event)

    return instead(executing, "take_up_plan", take_up_plan)


def slots_for_nobody() -> contextlib.AbstractContextManager[None]:
    """Queries that do not come again keep their slots for ever."""
    return instead(growth, "LATE_MS", 10**12)


def left_out_while_it_runs() -> contextlib.AbstractContextManager[None]:
    """All queries that there are count as ones that have not come."""

    def keys(state: Any) -> list[str]:
        return [query.key for query in queries(state.graph) if query.key not in state.graph.left_out]

    return instead(growth, "_late_keys", keys)


def slots_of_the_program() -> contextlib.AbstractContextManager[None]:
    """The slots that were asked for when no query was known are asked for on."""
    original = slot_declaration.asked_for
    asked: dict[str, tuple[int, int]] = {}
    kept_under: dict[str, int] = {}

    def asked_for(state: Any, goal: Any) -> tuple[int, int]:
        if state.graph.awaits_query:
            asked[state.job_id] = original(state, goal)
        elif state.job_id in asked:
            version = kept_under.setdefault(state.job_id, state.requirements.version)
            if version == state.requirements.version:
                return asked[state.job_id]
        return original(state, goal)

    return instead(slot_declaration, "asked_for", asked_for)


def record_of_the_program() -> contextlib.AbstractContextManager[None]:
    """The record of the start keeps the vertex that stood for the program."""
    original = timeline.draw_grown

    def draw_grown(draft: Any, new: Any) -> None:
        record = draft.state.timeline.open
        original(draft, new)
        draft.set_timeline(open=evolve(draft.state.timeline.open, vertices=record.vertices))

    return instead(timeline, "draw_grown", draw_grown)


def proven_without_its_state() -> contextlib.AbstractContextManager[None]:
    """A version is proven by the queries that it has started, whatever it has left out."""
    return instead(trial, "_waits_for_state", lambda _state: False)


def queries_lost_by_a_version() -> contextlib.AbstractContextManager[None]:
    """A version begins with the queries that there were when it was asked for."""
    return instead(versions, "_with_queries_of", lambda graph, _before: graph)


def environment_not_waited_for() -> contextlib.AbstractContextManager[None]:
    """A version that is to have an environment of its own comes at once."""
    original = versions._note_requested

    def note_requested(draft: Any, event: Any) -> None:
        original(draft, event)
        version_outcome.change_replacement(draft, stage="Waits")

    return instead(versions, "_note_requested", note_requested)


def environment_not_told_of() -> contextlib.AbstractContextManager[None]:
    """Nobody hears that what a version is to run in was built, or cannot be."""
    return instead(Building, "_tell", lambda _self, _task: None)


def _unchecked() -> contextlib.AbstractContextManager[None]:
    left = tuple(one for one in invariants._CHECKS if "plans_fit" not in one.__name__)
    return instead(invariants, "_CHECKS", left)


PLANTED: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
    "vertices of another query come": another_query_comes,
    "another query counts as ended": another_query_ends,
    "bounds are lost when a query comes again": bounds_lost_when_it_comes_again,
    "a query comes with more tasks than slots": lambda: beyond_the_slots(first=False),
    "the first query comes with more tasks than slots": lambda: beyond_the_slots(first=True),
    "a graph that has grown is not stored": not_stored,
    "a plan on its way lacks a query that comes": target_without_it,
    "the first query has the bounds of the program": bounds_of_the_program_survive,
    "bounds by name are forgotten": bounds_by_name_forgotten,
    "bounds are lost with vertices that leave": bounds_left_behind,
    "a program runs before its first query": running_too_early,
    "a program with known queries is still being started": still_being_started,
    "queries that do not come keep their slots": slots_for_nobody,
    "queries that run are left out": left_out_while_it_runs,
    "slots are asked for a program that has queries": slots_of_the_program,
    "the record of the start keeps the program": record_of_the_program,
    "a version is proven without its state": proven_without_its_state,
    "a version loses queries that came meanwhile": queries_lost_by_a_version,
    "a version comes without its environment": environment_not_waited_for,
    "a version waits for its environment for ever": environment_not_told_of,
}
