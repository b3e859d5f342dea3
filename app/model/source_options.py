"""The options of the built-in sources that stream: checked when a job is submitted, and again when its driver starts,
all of them, with a sentence per mistake."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

from app.model.sentences import hint, shown

_T = TypeVar("_T")

Mode = Literal["FAILFAST", "PERMISSIVE", "DROPMALFORMED"]
FileFormat = Literal["csv", "json", "parquet", "text"]

FILE_FORMATS: Final[dict[str, FileFormat]] = {name: name for name in ("csv", "json", "parquet", "text")}
RATE_FORMATS: Final = ("rate", "rate-micro-batch")

DEFAULT_MAX_FILES_PER_TRIGGER: Final = 1000
DEFAULT_MAX_ROWS_PER_TRIGGER: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class CsvOptions:
    """``quote`` is empty if values are never quoted. An empty value is null, whatever ``null_value`` is."""

    header: bool = False
    sep: str = ","
    quote: str = '"'
    null_value: str = ""


@dataclass(frozen=True, slots=True)
class FileOptions:
    """Options of the file formats. Rates are None when whatever is there may be read at once."""

    max_files_per_trigger: int = DEFAULT_MAX_FILES_PER_TRIGGER
    max_rows_per_trigger: int = DEFAULT_MAX_ROWS_PER_TRIGGER
    files_per_second: float | None = None
    rows_per_second: float | None = None
    finite: bool = False
    recursive: bool = False
    glob: str = "*"
    mode: Mode = "FAILFAST"
    csv: CsvOptions = CsvOptions()


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


def parse_file_options(file_format: str, given: Mapping[str, str]) -> FileOptions:
    """Raises OptionErrors, which names every option that is unknown or has no legal value."""
    reader = _Reader(given)
    count = "a whole number above 0"
    options = FileOptions(
        max_files_per_trigger=reader.take(
            "maxFilesPerTrigger", DEFAULT_MAX_FILES_PER_TRIGGER, _positive, count
        ),
        max_rows_per_trigger=reader.take("maxRowsPerTrigger", DEFAULT_MAX_ROWS_PER_TRIGGER, _positive, count),
        files_per_second=reader.take("filesPerSecond", None, _rate, "a number above 0"),
        rows_per_second=reader.take("rowsPerSecond", None, _rate, "a number above 0"),
        finite=reader.take("finite", False, _boolean, "true or false"),
        recursive=reader.take("recursiveFileLookup", False, _boolean, "true or false"),
        glob=reader.take("pathGlobFilter", "*", _text, "a pattern such as *.csv"),
        mode=_mode(reader) if file_format in ("csv", "json") else "FAILFAST",
        csv=_csv(reader) if file_format == "csv" else CsvOptions(),
    )
    reader.finish(f"a streaming {file_format} source")
    return options


def option_faults(source_format: str, given: Mapping[str, str]) -> list[tuple[str, str]]:
    """Each option that is unknown or has no legal value, of a built-in source that streams."""
    try:
        if source_format in RATE_FORMATS:
            parse_rate_options(source_format, given)
        else:
            parse_file_options(source_format, given)
    except OptionErrors as errors:
        return errors.faults
    return []


def parse_rate_options(source_format: str, given: Mapping[str, str]) -> RateOptions:
    """Raises OptionErrors, which names every option that is unknown or has no legal value."""
    reader = _Reader(given)
    count = "a whole number above 0"
    row_count = reader.take("rowCount", None, _count, "a whole number of at least 0")
    if source_format == "rate":
        rate = reader.take("rowsPerSecond", 1.0, _plain_rate, "a number above 0")
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


def _mode(reader: _Reader) -> Mode:
    return reader.take("mode", "FAILFAST", _mode_value, "FAILFAST, PERMISSIVE or DROPMALFORMED")


def _csv(reader: _Reader) -> CsvOptions:
    return CsvOptions(
        header=reader.take("header", False, _boolean, "true or false"),
        sep=reader.take("sep", ",", _separator, "one ASCII character other than a quote or a line break"),
        quote=reader.take("quote", '"', _quote, "one ASCII character, or empty for no quotes"),
        null_value=reader.take("nullValue", "", _text, "a text"),
    )


def _mode_value(text: str) -> Mode:
    value = text.strip().upper()
    if value == "FAILFAST":
        return "FAILFAST"
    if value == "PERMISSIVE":
        return "PERMISSIVE"
    if value == "DROPMALFORMED":
        return "DROPMALFORMED"
    raise ValueError(text)


def _text(text: str) -> str:
    return text


def _separator(text: str) -> str:
    value = "\t" if text == r"\t" else text
    if len(value) != 1 or not value.isascii() or value in '"\r\n':
        raise ValueError(text)
    return value


def _quote(text: str) -> str:
    if len(text) > 1 or not text.isascii() or text in ("\r", "\n"):
        raise ValueError(text)
    return text


def _boolean(text: str) -> bool:
    value = text.strip().lower()
    if value not in ("true", "false"):
        raise ValueError(text)
    return value == "true"


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


def _plain_rate(text: str) -> float:
    if len(text) > 40:
        raise ValueError(text)
    value = float(text)
    if not math.isfinite(value) or value <= 0:
        raise ValueError(text)
    return value


def _rate(text: str) -> float | None:
    return _plain_rate(text)
