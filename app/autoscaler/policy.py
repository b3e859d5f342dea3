"""The policy of the autoscaler. Its document is read by `app.cli.autoscale_policy`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from typing import Final

from app.model.sentences import shown

DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


@dataclass(frozen=True, slots=True)
class Range:
    """Limits of upper bounds; None: none of its own."""

    min: int | None = None
    max: int | None = None


@dataclass(frozen=True, slots=True)
class Period:
    """From a minute of the day to another, by the clock on the wall; one that ends before it begins goes on until the
    next day. ``days``: those on which it begins, 0 is Monday. ``pause``: nothing is decided in it."""

    from_minute: int
    to_minute: int
    days: frozenset[int] = frozenset(range(7))
    min: int | None = None
    max: int | None = None
    pause: bool = False

    def holds(self, local: datetime) -> bool:
        minute, day = local.hour * 60 + local.minute, local.weekday()
        if self.from_minute < self.to_minute:
            return day in self.days and self.from_minute <= minute < self.to_minute
        begun_today = day in self.days and minute >= self.from_minute
        return begun_today or ((day - 1) % 7 in self.days and minute < self.to_minute)


@dataclass(frozen=True, slots=True)
class Policy:
    """``target_utilization``: the part of the time that batches should need. ``max_utilization``: from where on more
    tasks are asked for. ``catch_up_ms``: in which time a backlog should be worked off. ``scale_down_window_ms``: how
    long no higher parallelism may have been recommended before a lower one is declared. ``stabilization_ms``: how long
    after a change nothing is decided. ``window_ms``: the time that rates are over. ``batch_ms``: how long a batch may
    take.
    ``vertices``: limits by vertex name. ``schedule``: of several periods that hold, the last one counts.
    """

    target_utilization: float = 0.7
    max_utilization: float = 0.85
    catch_up_ms: int = 300_000
    scale_down_window_ms: int = 600_000
    stabilization_ms: int = 60_000
    window_ms: int = 60_000
    batch_ms: int = 10_000
    interval_ms: int = 10_000
    parallelism: Range = Range()
    vertices: Mapping[str, Range] = field(default_factory=dict)
    time_zone: tzinfo = UTC
    schedule: tuple[Period, ...] = ()
    recommend_only: bool = False

    def period(self, now_ms: int) -> Period | None:
        """The period of the schedule that counts now."""
        local = datetime.fromtimestamp(now_ms / 1000, self.time_zone)
        return next((each for each in reversed(self.schedule) if each.holds(local)), None)


def contradictions(policy: Policy) -> list[str]:
    """Fields that do not go together."""
    found = []
    if policy.target_utilization >= policy.max_utilization:
        found.append(
            f"targetUtilization should be below maxUtilization, found {policy.target_utilization:g} and "
            f"{policy.max_utilization:g}: between the two nothing is changed."
        )
    ranges = [("parallelism", policy.parallelism.min, policy.parallelism.max)]
    ranges += [(f"{shown(name)} in vertices", each.min, each.max) for name, each in policy.vertices.items()]
    ranges += [
        (
            f"period {number} of schedule",
            policy.parallelism.min if each.min is None else each.min,
            policy.parallelism.max if each.max is None else each.max,
        )
        for number, each in enumerate(policy.schedule, 1)
        if each.min is not None or each.max is not None
    ]
    return found + [
        f"min of {place} should be at most max, found {least} and {most}."
        for place, least, most in ranges
        if least is not None and most is not None and least > most
    ]
