"""The policy of the autoscaler, and the parser of its document."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from app.model.grapherrors import Errors, Fields, below
from app.model.jobgraph import MAX_PARALLELISM_LIMIT
from app.model.option_values import InvalidValue, format_duration_ms, parse_duration_ms
from app.model.sentences import kind_of, shown

DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_TIME_OF_DAY: Final = re.compile(r"([01][0-9]|2[0-4]):([0-5][0-9])\Z")
DAY_MINUTES: Final = 24 * 60


class PolicyErrors(ValueError):
    """``sentences``: everything that is wrong with a policy."""

    def __init__(self, sentences: list[str]) -> None:
        super().__init__(" ".join(sentences))
        self.sentences = sentences


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


def read_policy(document: object) -> Policy:
    """
    Raises:
        PolicyErrors: with all of them.
    """
    if not isinstance(document, Mapping):
        raise PolicyErrors([f"A policy should be a mapping of fields, found {kind_of(document)}."])
    errors = Errors()
    policy = _policy(Fields(errors, "", document, _FIELDS, "a policy"))
    sentences = errors.texts() or _contradictions(policy)
    if sentences:
        raise PolicyErrors(sentences)
    return policy


_WINDOW_MOST_MS: Final = 300_000
"""The server keeps ten minutes of the figures that are read, and a rate needs some that are whole."""
_WEEK_MS: Final = 7 * 86_400_000
_DURATIONS: Final = {
    "catchUp": ("catch_up_ms", 1_000, _WEEK_MS),
    "scaleDownWindow": ("scale_down_window_ms", 0, _WEEK_MS),
    "stabilization": ("stabilization_ms", 0, _WEEK_MS),
    "window": ("window_ms", 5_000, _WINDOW_MOST_MS),
    "batchDuration": ("batch_ms", 100, _WEEK_MS),
    "interval": ("interval_ms", 100, _WEEK_MS),
}
_FIELDS: Final = (
    "targetUtilization",
    "maxUtilization",
    *_DURATIONS,
    "parallelism",
    "vertices",
    "timeZone",
    "schedule",
    "recommendOnly",
)
_PERIODS_MOST: Final = 1_000
_TIME: Final = 'a time of the day such as "08:30", up to "24:00"'


def _policy(fields: Fields) -> Policy:
    def read(name: str, reader: Callable[[object], Any]) -> Any:
        """What ``reader`` makes of a field; None if it is left out or wrong."""
        try:
            return reader(fields.raw(name)) if name in fields else None
        except InvalidValue as error:
            fields.wrong(name, str(error))
            return None

    parallelism = fields.raw("parallelism") if "parallelism" in fields else {}
    vertices = fields.mapping("vertices", "a mapping of vertex names") or {}
    periods = fields.elements("schedule", "a list of periods", _PERIODS_MOST)
    found = {
        "target_utilization": read("targetUtilization", _part),
        "max_utilization": read("maxUtilization", _part),
        **{
            field: read(name, functools.partial(_duration, least, most))
            for name, (field, least, most) in _DURATIONS.items()
        },
        "parallelism": _range(fields.errors, "parallelism", parallelism),
        "vertices": {
            str(name): _range(fields.errors, below("vertices", name), each) for name, each in vertices.items()
        },
        "time_zone": read("timeZone", _zone),
        "schedule": tuple(one for place, each in periods if (one := _period(fields.errors, place, each))),
        "recommend_only": fields.boolean("recommendOnly"),
    }
    return Policy(**{name: value for name, value in found.items() if value is not None})


def _part(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.05 <= value <= 1:
        raise InvalidValue(f"should be a number from 0.05 to 1, found {kind_of(value)}.")
    return float(value)


def _duration(least_ms: int, most_ms: int, value: object) -> int:
    found_ms = parse_duration_ms(value)
    if not least_ms <= found_ms <= most_ms:
        allowed = f"from {format_duration_ms(least_ms)} to {format_duration_ms(most_ms)} are allowed"
        raise InvalidValue(f"{allowed}, found {format_duration_ms(found_ms)}.")
    return found_ms


def _zone(value: object) -> tzinfo:
    with contextlib.suppress(ZoneInfoNotFoundError, ValueError, OSError):
        if isinstance(value, str):
            return ZoneInfo(value)
    raise InvalidValue(f"should be the name of a time zone such as Europe/Berlin, found {kind_of(value)}.")


def _within(errors: Errors, place: str, value: object, allowed: Sequence[str], what: str) -> Fields | None:
    """The fields of a mapping within the policy; None if it is none."""
    if isinstance(value, Mapping):
        return Fields(errors, place, value, allowed, what)
    errors.add(place, f"should be a mapping, found {kind_of(value)}.")
    return None


def _range(errors: Errors, place: str, value: object) -> Range:
    fields = _within(errors, place, value, ("min", "max"), "a range")
    return Range() if fields is None else Range(*_tasks(fields))


def _tasks(fields: Fields) -> list[int | None]:
    return [fields.integer(name, 1, MAX_PARALLELISM_LIMIT) for name in ("min", "max")]


def _period(errors: Errors, place: str, value: object) -> Period | None:
    """A period of the schedule; None if it is wrong."""
    fields = _within(errors, place, value, ("days", "from", "to", "pause", "min", "max"), "a period")
    if fields is None:
        return None
    begin, end = (_minute(fields, name) for name in ("from", "to"))
    pause, (least, most) = fields.boolean("pause"), _tasks(fields)
    days = fields.raw("days") if "days" in fields else list(DAYS)
    if not isinstance(days, list) or not days or not all(each in DAYS for each in days):
        fields.wrong("days", f"should be a list of {', '.join(DAYS)}, found {kind_of(days)}.")
        return None
    if begin is None or end is None:
        return None
    if begin in (end, DAY_MINUTES):
        errors.add(place, "should begin before 24:00, and not end when it begins.")
    return Period(begin, end, frozenset(map(DAYS.index, days)), least, most, bool(pause))


def minute_of_day(text: str) -> int | None:
    """Of "08:30"; None if it is no time of the day."""
    match = _TIME_OF_DAY.match(text)
    if match is None or (found := int(match[1]) * 60 + int(match[2])) > DAY_MINUTES:
        return None
    return found


def _minute(fields: Fields, name: str) -> int | None:
    if not fields.present(name, _TIME):
        return None
    value = fields.raw(name)
    found = minute_of_day(value) if isinstance(value, str) else None
    if found is None:
        fields.wrong(name, f"should be {_TIME}, found {kind_of(value)}.")
    return found


def _contradictions(policy: Policy) -> list[str]:
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
