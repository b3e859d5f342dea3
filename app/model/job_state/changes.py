"""Changes of a job that wait, can still be undone, are on trial, or were taken back, as its state has them."""

from __future__ import annotations

from app.model.requirements import Bounds, Deadline
from app.model.rescale import TriggerCause
from app.model.value import value

Parallelism = tuple[tuple[str, int], ...]
"""Per vertex id, in the graph's order."""


@value
class Author:
    """Who has asked for something, and the reason that was given."""

    requested_by: str | None
    reason: str | None = None


@value
class Pace:
    """How many rows a query has processed in how much time of running batches, while more rows waited."""

    query_id: str
    rows: int
    busy_ms: int


@value
class Watch:
    """A rescale on trial: ``tried`` is in force since ``since_ms``, and ``good`` is what it goes back to if need be.

    It has passed once a batch is committed after ``until_ms``. ``record`` is the number of its rescale record, and
    ``cause`` that record's. ``before`` is the pace of each query at ``good``; ``after`` has the latest batches since.
    ``ran``: the attempt has committed a batch at ``tried``, or had nothing to process.
    """

    good: Parallelism
    tried: Parallelism
    record: int
    cause: TriggerCause
    since_ms: int
    until_ms: int
    before: tuple[Pace, ...] = ()
    after: tuple[Pace, ...] = ()
    ran: bool = False


@value
class TakenBack:
    """A rescale that failed its trial: the job runs at ``good`` at most, whatever the bounds ask for.

    ``why``: a sentence. ``record`` and ``cause``: as in `Watch`.
    """

    good: Parallelism
    tried: Parallelism
    record: int
    cause: TriggerCause
    at_ms: int
    why: str


@value
class Trial:
    """``watch``: the rescale on trial; ``taken_back``: the one that failed it, which holds until something changes.
    ``unproven``: no plan that was in force has committed a batch, so there is none to go back to."""

    watch: Watch | None = None
    taken_back: TakenBack | None = None
    unproven: bool = False


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
