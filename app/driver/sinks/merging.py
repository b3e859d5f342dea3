"""Several files of one batch made into one, without decoding a row.

Parquet row groups are copied as they are and get a new footer; lines of text are put one behind the other (members of
gzip and bzip2 too: their readers read on).
"""

from __future__ import annotations

import bz2
import gzip
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROW_GROUP_BYTES = 128 * 1024 * 1024
_COPY_BYTES = 4 * 1024 * 1024

COMPRESS: dict[str, Callable[[bytes], bytes]] = {"none": bytes, "gzip": gzip.compress, "bzip2": bz2.compress}
"""How a text file that is compressed so begins."""


def merge_parquet(session: SparkSession, parts: Sequence[Path], target: Path) -> None:
    """Write the row groups of ``parts``, which have one schema, into ``target``."""
    # Not by way of Hadoop's file system, which starts a child process (chmod) for each file that it makes.
    jvm: Any = session._jvm
    hadoop, io = jvm.org.apache.parquet.hadoop, jvm.org.apache.parquet.io
    inputs = [io.LocalInputFile(jvm.java.io.File(str(part)).toPath()) for part in parts]
    reader = hadoop.ParquetFileReader.open(inputs[0])
    try:
        metadata = reader.getFooter().getFileMetaData()
    finally:
        reader.close()
    mode = getattr(hadoop, "ParquetFileWriter$Mode").CREATE
    output = io.LocalOutputFile(jvm.java.io.File(str(target)).toPath())
    writer = hadoop.ParquetFileWriter(output, metadata.getSchema(), mode, _ROW_GROUP_BYTES, 0)
    try:
        writer.start()
        for part in inputs:
            writer.appendFile(part)
        # The key-value metadata hold Spark's own schema, with types that Parquet's does not tell apart.
        writer.end(metadata.getKeyValueMetaData())
    finally:
        writer.close()


def merge_lines(parts: Sequence[Path], target: Path, head: bytes) -> None:
    """Write ``head`` and the bytes of ``parts`` into ``target``."""
    with open(target, "wb") as output:
        output.write(head)
        for part in parts:
            with open(part, "rb") as source:
                shutil.copyfileobj(source, output, _COPY_BYTES)


def csv_header(names: Sequence[str], *, sep: str, quote: str, escape: str, quote_all: bool) -> bytes:
    """The first line of a CSV file as Spark writes it: a name is quoted where it must be."""

    def cell(name: str) -> str:
        special = (
            any(mark and mark in name for mark in (sep, quote, "\n", "\r"))
            or name != name.strip()
            or not name
        )
        if not (special or quote_all):
            return name
        return quote + name.replace(quote, escape + quote) + quote

    return (sep.join(cell(name) for name in names) + "\n").encode()
