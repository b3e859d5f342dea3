"""A rescale on trial and one that was taken back, as the state of a job has them; `trial` has the rules."""

from __future__ import annotations

from app.model.rescale import TriggerCause
from app.model.value import value

Parallelism = tuple[tuple[str, int], ...]
"""Per vertex id, in the graph's order."""


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
