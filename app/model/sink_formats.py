"""The sinks of Spark and of packages: the fields that a document needs for each, and its guarantees.

The graph parser, the driver and the documentation read this table. A format that is neither in the table nor
one of Slotwise's own sinks is passed to Spark with its options unchanged.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from app.model.jobgraph import OutputMode
from app.model.sentences import shown

_ALL: Final = tuple(OutputMode)
_APPEND: Final = (OutputMode.APPEND,)
_TABLES: Final = (OutputMode.APPEND, OutputMode.COMPLETE)
_FILES_AGAIN: Final = "exactly once, for readers that go by `_spark_metadata`, such as Spark"


@dataclass(frozen=True, slots=True)
class SinkFormat:
    """One format of sinks.

    ``writes`` and ``again`` (what becomes of a batch that is run again) are for the documentation. ``options``: those
    that are documented, by which misspelled ones are found; ``needs``: those that have to be given. ``codecs``: what
    the option `compression` may be. ``has_path``: the field `path` says where it writes; with ``has_table`` the option
    `table` may say it instead. ``batch_codecs``: those of the files that this project writes for BATCH jobs, the usual
    one first, and ``batch_options`` what else such a sink takes; empty if it is for STREAMING jobs only.
    """

    name: str
    writes: str
    again: str
    modes: tuple[OutputMode, ...]
    options: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    codecs: tuple[str, ...] = ()
    has_path: bool = False
    has_table: bool = False
    is_files: bool = False
    batch_options: tuple[str, ...] = ()
    batch_codecs: tuple[str, ...] = ()

    @property
    def documented(self) -> str:
        """Its row in the table of docs/sinks.md."""
        modes = ", ".join(f"`{mode.value}`" for mode in self.modes)
        return f"| `{self.name}` | {self.writes} | {modes} | {self.again} |"


@dataclass(frozen=True, slots=True)
class OwnSink:
    """A format whose sinks get each micro-batch from code of this project. One with ``options`` is a database, whose
    code is the module of its name in `app.driver.sinks`. ``modules`` of Python that it needs where drivers run;
    ``has_path``: the field `path` names the file that it writes.
    """

    options: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    has_path: bool = False


def _files(
    name: str,
    writes: str,
    codecs: tuple[str, ...],
    *options: str,
    batch_options: tuple[str, ...] = (),
    batch_codecs: tuple[str, ...] = (),
) -> SinkFormat:
    return SinkFormat(
        name, writes, _FILES_AGAIN, _APPEND, ("compression", "retention", *options),
        codecs=codecs, has_path=True, is_files=True, batch_options=batch_options, batch_codecs=batch_codecs,
    )  # fmt: skip


_TEXT_CODECS: Final = ("none", "uncompressed", "bzip2", "deflate", "gzip", "lz4", "snappy")
_PARQUET_CODECS: Final = (
    "none", "uncompressed", "snappy", "gzip", "lzo", "brotli", "lz4", "lz4_raw", "zstd",
)  # fmt: skip
PARQUET_CODECS: Final = ("snappy", "zstd", "gzip", "lz4_raw", "none")
"""Of files of BATCH jobs, as the next ones."""
TEXT_CODECS: Final = ("none", "gzip", "bzip2")
_FORMATS_OF_TIMES: Final = ("dateFormat", "timestampFormat", "timestampNTZFormat")
_TIMES: Final = (*_FORMATS_OF_TIMES, "encoding", "lineSep", "locale", "timeZone")
_BATCH_CSV: Final = (
    "emptyValue",
    "escape",
    "header",
    "nullValue",
    "quote",
    "quoteAll",
    "sep",
    *_FORMATS_OF_TIMES,
)
_CSV: Final = (
    "charToEscapeQuoteEscaping", "delimiter", "emptyValue", "escape", "escapeQuotes", "header",
    "ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace", "nullValue", "quote", "quoteAll", "sep",
)  # fmt: skip

SINK_FORMATS: Final[Mapping[str, SinkFormat]] = {
    each.name: each
    for each in (
        _files(
            "csv", "a folder of CSV files", _TEXT_CODECS, *_TIMES, *_CSV,
            batch_options=_BATCH_CSV, batch_codecs=TEXT_CODECS,
        ),
        _files(
            "json", "a folder of files with a JSON object in each line", _TEXT_CODECS, *_TIMES, "ignoreNullFields",
            batch_options=("ignoreNullFields", *_FORMATS_OF_TIMES), batch_codecs=TEXT_CODECS,
        ),
        _files("parquet", "a folder of Parquet files", _PARQUET_CODECS, batch_codecs=PARQUET_CODECS),
        _files("orc", "a folder of ORC files", ("none", "uncompressed", "snappy", "zlib", "zstd", "lz4", "lzo")),
        _files("text", "a folder of lines, of rows with one column of text", _TEXT_CODECS, "lineSep"),
        _files("xml", "a folder of XML files", _TEXT_CODECS, *_TIMES, "rootTag", "rowTag"),
        _files("avro", "a folder of Avro files, with Spark's package of that name", ()),
        SinkFormat(
            "kafka", "a record for each row with a column `value`, and maybe `key`, `topic`, `partition`, `headers`",
            "at least once: records of the batch are sent again", _ALL,
            ("includeHeaders", "kafka.bootstrap.servers", "topic"), needs=("kafka.bootstrap.servers",),
        ),
        SinkFormat(
            "delta", "a Delta table, by `path` or the option `table`", "exactly once, by its transactions",
            _TABLES, ("maxRecordsPerFile", "mergeSchema", "overwriteSchema", "table", "userMetadata"),
            has_path=True, has_table=True,
        ),
        SinkFormat(
            "iceberg", "an Iceberg table, by `path` or the option `table`", "exactly once, by its snapshots",
            _TABLES, ("fanout-enabled", "table"), has_path=True, has_table=True,
        ),
        SinkFormat(
            "console", "the log of the driver, for a look at rows", "at least once", _ALL, ("numRows", "truncate"),
        ),
        SinkFormat("noop", "nowhere: rows are computed and thrown away", "nothing to repeat", _ALL),
    )
}  # fmt: skip

FILE_SINKS: Final = frozenset(each.name for each in SINK_FORMATS.values() if each.is_files)
OWN_SINKS: Final[Mapping[str, OwnSink]] = {
    "sqlite": OwnSink(("table", "mode", "keys"), modules=("pyarrow",), has_path=True),
    "postgresql": OwnSink(("url", "table", "mode", "keys"), modules=("psycopg", "pyarrow")),
    "python": OwnSink(),
}
BATCH_SINKS: Final = (*(each.name for each in SINK_FORMATS.values() if each.batch_codecs), *OWN_SINKS, "noop")
"""What a BATCH job can have, all from code of this project."""
SINKS: Final = (*SINK_FORMATS, *OWN_SINKS)

_TAKEN: Final = {
    "batchcolumn": "it told updates of one key apart, and files take append only now",
    "checkpointlocation": "the checkpoint of a query lies with its job",
    "path": "the sink has a field path for it",
    "partitionby": "Spark takes it by a call of its own, which a document has no field for",
}
"""Options that no sink has, in lower case, and why."""
_BATCH_FLAGS: Final = ("header", "quoteAll")
_ONE_CHARACTER: Final = ("sep", "quote", "escape")
_FLAGS: Final = ("escapequotes", "header", "ignorenullfields", "quoteall")
SIMILAR: Final = 0.75


def sink_option_faults(sink_format: str, given: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Each option that is wrong, and a sentence without its beginning.

    Spark ignores an option that it does not know: one that looks like a known one is refused, any other goes to Spark.
    """
    known = SINK_FORMATS.get(sink_format)
    names = {option.lower(): option for option in known.options} if known is not None else {}
    for option, value in given.items():
        name = option.lower()
        if name in _TAKEN:
            yield option, f"is not an option of sinks of format {sink_format}: {_TAKEN[name]}."
        elif sink_format == "noop":
            yield option, "is not an option of sinks of format noop, which have none."
        elif name == "compression" and known is not None and known.codecs:
            if value.lower() not in known.codecs:
                yield option, f"should be one of {', '.join(known.codecs)}, found {shown(value)}."
        elif name in _FLAGS and name in names:
            if value.lower() not in ("true", "false"):
                yield option, f"should be true or false, found {shown(value)}."
        elif name not in names and (near := difflib.get_close_matches(name[:80], names, n=1, cutoff=SIMILAR)):
            yield (
                option,
                f"is not an option of sinks of format {sink_format}. Did you mean {names[near[0]]!r}?",
            )
    present = {option.lower() for option, value in given.items() if value.strip()}
    for option in known.needs if known is not None else ():
        if option.lower() not in present:
            yield option, f"is missing: sinks of format {sink_format} need it."


def mode_fault(sink_format: str, mode: OutputMode) -> str | None:
    """Why a sink of that format cannot have that output mode, as a sentence without its beginning."""
    known = SINK_FORMATS.get(sink_format)
    if known is None or mode in known.modes:
        return None
    if known.is_files:
        return (
            f"{mode.value} is not possible with files, which Spark only adds to: take append, behind an aggregate with "
            "a watermark, or a sink of format sqlite, postgresql or python."
        )
    allowed = " or ".join(each.value for each in known.modes)
    return f"{mode.value} is not possible with format {sink_format}: take {allowed}."


BATCH_TABLE: Final = "_slotwise_batches"
"""Where a database sink records its batches: no table of a job's own."""


def file_option_faults(sink_format: str, options: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Each option that a sink of files of a BATCH job does not take, and a sentence without its beginning."""
    known = SINK_FORMATS[sink_format]
    names = ("compression", *known.batch_options)
    for name, value in options.items():
        if name not in names:
            yield name, f"is not an option of a {sink_format} sink. Allowed are {', '.join(sorted(names))}."
        elif name == "compression" and value not in known.batch_codecs:
            yield name, f"should be one of {', '.join(known.batch_codecs)}, found {value!r}."
        elif name in _BATCH_FLAGS and value not in ("true", "false"):
            yield name, f"should be true or false, found {value!r}."
        elif name in _ONE_CHARACTER and len(value) != 1:
            yield name, f"should be one character, found {value!r}."
