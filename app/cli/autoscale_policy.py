"""The form of a policy of the autoscaler."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BeforeValidator, Field, model_validator

from app.autoscaler.policy import DAYS, Period, Policy, Range, contradictions
from app.documents.form import Expected, Flag, Form, Given, Tasks, read_form
from app.model.grapherrors import GraphErrors
from app.model.option_values import format_duration_ms, parse_duration_ms
from app.model.sentences import kind_of

_WINDOW_MOST_MS: Final = 300_000
"""The server keeps ten minutes of the figures that are read, and a rate needs some that are whole."""
_WEEK_MS: Final = 7 * 86_400_000
_PERIODS_MOST: Final = 1_000
_TIME_OF_DAY: Final = re.compile(r"([01][0-9]|2[0-4]):([0-5][0-9])\Z")
_DAY_MINUTES: Final = 24 * 60
_TIME: Final = 'a time of the day such as "08:30", up to "24:00"'


def _part(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.05 <= value <= 1:
        raise ValueError(f"should be a number from 0.05 to 1, found {kind_of(value)}.")
    return float(value)


def _duration(least_ms: int, most_ms: int) -> BeforeValidator:
    def read(value: object) -> int:
        found_ms = parse_duration_ms(value)
        if not least_ms <= found_ms <= most_ms:
            allowed = f"from {format_duration_ms(least_ms)} to {format_duration_ms(most_ms)} are allowed"
            raise ValueError(f"{allowed}, found {format_duration_ms(found_ms)}.")
        return found_ms

    return BeforeValidator(read)


def _zone(value: object) -> ZoneInfo:
    with contextlib.suppress(ZoneInfoNotFoundError, ValueError, OSError):
        if isinstance(value, str):
            return ZoneInfo(value)
    raise ValueError(f"should be the name of a time zone such as Europe/Berlin, found {kind_of(value)}.")


def _minute(value: object) -> int:
    match = _TIME_OF_DAY.match(value) if isinstance(value, str) else None
    if match is None or (found := int(match[1]) * 60 + int(match[2])) > _DAY_MINUTES:
        raise ValueError(f"should be {_TIME}, found {kind_of(value)}.")
    return found


def _days(value: object) -> frozenset[int]:
    if not isinstance(value, list) or not value or not all(each in DAYS for each in value):
        raise ValueError(f"should be a list of {', '.join(DAYS)}, found {kind_of(value)}.")
    return frozenset(map(DAYS.index, value))


_Part = Annotated[float, BeforeValidator(_part)]
_Minute = Annotated[int, BeforeValidator(_minute), Expected(_TIME)]
_Pause = Annotated[int, _duration(0, _WEEK_MS)]
_Interval = Annotated[int, _duration(100, _WEEK_MS)]


class RangeForm(Form):
    what = "a range"
    min: Given[Tasks] = None
    max: Given[Tasks] = None

    @property
    def range(self) -> Range:
        return Range(self.min, self.max)


class PeriodForm(Form):
    what = "a period"
    days: Annotated[frozenset[int], BeforeValidator(_days)] = frozenset(range(7))
    begin: _Minute = Field(alias="from")
    end: _Minute = Field(alias="to")
    pause: Flag = False
    min: Given[Tasks] = None
    max: Given[Tasks] = None

    @model_validator(mode="after")
    def _takes_time(self) -> Self:
        if self.begin in (self.end, _DAY_MINUTES):
            raise ValueError("should begin before 24:00, and not end when it begins.")
        return self

    @property
    def period(self) -> Period:
        return Period(self.begin, self.end, self.days, self.min, self.max, self.pause)


class PolicyForm(Form):
    """What is left out is as in a `Policy`."""

    what = "a policy"
    target_utilization: Given[_Part] = None
    max_utilization: Given[_Part] = None
    catch_up_ms: Given[Annotated[int, _duration(1_000, _WEEK_MS)]] = Field(None, alias="catchUp")
    scale_down_window_ms: Given[_Pause] = Field(None, alias="scaleDownWindow")
    stabilization_ms: Given[_Pause] = Field(None, alias="stabilization")
    window_ms: Given[Annotated[int, _duration(5_000, _WINDOW_MOST_MS)]] = Field(None, alias="window")
    batch_ms: Given[_Interval] = Field(None, alias="batchDuration")
    interval_ms: Given[_Interval] = Field(None, alias="interval")
    parallelism: Given[RangeForm] = None
    vertices: Annotated[dict[str, RangeForm], Expected("a mapping of vertex names")] = Field({})
    time_zone: Annotated[Any, BeforeValidator(_zone)] = None
    schedule: Annotated[tuple[PeriodForm, ...], Expected("a list of periods", _PERIODS_MOST)] = ()
    recommend_only: Flag = False


def read_policy(document: object) -> Policy:
    """
    Raises:
        GraphErrors: with all errors, each with its place and a sentence.
    """
    form = read_form(PolicyForm, document)
    said: Mapping[str, Any] = {name: getattr(form, name) for name in form.model_fields_set}
    ranges = {name: each.range for name, each in form.vertices.items()}
    parallelism = Range() if form.parallelism is None else form.parallelism.range
    schedule = tuple(each.period for each in form.schedule)
    policy = Policy(**{**said, "parallelism": parallelism, "vertices": ranges, "schedule": schedule})
    if sentences := contradictions(policy):
        raise GraphErrors(sentences)
    return policy
