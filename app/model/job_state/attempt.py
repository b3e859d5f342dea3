"""What a job knows of the driver of its newest attempt."""

from __future__ import annotations

from app.model.value import value


@value
class Driver:
    """``alive``: something of the attempt may write. ``waits``: nothing of it does any more, but its process waits for
    another attempt. ``started``: the queries, by the ids of their sinks, that the program has started in this attempt.
    ``fixed``: why it can redistribute no state, as a clause; None if it can, or has not said."""

    alive: bool = False
    waits: bool = False
    started: tuple[str, ...] = ()
    fixed: str | None = None
