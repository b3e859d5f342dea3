"""Jobs that fail in their first batch above some parallelism: rescales to more of it have to be taken back."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from app.model.jobgraph import JobGraph
from app.model.requirements import Bounds
from app.scheduler.adaptive.state import Executing, JobState
from app.worker.views import RequirementsUpdate
from tests.simulation.jobs import limit_of
from tests.simulation.versions import is_bad

if TYPE_CHECKING:
    from tests.simulation.oracles import Oracles
    from tests.simulation.plane import Incarnation
    from tests.simulation.process import SimAttempt

BACK_WITHIN_S = 60.0
"""In a quiet world: the watch period. A redistribution of state that bounds ask for begins with the next attempt, also
with one that takes a rescale back: the time of its driver's work on the state is not counted."""

MOST_BREAKS_AT_REST = 4
"""Slots are given twice and bounds are declared once when the world is quiet; each of it may be tried once."""


def breaks(attempt: SimAttempt) -> str | None:
    """Why a batch of ``attempt`` fails at its plan, or at all, None if it does not."""
    if (why := is_bad(attempt)) is not None:
        return why
    limit = limit_of(attempt.spec["graph"]["name"])
    if limit is None or max(attempt.plan.parallelism.values()) <= limit:
        return None
    attempt.world.oracles.trials.broke(attempt)
    return f"A sink takes {limit} connections."


def may_put(graph: JobGraph, state: JobState | None) -> bool:
    """A job that has not committed a batch has nothing to go back to."""
    return limit_of(graph.name) is None or (state is not None and not state.trial.unproven)


class Trials:
    """What must hold of rescales that are taken back."""

    def __init__(self, oracles: Oracles) -> None:
        self._oracles = oracles
        self._broke_s: dict[str, float] = {}
        self._at_rest: dict[str, int] = {}
        # The version of bounds that were taken back, and the attempt that had tried them.
        self._refused: dict[str, tuple[int, int]] = {}

    def broke(self, attempt: SimAttempt) -> None:
        oracles, world = self._oracles, self._oracles.world
        oracles.count("broke")
        state = oracles.truth(attempt.job_id).state
        version, before = self._refused.get(attempt.job_id, (0, 0))
        oracles.check(
            state is None or state.requirements.version != version or attempt.number <= before,
            "rollback",
            f"{attempt} runs above its limit again, for bounds that were taken back",
        )
        if world.quiet:
            self._broke_s.setdefault(attempt.job_id, world.now_s)
            count = self._at_rest[attempt.job_id] = self._at_rest.get(attempt.job_id, 0) + 1
            oracles.check(
                count <= MOST_BREAKS_AT_REST, "rollback", f"job {attempt.job_id[-2:]} breaks again and again"
            )

    def redistributed(self, job_id: str, took_s: float) -> None:
        """A driver has worked on the state for so long, before it goes on to the next batch or fails."""
        if job_id in self._broke_s:
            self._broke_s[job_id] += took_s

    def unreachable(self, lasted_s: float) -> None:
        """Nothing could be started for so long: there was no cluster that could be seen."""
        for job_id in self._broke_s:
            self._broke_s[job_id] += lasted_s

    def saved(self, job_id: str, state: JobState) -> None:
        """A state became durable."""
        oracles, world = self._oracles, self._oracles.world
        taken = state.trial.taken_back
        if taken is not None and taken.cause.is_asked:
            self._refused.setdefault(job_id, (0, 0))
            if self._refused[job_id][0] != state.requirements.version:
                self._refused[job_id] = (state.requirements.version, state.attempt)
        if not isinstance(state.phase, Executing) or state.plan is None:
            return
        if state.trial.taken_back is not None:
            oracles.count("taken back")
        limit = limit_of(state.graph.name)
        if limit is None or not state.phase.first_batch:
            return
        if max(count for _, count in state.plan.parallelism) <= limit and job_id in self._broke_s:
            took_s = world.now_s - self._broke_s.pop(job_id)
            oracles.check(
                took_s <= BACK_WITHIN_S,
                "rollback",
                f"job {job_id[-2:]} runs as before after {took_s:.0f} s only",
            )

    def complaint(self, job_id: str, state: JobState) -> str | None:
        """Of a job at rest: none if it can run at its plan."""
        limit = limit_of(state.graph.name)
        if limit is None or state.plan is None:
            return None
        above = [vertex for vertex, count in state.plan.parallelism if count > limit]
        return f"job {job_id[-2:]} runs above its limit {limit}" if above else None


async def overreach(plane: Incarnation, oracles: Oracles, rng: random.Random) -> bool:
    """Ask for more than fragile jobs can take, in a quiet world. Whether any was asked."""
    asked = False
    for job_id, truth in oracles.jobs.items():
        state = truth.state
        limit = None if state is None else limit_of(state.graph.name)
        if state is None or limit is None or not isinstance(state.phase, Executing) or state.trial.unproven:
            continue
        known = max(bounds.upper for _, bounds in state.requirements)
        upper = limit + 1 + (known == limit + 1) + 2 * rng.randint(0, 1)
        wanted = {vertex.name: (1, min(vertex.max_parallelism, upper)) for vertex in state.graph.vertices}
        mark = f"overreach of {job_id}"
        oracles.truth(job_id).attempted[mark] = {
            vertex.id: Bounds(*wanted[vertex.name]) for vertex in state.graph.vertices
        }
        update = RequirementsUpdate(wanted, requested_by="eve", reason=mark)

        async def put(one: Incarnation, job_id: str = job_id, update: RequirementsUpdate = update) -> None:
            await one.plane.update_requirements(job_id, update)

        await oracles.told.heard(mark, put)(plane)
        oracles.count("overreach")
        asked = True
    return asked
