"""A plan: the parallelism decided for every vertex, and the slots that it takes."""

from __future__ import annotations

from enum import StrEnum

from app.model.value import value


class Rung(StrEnum):
    """How a plan is brought into force, cheapest first."""

    IN_PLACE = "in-place"
    QUERY_RESTART = "query-restart"
    STATE_REPARTITION = "state-repartition"
    NEW_DRIVER = "new-driver"


@value
class Slot:
    """One task's worth of a TaskManager."""

    id: str
    task_manager_id: str


@value
class Plan:
    """Parallelism per vertex and slots per slot sharing group (both in declared order).

    ``version`` counts the plans of a job from 1 and never goes back: a driver ignores a plan older than its own.
    """

    version: int
    parallelism: tuple[tuple[str, int], ...]
    group_slots: tuple[tuple[str, tuple[str, ...]], ...]

    def parallelism_of(self, vertex_id: str) -> int:
        for candidate, count in self.parallelism:
            if candidate == vertex_id:
                return count
        raise KeyError(vertex_id)

    @property
    def slot_count(self) -> int:
        return sum(len(slots) for _, slots in self.group_slots)

    @property
    def slot_ids(self) -> set[str]:
        return set().union(*[slots for _, slots in self.group_slots])
