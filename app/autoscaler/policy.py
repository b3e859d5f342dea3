"""What a user asks of the autoscaler: the policy, and how its document is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, tzinfo
from typing import Any, Final, NoReturn
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from app.autoscaler.schedule import DAY_MINUTES, DAYS, Period, minute_of_day
from app.model.jobgraph import MAX_PARALLELISM_LIMIT
from app.model.option_values import InvalidValue, format_duration_ms, parse_duration_ms
from app.model.sentences import hint, kind_of, shown


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
    reader = _Reader()
    values = reader.fields("The policy", document, _FIELDS)
    policy = Policy(**values)
    if not reader.errors:
        reader.errors += _contradictions(policy)
    if reader.errors:
        raise PolicyErrors(reader.errors)
    return policy


class _Reader:
    """Reads fields, and keeps a sentence for each that is wrong."""

    def __init__(self) -> None:
        self.errors: list[str] = []

    def fields(self, where: str, document: object, known: Mapping[str, tuple[str, _Read]]) -> dict[str, Any]:
        """The values of those that are given and right, under their names in the dataclass."""
        if not isinstance(document, Mapping):
            self.errors.append(f"{where} should be a mapping, found {kind_of(document)}.")
            return {}
        found = {}
        for name, value in document.items():
            if name not in known:
                allowed = f"{hint(str(name), known)} Allowed are {', '.join(known)}."
                self.errors.append(f"{where} has the unknown field {shown(str(name))}.{allowed}")
                continue
            field_name, read = known[name]
            place = f"{name}" if where == "The policy" else f"{name} of {where}"
            try:
                found[field_name] = read(self, place, value)
            except InvalidValue as error:
                self.errors.append(f"{place}: {error}")
        return found


_Read = Callable[[_Reader, str, Any], Any]


def _wrong(expected: str, value: object) -> NoReturn:
    raise InvalidValue(f"{expected} is expected, found {kind_of(value)}.")


def _part(_: _Reader, __: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.05 <= value <= 1:
        _wrong("a number from 0.05 to 1", value)
    return float(value)


def _duration(least_ms: int, most_ms: int = 7 * 86_400_000) -> _Read:
    def read(_: _Reader, __: str, value: object) -> int:
        found_ms = parse_duration_ms(value)
        if not least_ms <= found_ms <= most_ms:
            allowed = f"from {format_duration_ms(least_ms)} to {format_duration_ms(most_ms)} are allowed"
            raise InvalidValue(f"{allowed}, found {format_duration_ms(found_ms)}.")
        return found_ms

    return read


def _tasks(_: _Reader, __: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_PARALLELISM_LIMIT:
        _wrong(f"a whole number from 1 to {MAX_PARALLELISM_LIMIT}", value)
    return value


def _flag(_: _Reader, __: str, value: object) -> bool:
    if not isinstance(value, bool):
        _wrong("true or false", value)
    return value


def _zone(_: _Reader, __: str, value: object) -> tzinfo:
    try:
        if isinstance(value, str):
            return ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        pass
    _wrong("the name of a time zone such as Europe/Berlin", value)


def _range(reader: _Reader, place: str, value: object) -> Range:
    return Range(**reader.fields(place, value, _RANGE))


def _vertices(reader: _Reader, place: str, value: object) -> dict[str, Range]:
    if not isinstance(value, Mapping):
        _wrong("a mapping of vertex names", value)
    return {str(name): _range(reader, f"{shown(str(name))} in {place}", each) for name, each in value.items()}


def _days(_: _Reader, __: str, value: object) -> frozenset[int]:
    if not isinstance(value, list) or not value or not all(each in DAYS for each in value):
        _wrong(f"a list of {', '.join(DAYS)}", value)
    return frozenset(DAYS.index(each) for each in value)


def _time(_: _Reader, __: str, value: object) -> int:
    found = minute_of_day(value) if isinstance(value, str) else None
    if found is None:
        _wrong('a time of the day such as "08:30", up to "24:00"', value)
    return found


def _schedule(reader: _Reader, place: str, value: object) -> tuple[Period, ...]:
    if not isinstance(value, list):
        _wrong("a list of periods", value)
    found = []
    for number, each in enumerate(value, 1):
        where = f"period {number} of {place}"
        before = len(reader.errors)
        values = reader.fields(where, each, _PERIOD)
        if missing := [name for name in ("from", "to") if isinstance(each, Mapping) and name not in each]:
            reader.errors.append(f"{where} should have the field {' and '.join(missing)}.")
        if len(reader.errors) == before and values["from_minute"] in (values["to_minute"], DAY_MINUTES):
            reader.errors.append(f"{where} should begin before 24:00, and not end when it begins.")
        if len(reader.errors) == before:
            found.append(Period(**values))
    return tuple(found)


_WINDOW_MOST_MS: Final = 300_000
"""The server keeps ten minutes of the figures that are read, and a rate needs some that are whole."""
_RANGE: Final[Mapping[str, tuple[str, _Read]]] = {"min": ("min", _tasks), "max": ("max", _tasks)}
_PERIOD: Final[Mapping[str, tuple[str, _Read]]] = {
    "days": ("days", _days),
    "from": ("from_minute", _time),
    "to": ("to_minute", _time),
    "pause": ("pause", _flag),
    **_RANGE,
}
_FIELDS: Final[Mapping[str, tuple[str, _Read]]] = {
    "targetUtilization": ("target_utilization", _part),
    "maxUtilization": ("max_utilization", _part),
    "catchUp": ("catch_up_ms", _duration(1_000)),
    "scaleDownWindow": ("scale_down_window_ms", _duration(0)),
    "stabilization": ("stabilization_ms", _duration(0)),
    "window": ("window_ms", _duration(5_000, _WINDOW_MOST_MS)),
    "batchDuration": ("batch_ms", _duration(100)),
    "interval": ("interval_ms", _duration(100)),
    "parallelism": ("parallelism", _range),
    "vertices": ("vertices", _vertices),
    "timeZone": ("time_zone", _zone),
    "schedule": ("schedule", _schedule),
    "recommendOnly": ("recommend_only", _flag),
}
assert {name for name, _ in _FIELDS.values()} == {each.name for each in fields(Policy)}


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
