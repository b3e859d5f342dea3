"""Periods of the day and the week with other limits of a policy."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final

DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_TIME: Final = re.compile(r"([01][0-9]|2[0-4]):([0-5][0-9])\Z")
DAY_MINUTES: Final = 24 * 60


def minute_of_day(text: str) -> int | None:
    """Of "08:30"; None if it is no time of the day."""
    match = _TIME.match(text)
    if match is None or (found := int(match[1]) * 60 + int(match[2])) > DAY_MINUTES:
        return None
    return found


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
