"""What a job has asked for of slots, and what it was told of them."""

from __future__ import annotations

from app.model.value import value


@value
class CapRaise:
    """The cap of the job was raised from ``before``, or removed, and it has not got all slots that it may have since.
    ``requested_by`` and ``reason`` say by whom and why."""

    before: int
    requested_by: str | None = None
    reason: str | None = None


@value
class Supply:
    """``declared`` slots are wanted, and without ``minimal`` ones the job does not run.

    ``allowed``: how many of those that it holds it may go on to use, None for all, and ``reason`` why, in words, if the
    cluster said so. ``coming``: so many more others are giving back for it. ``stayed``: the ids of those that were
    there all through a start that was spoiled because others were lost: until an attempt runs, no other is started in.
    ``changed_ms``: when it last got or lost one. ``away_since_ms``: since when the cluster is unreachable, as the job
    was told; None if it is reachable. ``idle_since_ms`` has, per surplus slot, the time from which it was not needed.
    """

    declared: int = 0
    minimal: int = 0
    allowed: int | None = None
    reason: str | None = None
    coming: int = 0
    stayed: tuple[str, ...] = ()
    changed_ms: int = 0
    away_since_ms: int | None = None
    idle_since_ms: tuple[tuple[str, int], ...] = ()
    cap_raise: CapRaise | None = None
