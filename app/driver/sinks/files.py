"""Files of BATCH jobs: what a sink gets becomes exactly one file of the directory, complete or absent.

The tasks write into a hidden staging directory below the path; their files are made into one, and that one gets its
name, which says job and sink, in a single step of the file system that fails when the name is taken. So whoever
lists the directory, with Spark or without, sees the rows of a job once and never a part of them.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from app.driver.sinks.base import BatchRef, MayCommit, Options, Written, os_error, run_without_output
from app.driver.sinks.merging import COMPRESS, csv_header, merge_lines, merge_parquet
from app.driver.sinks.parts import parquet_rows, write_parquet, write_text
from app.driver.sinks.staging import StagingArea
from app.durablefiles import sync_to_disk
from app.model.jobgraph import JobVertex, SinkSpec
from app.model.sink_options import PARQUET_CODECS, TEXT_CODECS, file_option_faults

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STAGING = ".staging"

_WHERE = "it is that of the sink's path"

_SUFFIX = {"none": "", "gzip": ".gz", "bzip2": ".bz2"}


@dataclass(frozen=True)
class FileSink:
    """A directory of files, one per job. ``passed`` are the options that Spark's writer gets."""

    vertex: str
    format: str
    directory: Path
    staging: StagingArea
    compression: str
    header: bool
    passed: dict[str, str]

    def prepare(self) -> None:
        try:
            self.staging.open()
            if not os.access(self.directory, os.W_OK | os.X_OK):
                raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        except OSError as error:
            raise os_error(error, f"The directory {self.directory} cannot be written", self.vertex) from error

    def close(self) -> None:
        self.staging.close()

    def check(self, frame: DataFrame) -> None:
        """Nothing: Spark looks at the columns."""

    def write(self, frame: DataFrame, batch: BatchRef, may_commit: MayCommit) -> Written:
        name = f"part-{query_mark(batch.query_id)}-{batch.batch_id:010d}"
        target = self.directory / (name + self.suffix)
        if target.exists():
            run_without_output(frame)
            return Written(self._rows_of(target), repeated=True)
        try:
            with self.staging.batch(name) as directory:
                return self._write(frame, directory, target, may_commit)
        except OSError as error:
            doing = f"Batch {batch.batch_id} cannot be written to {self.directory}"
            raise os_error(error, doing, self.vertex) from error

    def _write(self, frame: DataFrame, directory: Path, target: Path, may_commit: MayCommit) -> Written:
        if self.format == "parquet":
            counts = write_parquet(frame, directory, self.passed, vertex=self.vertex, where=_WHERE)
            rows: int | None = sum(counts.values())
            kept = [part for part, count in counts.items() if count]
        else:
            kept, rows = write_text(
                frame, directory, self.format, self.passed, vertex=self.vertex, where=_WHERE
            )
        if not kept:
            may_commit()
            return Written(0)
        whole = self._merge(frame, kept, directory / ("whole" + self.suffix))
        sync_to_disk(whole)
        may_commit()
        appeared = _name(whole, target)
        sync_to_disk(self.directory)
        return Written(rows if appeared else self._rows_of(target), repeated=not appeared)

    @property
    def suffix(self) -> str:
        return f".{self.format}" + ("" if self.format == "parquet" else _SUFFIX[self.compression])

    def _merge(self, frame: DataFrame, parts: list[Path], whole: Path) -> Path:
        head = b""
        if self.header:
            line = csv_header(
                frame.columns,
                sep=self.passed.get("sep", ","),
                quote=self.passed.get("quote", '"'),
                escape=self.passed.get("escape", "\\"),
                quote_all=self.passed.get("quoteAll") == "true",
            )
            head = COMPRESS[self.compression](line)
        if len(parts) == 1 and not head:
            return parts[0]
        if self.format == "parquet":
            merge_parquet(frame.sparkSession, parts, whole)
        else:
            merge_lines(parts, whole, head)
        return whole

    def _rows_of(self, target: Path) -> int | None:
        return parquet_rows(target) if self.format == "parquet" else None


def open_files(vertex: JobVertex, spec: SinkSpec) -> FileSink:
    """The file sink of ``vertex``.

    Raises:
        DriverError: its path or an option is not possible.
    """
    options = Options(vertex.name, spec.format, dict(spec.options))
    for name, sentence in file_option_faults(spec.format, options.values):
        raise options.error(f"has the option {name}, which {sentence}")
    directory = _local_directory(options, spec.path)
    codecs = PARQUET_CODECS if spec.format == "parquet" else TEXT_CODECS
    compression = options.values.get("compression", codecs[0])
    passed = {name: value for name, value in options.values.items() if name != "header"}
    passed["compression"] = compression
    if spec.format == "csv":
        passed["header"] = "false"
    return FileSink(
        vertex.name,
        spec.format,
        directory,
        StagingArea(directory / STAGING),
        compression,
        options.values.get("header") == "true",
        passed,
    )


def query_mark(query_id: str) -> str:
    """``query_id`` as a part of file names: its hex digits if it is a UUID, else a digest."""
    plain = query_id.replace("-", "").lower()
    return (
        plain if re.fullmatch("[0-9a-f]{32}", plain) else hashlib.sha256(query_id.encode()).hexdigest()[:32]
    )


def _local_directory(options: Options, path: str | None) -> Path:
    if not path:
        raise options.error("needs a path.")
    local = re.sub("^file:(//)?(?=/)", "", path)
    if not local.startswith("/"):
        raise options.error(f"has the path {path}, which must be absolute and on a mounted file system.")
    return Path(local)


def _name(whole: Path, target: Path) -> bool:
    """Give the file ``whole`` the name ``target`` in one step. False: the name is taken, by the same batch."""
    try:
        # Not a rename, which would replace what a writer that was thought dead put there meanwhile.
        os.link(whole, target)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
            raise
        # A file system without hard links.
        if target.exists():
            return False
        os.rename(whole, target)
    return True
