"""What a job says of itself, as a client hears it from a control plane, against what is so by the rules."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

from app.model.batch import RegionStatus
from app.model.jobgraph import JobType
from app.model.requirements import Bounds
from app.scheduler.adaptive.state import Executing, Finished, JobState
from app.worker.refusals import ControlPlaneError
from app.worker.views import Explanation
from tests.simulation.goals import goal_of
from tests.simulation.rules import bounds_now, declared_within, least_slots, most_slots, parallelism
from tests.simulation.world import CURRENT

if TYPE_CHECKING:
    from tests.simulation.oracles import Oracles
    from tests.simulation.plane import Incarnation

_SOON_S = 0.001
"""What was written is what is said by then."""

_OF_A_VERTEX = re.compile(r"(\w+) (?:runs|ran) at ")


class Words:
    """A job that runs outside of its bounds, or at what is back in force, is asked whenever that changes."""

    def __init__(self, oracles: Oracles) -> None:
        self._oracles = oracles
        self._asked: dict[str, object] = {}

    def saved(self, job_id: str, state: JobState) -> None:
        """A state became durable."""
        plane = CURRENT.get()
        if plane is None or isinstance(state.phase, Finished):
            return
        wrong = _outside(self._oracles, state)
        versions = (state.requirements.version, state.policy.version)
        what = (wrong, versions, state.trial.taken_back, state.phase.kind)
        if (wrong or state.trial.taken_back is not None) and self._asked.get(job_id) != what:
            self._asked[job_id] = what
            self._oracles.count("outside the bounds" if wrong else "asked what was taken back")
            plane.spawn(self._ask(plane, job_id))

    async def _ask(self, plane: Incarnation, job_id: str) -> None:
        await asyncio.sleep(_SOON_S)
        try:
            said = plane.plane.explanation(job_id)
        except ControlPlaneError:
            return
        self.judge(said)

    def judge(self, said: Explanation) -> None:
        state, oracles = said.state, self._oracles
        job = f"job {state.job_id[-2:]}"
        if not said.sentences:
            oracles.check(False, "promise 5", f"{job} says nothing")
        if isinstance(state.phase, Finished):
            return
        self._judge_numbers(said)
        wrong = _outside(oracles, state)
        for name, sentence in wrong:
            oracles.check(
                any(one.startswith(sentence) for one in said.violations),
                "promise 5",
                f"{job}: {sentence}, and {name} is not among {said.violations}",
            )
        named = {found[1] for one in said.violations if (found := _OF_A_VERTEX.match(one)) is not None}
        without_cause = named - {name for name, _ in wrong}
        oracles.check(
            not without_cause, "promise 5", f"{job}: {without_cause} are within bounds: {said.violations}"
        )
        if state.trial.taken_back is not None and isinstance(state.phase, Executing):
            oracles.check(
                any("was taken back" in one for one in said.sentences),
                "rollback",
                f"{job} runs at what was before, and no word of it",
            )

    def _judge_numbers(self, said: Explanation) -> None:
        """Of slots, and of the parallelism that those which are held allow."""
        state = said.state
        declared = bounds_now(state.graph, state.requirements, None, state.policy)
        least, most = least_slots(state.graph, declared), most_slots(state.graph, declared)
        job = f"job {state.job_id[-2:]}"
        self._oracles.check(
            (said.minimal_slots, said.desired_slots) == (least, most)
            and any(f" want {most} slot(s) and need at least {least};" in one for one in said.sentences),
            "slots",
            f"{job} needs {least} to {most} slots and says {said.minimal_slots} to {said.desired_slots}: "
            f"{said.sentences}",
        )
        if state.graph.type is JobType.STREAMING:
            allowed = parallelism(state.graph, goal_of(state), len(state.slots))
            self._oracles.check(
                said.attainable == allowed,
                "slots",
                f"{job}: its slots allow {allowed}, it says {said.attainable}",
            )


def _outside(oracles: Oracles, state: JobState) -> tuple[tuple[str, str], ...]:
    """The vertices that run outside of their bounds, by name, and how the sentence begins that has to be said."""
    if state.graph.type is JobType.BATCH:
        running = _of_batch(oracles, state)
    else:
        at = dict(state.plan.parallelism) if state.plan is not None else {}
        bounds_of = declared_within(state.graph, state.requirements, state.policy)
        running = [(vertex, "runs", count, bounds_of[vertex]) for vertex, count in at.items()]
    found = []
    for vertex, verb, count, bounds in running:
        name = state.graph.by_id[vertex].name
        if count < bounds.lower:
            found.append((name, f"{name} {verb} at {count}, below its lower bound {bounds.lower}"))
        elif count > bounds.upper:
            found.append((name, f"{name} {verb} at {count}, above its upper bound {bounds.upper}"))
    return tuple(found)


def _of_batch(oracles: Oracles, state: JobState) -> list[tuple[str, str, int, Bounds]]:
    """What runs or has run, at what parallelism, and the bounds that matter to it.

    The parallelism is decided when the region starts. Below the lower bound of that moment it stays; bounds that are
    declared later matter only while it runs.
    """
    if state.batch is None:
        return []
    layout, found = oracles.world.disk.layout(state), []
    bounds_of = declared_within(state.graph, state.requirements, state.policy)
    for vertex, decision in {one.vertex_id: one for one in state.batch.decisions}.items():
        status, at = state.batch.regions[layout.region_of[vertex]].status, decision.parallelism
        now = bounds_of[vertex]
        if status is RegionStatus.RUNNING:
            lower = decision.lower if at < decision.lower else now.lower
            found.append((vertex, "runs", at, Bounds(lower, now.upper)))
        elif status is RegionStatus.FINISHED:
            found.append((vertex, "ran", at, Bounds(decision.lower, at)))
    return found
