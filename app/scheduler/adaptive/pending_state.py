"""Bounds that were declared and are not in force yet, as the state of a job has them; `pending` has the rules."""

from __future__ import annotations

from app.model.requirements import Bounds, Deadline
from app.model.value import value
from app.scheduler.adaptive.rollback_state import TakenBack


@value
class Pending:
    """Version ``version`` of the requirements has other bounds than the one before, and they are not in force yet. It
    leads to rescale record ``record``.

    ``former``: by vertex id, the bounds before, of the vertices whose bounds it changed; ``former_partitions``: the
    numbers of state partitions that were asked for before. ``deadline``: until then the former bounds hold, unless all
    the slots come that the new ones ask for. ``begun``: the job is being restarted for them, so the deadline has no
    effect unless that comes to nothing. ``taken_back``: what the requirements before could not lift; it comes back with
    the former bounds, and holds as long as they do.
    """

    version: int
    record: int
    since_ms: int
    former: tuple[tuple[str, Bounds], ...]
    former_partitions: tuple[tuple[str, int], ...] = ()
    deadline: Deadline | None = None
    requested_by: str | None = None
    reason: str | None = None
    begun: bool = False
    taken_back: TakenBack | None = None

    @property
    def cancelable(self) -> bool:
        """Whether it can be taken back by the number of its record."""
        return bool(self.record) and not self.begun

    @property
    def vertices(self) -> frozenset[str]:
        return frozenset(vertex for vertex, _ in self.former)
