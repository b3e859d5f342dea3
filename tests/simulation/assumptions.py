"""What must hold of a document that Spark has not analysed yet: bounds may ask for more than turns out possible, and
are lowered then, no more and not later."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from app.model.requirements import Bounds, Requirements
from app.scheduler.adaptive.state import Executing, JobState, Rescaling
from tests.simulation.jobs import PLAIN

if TYPE_CHECKING:
    from tests.simulation.oracles import Oracles
    from tests.simulation.truth import JobTruth

REASON: Final = "The upper bound of "


def lowered(oracles: Oracles, truth: JobTruth, wanted: Requirements) -> None:
    """``wanted`` follows the newest requirements, because of what Spark has said."""
    before, state = truth.stored[wanted.version - 1], truth.state
    # What has waited may be applied in the same step, or put back.
    changed = [
        vertex
        for vertex, bounds in wanted
        if before[vertex] != bounds and bounds not in oracles.deadlines.may_move(truth, vertex)
    ]
    oracles.count("bound lowered")
    for vertex in changed:
        most = wanted[vertex].upper
        oracles.check(
            state is not None and state.graph.by_id[vertex].is_assumed,
            "assumptions",
            f"the bounds of {vertex} were lowered, and nothing was assumed of it",
        )
        oracles.check(
            most < before[vertex].upper and wanted[vertex] == within(before[vertex], most),
            "assumptions",
            f"the bounds {before[vertex]} of {vertex} became {wanted[vertex]}",
        )
    numbered = {vertex for vertex, _ in set(before.state_partitions) ^ set(wanted.state_partitions)}
    oracles.check(
        before.bounds != wanted.bounds
        and all(oracles.deadlines.may_move(truth, vertex) for vertex in numbered),
        "assumptions",
        f"version {wanted.version} of the requirements changes nothing, or more",
    )


def within(bounds: Bounds, most: int) -> Bounds:
    return Bounds(min(bounds.lower, most), min(bounds.upper, most))


def check_known(oracles: Oracles, job_id: str, before: JobState | None, state: JobState) -> None:
    """A job that runs knows what keeps state, and asks for nothing impossible."""
    if state.graph.program is not None:
        return
    plain = next((vertex for vertex in state.graph.vertices if vertex.name == PLAIN), None)
    if plain is None:
        return
    if isinstance(state.phase, Executing | Rescaling):
        oracles.check(
            not plain.stateful and not plain.is_assumed and plain.max_parallelism == 128,
            "assumptions",
            f"the job runs, and knows of {plain}",
        )
        upper = state.requirements[plain.id].upper
        oracles.check(upper <= 128, "assumptions", f"{PLAIN} keeps no state, and may have {upper} tasks")
        oracles.count("known to be without state")
