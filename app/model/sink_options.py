"""The options of sinks of files in BATCH jobs: checked when a job is submitted, and again when its driver starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

BATCH_TABLE: Final = "_slotwise_batches"
"""Where a database sink records its batches: no table of a job's own."""

_TIMES = ("dateFormat", "timestampFormat", "timestampNTZFormat")
FILE_OPTIONS: Final = {
    "parquet": ("compression",),
    "json": ("compression", "ignoreNullFields", *_TIMES),
    "csv": (
        "compression", "emptyValue", "escape", "header", "nullValue", "quote", "quoteAll", "sep",
        *_TIMES,
    ),
}  # fmt: skip
PARQUET_CODECS: Final = ("snappy", "zstd", "gzip", "lz4_raw", "none")
TEXT_CODECS: Final = ("none", "gzip", "bzip2")
ONE_CHARACTER: Final = ("sep", "quote", "escape")
FLAGS: Final = ("header", "quoteAll")


def file_option_faults(sink_format: str, options: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Each option that a sink of files does not take, and a sentence without its beginning."""
    known = FILE_OPTIONS[sink_format]
    codecs = PARQUET_CODECS if sink_format == "parquet" else TEXT_CODECS
    for name, value in options.items():
        if name not in known:
            yield name, f"is not an option of a {sink_format} sink. Allowed are {', '.join(sorted(known))}."
        elif name == "compression" and value not in codecs:
            yield name, f"should be one of {', '.join(codecs)}, found {value!r}."
        elif name in FLAGS and value not in ("true", "false"):
            yield name, f"should be true or false, found {value!r}."
        elif name in ONE_CHARACTER and len(value) != 1:
            yield name, f"should be one character, found {value!r}."
