"""Bounds that were declared and are not in force yet, as the state of a job has them; `pending` has the rules."""

from __future__ import annotations

from dataclasses import dataclass

from app.model.requirements import Bounds, Deadline


@dataclass(frozen=True, slots=True)
class Pending:
    """Version ``version`` of the requirements has other bounds than were in force before, and no plan for them is on
    its way yet. It leads to rescale record ``record``.

    ``former``: by vertex id, the bounds before, of the vertices whose bounds it changed; ``former_partitions``: the
    numbers of state partitions that were asked for before. ``deadline``: until then the former bounds hold, unless all
    the slots come that the new ones ask for.
    """

    version: int
    record: int
    since_ms: int
    former: tuple[tuple[str, Bounds], ...]
    former_partitions: tuple[tuple[str, int], ...] = ()
    deadline: Deadline | None = None
    requested_by: str | None = None
    reason: str | None = None

    @property
    def vertices(self) -> frozenset[str]:
        return frozenset(vertex for vertex, _ in self.former)
