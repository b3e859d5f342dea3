"""Files of BATCH jobs: what a sink gets becomes exactly one file of the directory, complete or absent.

The tasks write into a hidden staging directory below the path. Their files are made into one without decoding a row:
Parquet row groups are copied as they are and get a new footer; lines of text are put one behind the other (members of
gzip and bzip2 too: their readers read on). That one gets its name, which says job and sink, in a single step of the
file system. So whoever lists the directory, with Spark or without, sees the rows of a job once and never a part.

Before a run looks whether that name is taken, it removes what earlier runs have staged. So one that was thought dead,
and wakes behind its last look whether it may commit, has nothing left that could get the name.
"""

from __future__ import annotations

import bz2
import contextlib
import errno
import gzip
import os
import shutil
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from app.driver.sinks.base import BatchRef, MayCommit, Sink, Written, os_error, run_without_output
from app.driver.sinks.staging import parquet_rows, staging, write_parts
from app.durablefiles import sync_to_disk
from app.model.jobgraph import JobVertex, SinkSpec
from app.model.locations import plain_location
from app.model.sink_formats import PARQUET_CODECS, TEXT_CODECS

STAGING = ".staging"

_WHERE = "it is that of the sink's path"
_ROW_GROUP_BYTES = 128 * 1024 * 1024
_COPY_BYTES = 4 * 1024 * 1024
_SUFFIX = {"none": "", "gzip": ".gz", "bzip2": ".bz2"}
_COMPRESS: dict[str, Callable[[bytes], bytes]] = {"none": bytes, "gzip": gzip.compress, "bzip2": bz2.compress}


@dataclass(frozen=True)
class FileSink(Sink):
    """A directory of files, one per job and sink. ``passed`` are the options that Spark's writer gets."""

    vertex: str
    format: str
    directory: Path
    compression: str
    header: bool
    passed: dict[str, str]

    @classmethod
    def of(cls, vertex: JobVertex, spec: SinkSpec) -> FileSink:
        options = dict(spec.options)
        header = options.pop("header", "false") == "true"
        codecs = PARQUET_CODECS if spec.format == "parquet" else TEXT_CODECS
        options.setdefault("compression", codecs[0])
        path = spec.path or ""
        directory = Path(plain_location(path) or path)
        return cls(vertex.name, spec.format, directory, options["compression"], header, options)

    def prepare(self) -> None:
        try:
            (self.directory / STAGING).mkdir(parents=True, exist_ok=True)
            if not os.access(self.directory, os.W_OK | os.X_OK):
                raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        except OSError as error:
            raise os_error(error, f"The directory {self.directory} cannot be written", self.vertex) from error

    def write(self, frame: DataFrame, batch: BatchRef, may_commit: MayCommit) -> Written:
        suffix = "" if self.format == "parquet" else _SUFFIX[self.compression]
        target = self.directory / f"part-{batch.query_id}.{self.format}{suffix}"
        staged = self.directory / STAGING / batch.query_id
        try:
            self._remove(staged)
            if target.exists():
                run_without_output(frame)
                return Written(None, repeated=True)
            with staging(staged) as directory:
                whole = self._staged(frame, directory)
                may_commit()
                if whole is not None:
                    os.rename(whole, target)
                    sync_to_disk(self.directory)
        except OSError as error:
            doing = f"The file {target} cannot be written"
            raise os_error(error, doing, self.vertex) from error
        finally:
            # Unless another run stages there now.
            with contextlib.suppress(OSError):
                staged.rmdir()
        return Written(None)

    def _remove(self, staged: Path) -> None:
        """Remove the staged files of earlier runs in one step, even if one of them still writes."""
        left = self.directory / STAGING / uuid.uuid4().hex
        with contextlib.suppress(FileNotFoundError):
            os.rename(staged, left)
        shutil.rmtree(left, ignore_errors=True)

    def _staged(self, frame: DataFrame, directory: Path) -> Path | None:
        """All rows in one file of ``directory``; None if there are none."""
        parts = write_parts(frame, directory, self.format, self.passed, vertex=self.vertex, where=_WHERE)
        parts = [part for part in parts if self._has_rows(part)]
        if not parts:
            return None
        head = _COMPRESS[self.compression](self._header(frame.columns)) if self.header else b""
        whole = parts[0]
        if len(parts) > 1 or head:
            whole = directory / "whole"
            if self.format == "parquet":
                _merge_parquet(frame.sparkSession, parts, whole)
            else:
                _merge_lines(parts, whole, head)
        sync_to_disk(whole)
        return whole

    def _has_rows(self, part: Path) -> bool:
        if self.format == "parquet":
            return parquet_rows(part) > 0
        if self.compression == "none":
            return part.stat().st_size > 0
        with gzip.open(part) if self.compression == "gzip" else bz2.open(part) as file:
            return bool(file.read(1))

    def _header(self, names: Sequence[str]) -> bytes:
        """The first line of a CSV file as Spark writes it: a name is quoted where it must be."""
        sep, quote, escape = (
            self.passed.get(*each) for each in (("sep", ","), ("quote", '"'), ("escape", "\\"))
        )

        def cell(name: str) -> str:
            special = (
                any(mark in name for mark in (sep, quote, "\n", "\r")) or name != name.strip() or not name
            )
            if not special and self.passed.get("quoteAll") != "true":
                return name
            return quote + name.replace(quote, escape + quote) + quote

        return (sep.join(cell(name) for name in names) + "\n").encode()


def _merge_parquet(session: SparkSession, parts: Sequence[Path], target: Path) -> None:
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


def _merge_lines(parts: Sequence[Path], target: Path, head: bytes) -> None:
    """Write ``head`` and the bytes of ``parts`` into ``target``."""
    with open(target, "wb") as output:
        output.write(head)
        for part in parts:
            with open(part, "rb") as source:
                shutil.copyfileobj(source, output, _COPY_BYTES)
