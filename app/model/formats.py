"""What is known here of the formats of sources: which are of files, and the options of our own one, `rate`.

All else is Spark's to know, or a package's: a format and its options go to it unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from app.model.sentences import hint, shown

FILE_FORMATS: Final = ("csv", "json", "parquet", "orc", "text", "xml", "avro")
DEFAULT_MAX_ROWS_PER_TRIGGER: Final = 1_000_000
_MOST_PER_S: Final = 1e12


@dataclass(frozen=True, slots=True)
class RateOptions:
    """``row_count`` None: it never ends."""

    rows_per_second: float
    max_rows_per_trigger: int
    row_count: int | None


def _count(text: str) -> int:
    # int() would also take "1_000" and digits of other scripts.
    value = text.strip()
    if not (value.isascii() and value.isdigit() and len(value) <= 18):
        raise ValueError(text)
    return int(value)


def _positive(text: str) -> int:
    if (value := _count(text)) < 1:
        raise ValueError(text)
    return value


def _rate(text: str) -> float:
    if len(text) > 40 or not 0 < (value := float(text)) <= _MOST_PER_S:
        raise ValueError(text)
    return value


RATE: Final[Mapping[str, tuple[Callable[[str], float], str]]] = {
    "maxRowsPerTrigger": (_positive, "a whole number above 0"),
    "rowCount": (_count, "a whole number of at least 0"),
    "rowsPerSecond": (_rate, f"a number above 0, at most {_MOST_PER_S:g}"),
}
"""How each option is read, and what it may be."""


def rate_option_faults(given: Mapping[str, str]) -> list[tuple[str, str]]:
    """Each option that is unknown or has no legal value, and a sentence without its beginning."""
    known = {name.lower(): reading for name, reading in RATE.items()}
    faults = []
    for name, text in given.items():
        if name.lower() not in known:
            allowed = f"{hint(name, RATE)} Allowed are {', '.join(RATE)}."
            faults.append((name, f"is not an option of the source rate.{allowed}"))
            continue
        read, what = known[name.lower()]
        try:
            read(text)
        except ValueError:
            faults.append((name, f"should be {what}, found {shown(text)}."))
    return faults


def rate_options(given: Mapping[str, str]) -> RateOptions:
    """What options without faults say."""
    texts = {name.lower(): text for name, text in given.items()}
    per_s = _rate(texts.get("rowspersecond", "1"))
    # Ten seconds' worth at least: a cap below the rate would never catch up.
    cap = max(DEFAULT_MAX_ROWS_PER_TRIGGER, math.ceil(10 * per_s))
    count = texts.get("rowcount")
    return RateOptions(
        per_s, _positive(texts.get("maxrowspertrigger", str(cap))), None if count is None else _count(count)
    )
