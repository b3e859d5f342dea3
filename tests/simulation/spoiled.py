"""Starts that are spoiled because slots of their plan are lost: what follows each (docs/failures.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.model.jobgraph import JobType
from app.scheduler.adaptive.state import CreatingExecutionGraph, JobState
from tests.simulation.goals import goal_of
from tests.simulation.rules import groups_of, least_slots

if TYPE_CHECKING:
    from tests.simulation.oracles import Oracles


class SpoiledStarts:
    """The next attempt of a STREAMING job is started in slots that were there all the time, if they are enough."""

    def __init__(self, oracles: Oracles) -> None:
        self._oracles = oracles
        # By job: the attempt that was spoiled, the slots that have stayed since, and the last plan that had run.
        self._spoiled: dict[str, tuple[int, frozenset[str], int]] = {}
        # By job: what was judged. Bounds may change while an attempt is being started.
        self._judged: dict[str, tuple[int, frozenset[str]]] = {}

    def saved(self, job_id: str, state: JobState) -> None:
        """A state became durable."""
        phase, held = state.phase, frozenset(slot.id for slot in state.slots)
        if state.graph.type is JobType.BATCH:
            return
        if state.plan is not None or phase.kind in ("Canceling", "Failing", "Finished"):
            self._spoiled.pop(job_id, None)
            return
        ran = 0 if state.last_plan is None else state.last_plan.version
        attempt, stayed, ran_before = self._spoiled.get(job_id, (0, held, ran))
        # An attempt may have run and ended in what became durable at once.
        attempt, stayed = (0, held) if ran > ran_before else (attempt, stayed & held)
        starts = isinstance(phase, CreatingExecutionGraph)
        if attempt and starts and state.attempt > attempt and phase.failure is None:
            chosen = (state.attempt, frozenset(phase.plan.slot_ids))
            if self._judged.get(job_id) != chosen:
                self._judged[job_id] = chosen
                self._judge(job_id, state, phase.plan.slot_ids, stayed)
        if starts and not phase.plan.slot_ids <= held:
            self._oracles.count("spoiled start")
            attempt = state.attempt
        if attempt and stayed:
            self._spoiled[job_id] = (attempt, stayed, max(ran, ran_before))
        else:
            self._spoiled.pop(job_id, None)

    def _judge(self, job_id: str, state: JobState, used: set[str], stayed: frozenset[str]) -> None:
        bounds = goal_of(state)
        least = min(least_slots(state.graph, bounds), max(groups_of(state.graph), len(used)))
        self._oracles.check(
            len(stayed) < least or used <= stayed,
            "spoiled starts",
            f"job {job_id[-2:]} starts in {sorted(used - stayed)}, which came and went, and has {sorted(stayed)}",
        )
