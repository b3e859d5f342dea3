"""The known formats of sources: the fields that a document needs for each, how it splits, and its guarantees.

The graph parser, the driver and the documentation read this table. A format that is not in it is Spark's own or that of
a package: its options go to Spark unchanged.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from app.model.sentences import hint, shown

_FROM_FILES = "files are cut and put together into as many parts as the plan says"
_FILES_AGAIN = "exactly once: Spark's log in the checkpoint says which files a batch has"

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


def positive(text: str) -> int:
    """
    Raises:
        ValueError: ``text`` is no whole number above 0.
    """
    if (value := _count(text)) < 1:
        raise ValueError(text)
    return value


def _rate(text: str) -> float:
    if len(text) > 40 or not 0 < (value := float(text)) <= _MOST_PER_S:
        raise ValueError(text)
    return value


RATE: Final[Mapping[str, tuple[Callable[[str], float], str]]] = {
    "maxRowsPerTrigger": (positive, "a whole number above 0"),
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
        per_s, positive(texts.get("maxrowspertrigger", str(cap))), None if count is None else _count(count)
    )


@dataclass(frozen=True, slots=True)
class SourceFormat:
    """One format of sources.

    ``reads``, ``splits`` and ``again`` (what a batch reads that is run again) are for the documentation. ``options``:
    those that are documented, by which misspelled ones are found. ``split_option``: what says before the query starts
    into how many parts a batch is to be split at least, if nothing says it later. ``makes_rows``: it reads nothing, and
    has no end. ``needs_schema``: a source that streams has to name its columns.
    """

    name: str
    reads: str
    splits: str
    again: str
    options: tuple[str, ...] = ()
    split_option: str = ""
    is_files: bool = False
    makes_rows: bool = False
    needs_schema: bool = False

    @property
    def documented(self) -> str:
        """Its row in the table of docs/sources.md."""
        return f"| `{self.name}` | {self.reads} | {self.splits} | {self.again} |"


_FILE_OPTIONS: Final = (
    "basePath", "cleanSource", "fileNameOnly", "ignoreCorruptFiles", "ignoreMissingFiles", "latestFirst",
    "maxBytesPerTrigger", "maxCachedFiles", "maxFileAge", "maxFilesPerTrigger", "modifiedAfter", "modifiedBefore",
    "pathGlobFilter", "recursiveFileLookup", "sourceArchiveDir",
)  # fmt: skip
_TEXTS: Final = (
    "columnNameOfCorruptRecord", "compression", "dateFormat", "enableDateTimeParsingFallback", "encoding", "lineSep",
    "locale", "mode", "multiLine", "samplingRatio", "singleVariantColumn", "timeFormat", "timeZone", "timestampFormat",
    "timestampNTZFormat",
)  # fmt: skip
_CSV: Final = (
    "charToEscapeQuoteEscaping", "charset", "comment", "delimiter", "emptyValue", "enforceSchema", "escape", "header",
    "ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace", "inferSchema", "maxCharsPerColumn", "maxColumns",
    "nanValue", "negativeInf", "nullValue", "positiveInf", "preferDate", "quote", "sep", "unescapedQuoteHandling",
)  # fmt: skip
_JSON: Final = (
    "allowBackslashEscapingAnyCharacter", "allowComments", "allowNonNumericNumbers", "allowNumericLeadingZeros",
    "allowSingleQuotes", "allowUnquotedControlChars", "allowUnquotedFieldNames", "dropFieldIfAllNull",
    "prefersDecimal", "primitivesAsString",
)  # fmt: skip
_XML: Final = (
    "attributePrefix", "excludeAttribute", "ignoreNamespace", "ignoreSurroundingSpaces", "inferSchema", "nullValue",
    "rowTag", "rowValidationXSDPath", "validateName", "valueTag", "wildcardColName",
)  # fmt: skip
_AVRO: Final = (
    "avroSchema", "datetimeRebaseMode", "enableStableIdentifiersForUnionType", "ignoreExtension", "mode",
    "positionalFieldMatching", "recursiveFieldMaxDepth",
)  # fmt: skip
_PARQUET: Final = ("datetimeRebaseMode", "int96RebaseMode", "mergeSchema")
_KAFKA: Final = (
    "assign", "failOnDataLoss", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "groupIdPrefix",
    "includeHeaders", "kafka.bootstrap.servers", "kafka.group.id", "kafkaConsumer.pollTimeoutMs",
    "maxOffsetsPerTrigger", "maxTriggerDelay", "minOffsetsPerTrigger", "minPartitions", "startingOffsets",
    "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy", "startingTimestamp", "subscribe",
    "subscribePattern",
)  # fmt: skip
_DELTA: Final = (
    "excludeRegex", "failOnDataLoss", "ignoreChanges", "ignoreDeletes", "maxBytesPerTrigger", "maxFilesPerTrigger",
    "readChangeFeed", "schemaTrackingLocation", "skipChangeCommits", "startingTimestamp", "startingVersion",
    "withEventTimeOrder",
)  # fmt: skip
_ICEBERG: Final = (
    "file-open-cost", "lookback", "split-size", "stream-from-timestamp", "streaming-max-files-per-micro-batch",
    "streaming-max-rows-per-micro-batch", "streaming-skip-delete-snapshots", "streaming-skip-overwrite-snapshots",
)  # fmt: skip


def _files(name: str, reads: str, *options: str, needs_schema: bool = False) -> SourceFormat:
    known = (*_FILE_OPTIONS, *options)
    return SourceFormat(
        name, reads, _FROM_FILES, _FILES_AGAIN, known, is_files=True, needs_schema=needs_schema
    )


FORMATS: Final[Mapping[str, SourceFormat]] = {
    each.name: each
    for each in (
        _files("csv", "CSV files of a directory, and those that arrive later", *_TEXTS, *_CSV, needs_schema=True),
        _files("json", "files with a JSON object in each line", *_TEXTS, *_JSON, needs_schema=True),
        _files("parquet", "Parquet files; a part begins at a row group", *_PARQUET),
        _files("orc", "ORC files; a part begins at a stripe", "mergeSchema"),
        _files("text", "lines of files, in the column `value`", "wholetext", "lineSep", "encoding"),
        _files("xml", "XML files; the option `rowTag` names the element of a row", *_TEXTS, *_XML, needs_schema=True),
        _files("avro", "Avro files, with Spark's package of that name", *_AVRO),
        SourceFormat(
            "kafka", "topics of Kafka",
            "partitions of the topics, and ranges of them: `minPartitions`, by default the parallelism at the start",
            "exactly once, from the offsets in the checkpoint", _KAFKA, split_option="minPartitions",
        ),
        SourceFormat(
            "delta", "a Delta table and what is appended to it", "as Delta plans it: by its files",
            "exactly once, from the versions in the checkpoint", _DELTA,
        ),
        SourceFormat(
            "iceberg", "an Iceberg table and what is appended to it", "as Iceberg plans it: `split-size`",
            "exactly once, from the snapshots in the checkpoint", _ICEBERG,
        ),
        SourceFormat(
            "rate", "numbered rows, so many a second, for tests and load", "as many parts as the plan says",
            "the same rows", tuple(RATE), makes_rows=True,
        ),
        SourceFormat(
            "rate-micro-batch", "numbered rows, so many a batch, for tests and load",
            "`numPartitions`, by default the parallelism at the start", "the same rows",
            ("advanceMillisPerBatch", "numPartitions", "rowsPerBatch", "startTimestamp"),
            split_option="numPartitions", makes_rows=True,
        ),
    )
}  # fmt: skip

FILE_FORMATS: Final = tuple(each.name for each in FORMATS.values() if each.is_files)

_PACE: Final = (
    "files are read as they come: limit a batch with maxFilesPerTrigger or maxBytesPerTrigger, and how often there is "
    "one with slotwise.batch.interval in the config of the job"
)
_GONE: Final = {
    "rowspersecond": _PACE,
    "filespersecond": _PACE,
    "maxrowspertrigger": "take maxFilesPerTrigger or maxBytesPerTrigger",
    "finite": "set slotwise.batch.trigger to available-now in the config of the job, which then ends when it has read "
    "what is there",
}
"""Options of sources of files that earlier versions had, and what to do instead."""

_COUNTS: Final = ("maxfilespertrigger", "maxbytespertrigger")
_SIMILAR: Final = 0.8


def option_faults(source_format: str, given: Mapping[str, str]) -> list[tuple[str, str]]:
    """Each option that is wrong, and a sentence without its beginning.

    Spark ignores an option that it does not know: one that looks like a known one is refused, any other goes to Spark.
    """
    known = FORMATS.get(source_format)
    if known is None:
        return []
    if source_format == "rate":
        return rate_option_faults(given)
    faults: list[tuple[str, str]] = []
    if source_format == "rate-micro-batch" and "rowsperbatch" not in map(str.lower, given):
        faults.append(("rowsPerBatch", "is missing: a rate-micro-batch source needs it."))
    names = {option.lower(): option for option in known.options}
    for option, value in given.items():
        name = option.lower()
        if source_format == "rate-micro-batch" and name == "rowcount":
            faults.append(
                (option, "is not an option of a rate-micro-batch source: take the format rate, which ends.")
            )
        elif known.is_files and name in _GONE:
            faults.append((option, f"is not an option of a {source_format} source: {_GONE[name]}."))
        elif name in names:
            if known.is_files and name in _COUNTS and not _is_positive(value):
                faults.append((option, f"should be a whole number above 0, found {shown(value)}."))
        elif near := difflib.get_close_matches(name[:80], names, n=1, cutoff=_SIMILAR):
            faults.append(
                (option, f"is not an option of a {source_format} source. Did you mean {names[near[0]]!r}?")
            )
    return faults


def _is_positive(text: str) -> bool:
    try:
        return positive(text) > 0
    except ValueError:
        return False
