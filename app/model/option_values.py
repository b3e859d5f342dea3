"""Parsing of option values: durations as in Flink's configuration, counts, fractions, choices."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Final

from app.model.batch import DeciderRule, SkewStrategy
from app.model.slot_share import CAP_MAX, PRIORITY_MAX, WEIGHT_MAX

AUTOSCALER: Final = "job.autoscaler."
"""The beginning of the names of Flink's autoscaler, which reads them from a job's settings. Here they do nothing."""
FINAL_EXCEPTIONS: Final = "slotwise.failure.final-exceptions"
RECOVERABLE_EXCEPTIONS: Final = "slotwise.failure.recoverable-exceptions"
USER_CODE_ATTEMPTS: Final = "slotwise.failure.user-code-attempts"
LOCAL_TIMEOUT: Final = "slotwise.failure.local-timeout"

MAX_DURATION_MS: Final = 100 * 365 * 86_400_000
"""A hundred years: beyond it a duration is a mistake."""

MAX_COUNT: Final = 2**31 - 1

_UNITS_NS: Final[dict[str, int]] = {
    label: factor
    for labels, factor in (
        ("ns nano nanosecond nanos nanoseconds", 1),
        ("us µs micro microsecond micros microseconds", 1_000),
        ("ms milli millisecond millis milliseconds", 1_000_000),
        ("s sec second secs seconds", 1_000_000_000),
        ("m min minute minutes", 60_000_000_000),
        ("h hour hours", 3_600_000_000_000),
        ("d day days", 86_400_000_000_000),
    )
    for label in labels.split()
}
_SIMPLE = re.compile(r"(-?[0-9]{1,18})\s*([a-zµ]*)\Z")
_ISO = re.compile(
    r"P(?:([0-9]{1,6})D)?(?:T(?=[0-9])(?:([0-9]{1,9})H)?(?:([0-9]{1,9})M)?(?:([0-9]{1,9}(?:\.[0-9]{1,9})?)S)?)?\Z"
)
_DURATION_FORMS = (
    "a duration such as '500 ms', '30 s', '1min', '2 h', 'PT30S' or a plain number of milliseconds"
)


class InvalidValue(ValueError):
    """A value is not allowed; the message is the end of a sentence that names the option."""


Parser = Callable[[object], object]
"""From what a person writes to the value of an option; raises InvalidValue."""


def _shown(raw: object) -> str:
    return f"found {str(raw)[:80]!r}"


def parse_duration_ms(raw: object) -> int:
    """Milliseconds of a duration as Flink writes it. Raises InvalidValue."""
    if isinstance(raw, bool) or not isinstance(raw, int | str):
        raise InvalidValue(f"{_DURATION_FORMS} is expected, {_shown(raw)}.")
    text = str(raw).strip()
    match = _SIMPLE.match(text.lower())
    if match:
        unit = match[2] or "ms"
        if unit not in _UNITS_NS:
            raise InvalidValue(f"the unit {unit!r} is unknown; allowed are ns, us, ms, s, min, h and d.")
        nanoseconds = int(match[1]) * _UNITS_NS[unit]
    else:
        iso = _ISO.match(text.upper())
        if iso is None or not any(iso.groups()):
            raise InvalidValue(f"{_DURATION_FORMS} is expected, {_shown(raw)}.")
        days, hours, minutes = (int(part or 0) for part in iso.group(1, 2, 3))
        seconds = Decimal(iso[4] or 0) + ((days * 24 + hours) * 60 + minutes) * 60
        nanoseconds = int(seconds * 1_000_000_000)
    if nanoseconds % 1_000_000:
        raise InvalidValue(f"a whole number of milliseconds is expected, {_shown(raw)}.")
    if nanoseconds // 1_000_000 > MAX_DURATION_MS:
        raise InvalidValue(f"at most a hundred years are allowed, {_shown(raw)}.")
    return nanoseconds // 1_000_000


def _duration_or_forever_ms(raw: object) -> int:
    """A negative one stands for a wait that never ends, and is -1."""
    return max(-1, parse_duration_ms(raw))


def format_duration_ms(value: int) -> str:
    """The shortest text with a unit: '30 s' for 30000."""
    for unit, factor in (("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if value > 0 and value % factor == 0:
            return f"{value // factor} {unit}"
    return f"{value} ms"


def _duration(lowest_ms: int, rule: str) -> Parser:
    def parse(raw: object) -> int:
        value = parse_duration_ms(raw)
        if value < lowest_ms:
            raise InvalidValue(f"{rule}, {_shown(raw)}.")
        return value

    return parse


def _count(lowest: int, highest: int = MAX_COUNT) -> Callable[[object], int]:
    def parse(raw: object) -> int:
        text = str(raw).strip()
        if (
            isinstance(raw, bool)
            or not re.fullmatch(r"-?[0-9]{1,12}", text)
            or not lowest <= int(text) <= highest
        ):
            raise InvalidValue(f"a whole number between {lowest} and {highest} is expected, {_shown(raw)}.")
        return int(text)

    return parse


def _count_or_none(lowest: int, highest: int) -> Parser:
    count = _count(lowest, highest)

    def parse(raw: object) -> int | None:
        if str(raw).strip() == "none":
            return None
        try:
            return count(raw)
        except InvalidValue:
            rule = f"a whole number between {lowest} and {highest}, or none, is expected"
            raise InvalidValue(f"{rule}, {_shown(raw)}.") from None

    return parse


def _number(allowed: Callable[[float], bool], rule: str) -> Parser:
    def parse(raw: object) -> float:
        text = str(raw).strip()
        if (
            isinstance(raw, bool)
            or not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text)
            or not allowed(float(text))
        ):
            raise InvalidValue(f"{rule} is expected, {_shown(raw)}.")
        return float(text)

    return parse


def _choice(allowed: dict[str, str]) -> Parser:
    """``allowed`` maps the accepted spellings, in lower case, to the value."""

    def parse(raw: object) -> str:
        try:
            return allowed[str(raw).strip().lower()]
        except KeyError:
            names = ", ".join(dict.fromkeys(allowed.values()))
            raise InvalidValue(f"one of {names} is expected, {_shown(raw)}.") from None

    return parse


def _boolean(raw: object) -> bool:
    text = str(raw).strip().lower()
    if text not in ("true", "false"):
        raise InvalidValue(f"true or false is expected, {_shown(raw)}.")
    return text == "true"


def _boolean_or(none: str) -> Parser:
    """``none`` is None: it is left to something else."""

    def parse(raw: object) -> bool | None:
        is_none = isinstance(raw, str) and raw.strip().lower() == none
        return None if is_none else _boolean(raw)

    return parse


_CLASS_NAME = re.compile(r"[A-Za-z_$][\w$]{0,99}(?:\.[A-Za-z_$][\w$]{0,99}){0,19}\Z", re.ASCII)
_MOST_CLASS_NAMES: Final = 100


def _class_names(raw: object) -> tuple[str, ...]:
    text = str(raw).strip()
    if isinstance(raw, str) and text == "none":
        return ()
    names = tuple(dict.fromkeys(name.strip() for name in re.split(r"[,;]", text)))
    rule = "names of exception classes with commas between them, such as ValueError, java.io.IOException, or none"
    if not isinstance(raw, str) or not all(_CLASS_NAME.match(name) for name in names):
        raise InvalidValue(f"{rule}, are expected, {_shown(raw)}.")
    if len(names) > _MOST_CLASS_NAMES:
        raise InvalidValue(f"at most {_MOST_CLASS_NAMES} names are allowed, found {len(names)}.")
    return names


_SIZE = re.compile(r"([0-9]{1,12})\s*([A-Za-z]*)")
_SIZE_UNITS: Final = {
    **dict.fromkeys(("", "b", "bytes"), 1),
    **dict.fromkeys(("k", "kb", "kibibytes"), 1 << 10),
    **dict.fromkeys(("m", "mb", "mebibytes"), 1 << 20),
    **dict.fromkeys(("g", "gb", "gibibytes"), 1 << 30),
    **dict.fromkeys(("t", "tb", "tebibytes"), 1 << 40),
}


def parse_size_bytes(raw: object) -> int:
    """A memory size as Flink writes it: '16 mb', '1g', a plain number of bytes. Units are powers of 1024.

    Raises:
        InvalidValue: it is something else, or 0.
    """
    match = None if isinstance(raw, bool) else _SIZE.fullmatch(str(raw).strip())
    unit = _SIZE_UNITS.get(match[2].lower()) if match else None
    if match is None or unit is None or int(match[1]) == 0:
        raise InvalidValue(
            f"a size above 0 such as 16 mb (units b, kb, mb, gb, tb) is expected, {_shown(raw)}."
        )
    return int(match[1]) * unit


DURATION: Final = _duration(0, "a duration must not be negative")
POSITIVE_DURATION: Final = _duration(1, "a duration of at least 1 ms is expected")
DURATION_OR_FOREVER: Final = _duration_or_forever_ms
COUNT: Final = _count(0)
POSITIVE_COUNT: Final = _count(1)
WEIGHT: Final = _count(1, WEIGHT_MAX)
PRIORITY: Final = _count(-PRIORITY_MAX, PRIORITY_MAX)
CLASS_NAMES: Final = _class_names
CAP: Final = _count_or_none(1, CAP_MAX)
FRACTION: Final = _number(lambda value: 0 <= value <= 1, "a number between 0 and 1")
MULTIPLIER: Final = _number(lambda value: value > 1, "a number greater than 1")
BOOLEAN: Final = _boolean
BOOLEAN_OR_BY_SINK: Final = _boolean_or("by-sink")
SIZE: Final = parse_size_bytes
SCHEDULER: Final = _choice({"adaptive": "Adaptive"})
MODE: Final = _choice({"none": "none", "reactive": "reactive"})
DECIDER: Final = _choice({rule.value: rule.value for rule in DeciderRule})
TRIGGER: Final = _choice({one: one for one in ("processing-time", "available-now")})
SKEW_STRATEGY: Final = _choice({one.value: one.value for one in SkewStrategy})
_STRATEGIES: Final = ("none", "fixed-delay", "failure-rate", "exponential-delay")
STRATEGY: Final = _choice(
    {one: one for one in _STRATEGIES}
    | {one.replace("-", ""): one for one in _STRATEGIES}
    | {"off": "none", "disable": "none"}
)
