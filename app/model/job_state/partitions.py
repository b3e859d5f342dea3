"""What a job keeps of a redistribution of its state; `repartition` has the rules."""

from __future__ import annotations

from app.model.value import value


@value
class Repartition:
    """A redistribution of state that was begun: from ``before`` to ``after``, partitions by vertex id.

    It is tried with the same numbers until the driver says that it is done, or it is given up. ``since_ms``: when the
    first attempt at it was started. ``failed``: attempts that came to nothing. ``late``: the keys of the queries for
    which it is not done although the attempt runs, because its program has not started them yet.
    """

    before: tuple[tuple[str, int], ...]
    after: tuple[tuple[str, int], ...]
    since_ms: int
    failed: int = 0
    late: tuple[str, ...] = ()


@value
class RepartitionRefused:
    """A redistribution that was given up. Nothing of the kind is begun again until other requirements are declared."""

    requirements_uuid: str
    error: str


@value
class Partitions:
    """``numbers``: of state partitions of stateful vertices, where they are not what was submitted; the graph has them
    already. While ``repartition`` is set, the graph has those that the state is to get. ``refused``: the redistribution
    that was given up last."""

    numbers: tuple[tuple[str, int], ...] = ()
    repartition: Repartition | None = None
    refused: RepartitionRefused | None = None
