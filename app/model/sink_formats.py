"""What is known here of the formats of sinks: our own ones, those that write tables, and what a BATCH job can write.

All else is Spark's to know, or a package's: a format and its options go to it unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from app.model.formats import FILE_FORMATS

TABLE_SINKS: Final = ("delta", "iceberg")
"""Their option `table` names where they write, which the driver gives Spark by a call of its own."""


@dataclass(frozen=True, slots=True)
class OwnSink:
    """A format whose sinks get each micro-batch from code of this project. One with ``options`` is a database, whose
    code is the module of its name in `app.driver.sinks`. ``modules`` of Python that it needs where drivers run;
    ``has_path``: the field `path` names the file that it writes.
    """

    options: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    has_path: bool = False


OWN_SINKS: Final[Mapping[str, OwnSink]] = {
    "sqlite": OwnSink(("table", "mode", "keys"), modules=("pyarrow",), has_path=True),
    "postgresql": OwnSink(("url", "table", "mode", "keys"), modules=("psycopg", "pyarrow")),
    "python": OwnSink(),
}
DATABASES: Final = tuple(name for name, own in OWN_SINKS.items() if own.options)
WHOLE_BATCHES: Final = (*FILE_FORMATS, "delta", "noop")
"""Sinks of Spark's that take a batch as a whole, once however often it is begun, and in which rows have no order."""
BATCH_TABLE: Final = "_slotwise_batches"
"""Where a database sink records its batches: no table of a job's own."""
TAKEN_OPTIONS: Final = {
    "checkpointlocation": "the checkpoint of a query lies with its job",
    "path": "the sink has a field path for it",
    "partitionby": "Spark takes it by a call of its own, which a document has no field for",
}
"""Options that no sink has, in lower case, and why."""

PARQUET_CODECS: Final = ("snappy", "zstd", "gzip", "lz4_raw", "none")
"""Of the files that this project writes for BATCH jobs, the usual one first, as the next ones."""
TEXT_CODECS: Final = ("none", "gzip", "bzip2")
_TIMES: Final = ("dateFormat", "timestampFormat", "timestampNTZFormat")
_CSV: Final = ("emptyValue", "escape", "header", "nullValue", "quote", "quoteAll", "sep", *_TIMES)
_BATCH_FILES: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "csv": (TEXT_CODECS, _CSV),
    "json": (TEXT_CODECS, ("ignoreNullFields", *_TIMES)),
    "parquet": (PARQUET_CODECS, ()),
}
"""By format, what `compression` may be, and the other options."""
BATCH_SINKS: Final = (*_BATCH_FILES, *OWN_SINKS, "noop")
"""What a BATCH job can have, all from code of this project."""
_FLAGS: Final = ("header", "quoteAll")
_ONE_CHARACTER: Final = ("sep", "quote", "escape")


def file_option_faults(sink_format: str, options: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Each option that a sink of files of a BATCH job does not take, and a sentence without its beginning."""
    codecs, others = _BATCH_FILES[sink_format]
    names = ("compression", *others)
    for name, value in options.items():
        if name not in names:
            yield name, f"is not an option of a {sink_format} sink. Allowed are {', '.join(sorted(names))}."
        elif name == "compression" and value not in codecs:
            yield name, f"should be one of {', '.join(codecs)}, found {value!r}."
        elif name in _FLAGS and value not in ("true", "false"):
            yield name, f"should be true or false, found {value!r}."
        elif name in _ONE_CHARACTER and len(value) != 1:
            yield name, f"should be one character, found {value!r}."
