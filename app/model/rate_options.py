"""The options of the sources `rate` and `rate-micro-batch`: checked when a job is submitted, and again when its driver
starts, all of them, with a sentence per mistake."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from app.model.sentences import hint, shown

_T = TypeVar("_T")

DEFAULT_MAX_ROWS_PER_TRIGGER: Final = 1_000_000
_MOST_PER_S: Final = 1e12


@dataclass(frozen=True, slots=True)
class RateOptions:
    """Options of `rate` and `rate-micro-batch`; each uses its own. ``row_count`` None: it never ends."""

    rows_per_second: float = 1.0
    rows_per_batch: int = 1000
    start_ms: int = 0
    advance_ms: int = 1000
    row_count: int | None = None
    max_rows_per_trigger: int = DEFAULT_MAX_ROWS_PER_TRIGGER


class OptionErrors(ValueError):
    """``faults`` has each option that is wrong, and a sentence without its beginning."""

    def __init__(self, faults: list[tuple[str, str]]) -> None:
        super().__init__(" ".join(f"Option {name} {rest}" for name, rest in faults))
        self.faults = faults


class _Reader:
    """Takes known options out of a mapping, without regard to case, and collects what is wrong."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): (name, value) for name, value in given.items()}
        self._known: list[str] = []
        self.errors: list[tuple[str, str]] = []

    def take(self, name: str, default: _T, parse: Callable[[str], _T], allowed: str) -> _T:
        self._known.append(name)
        entry = self._given.pop(name.lower(), None)
        if entry is None:
            return default
        try:
            return parse(entry[1])
        except ValueError:
            self.errors.append((entry[0], f"should be {allowed}, found {shown(entry[1])}."))
            return default

    def finish(self, what: str) -> None:
        known = ", ".join(sorted(self._known, key=str.lower))
        for name, _ in self._given.values():
            near = hint(name, self._known)
            self.errors.append((name, f"is not an option of {what}.{near} Allowed are {known}."))
        if self.errors:
            raise OptionErrors(self.errors)


def rate_option_faults(source_format: str, given: Mapping[str, str]) -> list[tuple[str, str]]:
    """Each option that is unknown or has no legal value, and a sentence without its beginning."""
    try:
        parse_rate_options(source_format, given)
    except OptionErrors as errors:
        return errors.faults
    return []


def parse_rate_options(source_format: str, given: Mapping[str, str]) -> RateOptions:
    """Raises OptionErrors, which names every option that is unknown or has no legal value."""
    reader = _Reader(given)
    count = "a whole number above 0"
    row_count = reader.take("rowCount", None, _count, "a whole number of at least 0")
    if source_format == "rate":
        rate = reader.take("rowsPerSecond", 1.0, _rate, f"a number above 0, at most {_MOST_PER_S:g}")
        # Ten seconds' worth at least: a cap below the rate would never catch up.
        cap = max(DEFAULT_MAX_ROWS_PER_TRIGGER, math.ceil(10 * rate))
        cap = reader.take("maxRowsPerTrigger", cap, _positive, count)
        options = RateOptions(rows_per_second=rate, max_rows_per_trigger=cap, row_count=row_count)
    else:
        options = RateOptions(
            rows_per_batch=reader.take("rowsPerBatch", 1000, _positive, count),
            start_ms=reader.take("startTimestamp", 0, _count, "milliseconds since 1970, a whole number"),
            advance_ms=reader.take("advanceMillisPerBatch", 1000, _count, "a whole number of at least 0"),
            row_count=row_count,
        )
    reader.finish(f"the source {source_format}")
    return options


def _count(text: str) -> int:
    # int() would also take "1_000" and digits of other scripts.
    value = text.strip()
    if not (value.isascii() and value.isdigit() and len(value) <= 18):
        raise ValueError(text)
    return int(value)


def _positive(text: str) -> int:
    value = _count(text)
    if value < 1:
        raise ValueError(text)
    return value


def _rate(text: str) -> float:
    if len(text) > 40:
        raise ValueError(text)
    value = float(text)
    if not 0 < value <= _MOST_PER_S:
        raise ValueError(text)
    return value
