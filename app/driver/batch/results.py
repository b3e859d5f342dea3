"""Blocking results: what a region leaves for others, as Parquet files that Spark reads without a second shuffle.

A HASH result is written by the tasks that produce it, one file per task and bucket: the write is the shuffle. A reader
of N tasks gets a *view* of it, hard links under names that say which task reads which bucket, declared to Spark as a
table of N buckets. With bucket modulo N that is what Spark would make of the rows itself, for every N that divides the
number of buckets.

A result is known by its manifest, which names every file with its length. It counts once the control plane has written
down the manifest's hash; a directory that it does not know is nobody's, whatever lies in it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow
import pyarrow.parquet as parquet

from app.driver.failures import DriverError, one_line
from app.durablefiles import write_whole
from app.model.batch import Output, Read, Result
from app.model.jobgraph import Partitioner

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MANIFEST = "_slotwise_manifest.json"
_WRITER = {
    "compression": "lz4_raw",
    # Version 2 has numbers as differences: smaller than a dictionary, and cheaper to make, as the dictionary of a
    # column of many values is given up halfway. Texts have one: often there are few.
    "parquet.writer.version": "v2",
    "parquet.enable.dictionary": "false",
    # Nobody looks at it: a file is as long as the manifest says, and is read whole before a result counts as damaged.
    "parquet.page.write-checksum.enabled": "false",
}
_TEXTS = ("string", "binary", "varchar", "char")
_BUCKET = re.compile(r"_(\d+)(?:\..*)?$")


class LostResult(Exception):
    """A result that should be there is not, or not whole. ``dataset`` names it; the message is a sentence."""

    def __init__(self, result: Result, why: str) -> None:
        super().__init__(f"The result {result.path} cannot be read: {why}")
        self.dataset = result.dataset


@dataclass(frozen=True, slots=True)
class _File:
    name: str
    bytes: int
    rows: int
    bucket: int


def write_result(frame: DataFrame, output: Output, path: Path, run: int, *, table: str) -> Result:
    """Write ``frame`` to ``path``, which nobody else uses. ``table`` is a name that is free in Spark's catalog.

    Raises:
        DriverError: ``frame`` lacks one of the keys.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        # What a run of the same number left when the server was killed before it took the report down.
        shutil.rmtree(path)
    options = _WRITER | {
        f"parquet.enable.dictionary#{name}": "true" for name, kind in frame.dtypes if kind.startswith(_TEXTS)
    }
    written = frame.coalesce(1) if output.partitioner is Partitioner.BROADCAST else frame
    writer = written.write.format("parquet").options(**options)
    if output.partitioner is Partitioner.HASH:
        missing = [key for key in output.keys if key.lower() not in {name.lower() for name in frame.columns}]
        if missing:
            raise DriverError(
                f"An edge is partitioned by {', '.join(missing)}, which its producer does not have: its columns are "
                f"{', '.join(frame.columns)}."
            )
        first, *others = output.keys
        writer.bucketBy(output.subpartitions, first, *others).option("path", str(path)).saveAsTable(table)
        frame.sparkSession.sql(f"DROP TABLE {table}")
    else:
        writer.save(str(path))
    return _described(frame, output, path, run)


def _described(frame: DataFrame, output: Output, path: Path, run: int) -> Result:
    hashed = output.partitioner is Partitioner.HASH
    files = [_described_file(file, hashed) for file in sorted(path.glob("part-*"))]
    manifest = {
        "schema": frame._jdf.schema().toDDL(),
        "keys": list(output.keys),
        "files": [[one.name, one.bytes, one.rows, one.bucket] for one in files],
    }
    content = json.dumps(manifest, separators=(",", ":")).encode()
    write_whole(path / MANIFEST, content)
    if hashed:
        bytes_of, rows_of = [0] * output.subpartitions, [0] * output.subpartitions
        for one in files:
            bytes_of[one.bucket] += one.bytes
            rows_of[one.bucket] += one.rows
    else:
        bytes_of, rows_of = [one.bytes for one in files], [one.rows for one in files]
    return Result(
        dataset=output.dataset,
        run=run,
        path=str(path),
        manifest_sha256=hashlib.sha256(content).hexdigest(),
        bytes_of=tuple(bytes_of),
        rows_of=tuple(rows_of),
    )


def _described_file(file: Path, hashed: bool) -> _File:
    match = _BUCKET.search(file.name) if hashed else None
    assert match is not None or not hashed, f"{file} has no bucket in its name"
    rows = parquet.read_metadata(file).num_rows
    return _File(file.name, file.stat().st_size, rows, int(match[1]) if match else 0)


def check_result(result: Result) -> dict[str, Any]:
    """The manifest of a result, all of whose files are there with their lengths.

    Raises:
        LostResult: it is not so.
    """
    path = Path(result.path)
    try:
        content = (path / MANIFEST).read_bytes()
    except OSError as error:
        raise LostResult(result, f"its manifest cannot be read: {error.strerror}.") from error
    if hashlib.sha256(content).hexdigest() != result.manifest_sha256:
        raise LostResult(result, "its manifest is not the one that was written.")
    manifest: dict[str, Any] = json.loads(content)
    sizes = {}
    try:
        with os.scandir(path) as entries:
            sizes = {entry.name: entry.stat().st_size for entry in entries}
    except OSError as error:
        raise LostResult(result, f"its files cannot be listed: {error.strerror}.") from error
    for name, size, *_ in manifest["files"]:
        if sizes.get(name) != size:
            found = "is missing" if name not in sizes else f"has {sizes[name]} bytes instead of {size}"
            raise LostResult(result, f"its file {name} {found}.")
    return manifest


def read_result(session: SparkSession, read: Read, tasks: int, view_dir: Path, *, table: str) -> DataFrame:
    """A finished result as input of ``tasks`` tasks. ``view_dir`` does not exist yet, or is a leftover.

    Raises:
        LostResult: it is not there any more.
    """
    manifest = check_result(read.result)
    if not read.groups:
        frame = session.read.schema(manifest["schema"]).parquet(read.result.path)
        return _whole(frame, read.result, manifest).coalesce(tasks)
    _make_view(Path(read.result.path), manifest["files"], read.groups, view_dir)
    keys = ", ".join(_quoted(key) for key in manifest["keys"])
    session.sql(f"DROP TABLE IF EXISTS {table}")
    session.sql(
        f"CREATE TABLE {table} ({manifest['schema']}) USING parquet CLUSTERED BY ({keys}) "
        f"INTO {len(read.groups)} BUCKETS LOCATION '{_literal(f'file://{view_dir}')}'"
    )
    return _whole(session.table(table), read.result, manifest)


def _whole(frame: DataFrame, result: Result, manifest: dict[str, Any]) -> DataFrame:
    """``frame``, which reads as many files as the result has: a path that Spark takes for another would be empty."""
    found, expected = len(frame.inputFiles()), len(manifest["files"])
    if found != expected:
        raise DriverError(f"Spark sees {found} of the {expected} files of the result {result.path}.")
    return frame


def check_contents(result: Result) -> None:
    """`check_result`, and that every file can be read from its beginning to its end.

    Raises:
        LostResult: it is not so.
    """
    manifest = check_result(result)
    for name, *_ in manifest["files"]:
        try:
            for _batch in parquet.ParquetFile(Path(result.path, name)).iter_batches():
                pass
        except (OSError, pyarrow.ArrowException) as error:
            raise LostResult(result, f"its file {name} is damaged: {one_line(str(error), 200)}.") from error


def is_modulo(groups: Sequence[Sequence[int]]) -> bool:
    """Whether task k reads the buckets that are k modulo the number of tasks, as Spark's own partitioning has it."""
    count = len(groups)
    return all(bucket % count == task for task, group in enumerate(groups) for bucket in group)


def _make_view(
    source: Path, files: Sequence[Sequence[Any]], groups: Sequence[Sequence[int]], view_dir: Path
) -> None:
    task_of = {bucket: task for task, group in enumerate(groups) for bucket in group}
    if view_dir.exists():
        shutil.rmtree(view_dir)
    view_dir.mkdir(parents=True)
    for number, (name, _bytes, _rows, bucket) in enumerate(files):
        task = task_of[bucket]
        os.link(source / name, view_dir / f"part-{number:05d}-{bucket:05d}-slotwise_{task:05d}.c000.parquet")


def sweep(results_dir: Path, kept: set[str]) -> None:
    """Remove every result below ``results_dir`` whose path is not ``kept``."""
    for dataset in sorted(results_dir.glob("*")):
        for path in sorted(dataset.glob("*")):
            if str(path) not in kept:
                shutil.rmtree(path, ignore_errors=True)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _literal(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
