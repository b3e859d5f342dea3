"""Bounds that wait for their deadline, and changes that can still be taken back, as the state of a job has them."""

from __future__ import annotations

from app.model.requirements import Bounds, Deadline
from app.model.value import value
from app.scheduler.adaptive.rollback_state import TakenBack


@value
class Change:
    """Version ``version`` of the requirements has other bounds than the one before, and rescale record ``record`` is of
    that change.

    ``former``: by vertex id, the bounds before, of the vertices whose bounds it changed; ``former_partitions``: the
    numbers of state partitions that were asked for before. ``taken_back``: what had been taken back before it, which
    comes back with the former bounds.
    """

    version: int
    record: int
    former: tuple[tuple[str, Bounds], ...]
    former_partitions: tuple[tuple[str, int], ...] = ()
    taken_back: TakenBack | None = None


@value
class Patch:
    """Bounds of some vertices that wait for their deadline, or are not in force yet; `bounds_queue` has the rules.

    ``version``: the one that the PUT was answered with. ``record``: the number of its rescale record, 0 until it has
    one; ``first_record``: that of the one that the PUT was answered with. ``partitions``: the numbers of state
    partitions that it asks for. ``begun``: it has been applied, in the place of these bounds, which come back if its
    slots go before its plan is in force.
    """

    version: int
    record: int
    bounds: tuple[tuple[str, Bounds], ...]
    deadline: Deadline
    partitions: tuple[tuple[str, int], ...] = ()
    requested_by: str | None = None
    reason: str | None = None
    begun: Change | None = None
    first_record: int = 0

    @property
    def vertices(self) -> frozenset[str]:
        return frozenset(vertex for vertex, _ in self.bounds)
