"""Blocking results: what a region leaves for others, as Parquet files that Spark reads without a second shuffle.

A HASH result is written by the tasks that produce it, one file per task and bucket: the write is the shuffle. A reader
of as many tasks as buckets is told of a table of these files. One of fewer tasks, N, gets a *view*, hard links under
names that say which task reads which bucket, as a table of N buckets. With bucket modulo N that is what Spark would
make of the rows itself, for every N that divides the number of buckets. Where there are no hard links, Spark brings
the rows together by another shuffle.

A result is known by its manifest, which names every file with its length. It counts once the control plane has written
down the manifest's hash; a directory that it does not know is nobody's, whatever lies in it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from app.driver.arrivals import RowCounter, is_on_this_host, not_there, once_whole
from app.driver.batch.storage import LITERAL_PATH, READ_OPTIONS, DataFile, Storage, Storages
from app.driver.failures import DriverError
from app.model.batch import Output, Read, RegionOrder, Result
from app.model.jobgraph import Partitioner
from app.model.resultsurl import below, is_local

log = logging.getLogger(__name__)

MANIFEST = "_slotwise_manifest.json"
_WRITER = {
    "compression": "lz4_raw",
    # Version 2 has numbers as differences: smaller than a dictionary, and cheaper to make, as the dictionary of a
    # column of many values is given up halfway. Texts have one: often there are few.
    "parquet.writer.version": "v2",
    "parquet.enable.dictionary": "false",
    # The reader finds a flipped bit in the values by their checksums (ADR 13).
    "parquet.page.write-checksum.enabled": "true",
}
_WHERE = "the server's settings jobs_dir and results_url say where it is"
_VIEWS = ".views"
_TEXTS = ("string", "binary", "varchar", "char")
_BUCKET = re.compile(r"_(\d+)(?:\..*)?$")


class LostResult(Exception):
    """A result that should be there is not, or not whole. ``dataset`` names it; the message is a sentence."""

    def __init__(self, result: Result, why: str) -> None:
        super().__init__(f"The result {result.path} cannot be read: {why}")
        self.dataset = result.dataset


def write_result(
    storage: Storage, frame: DataFrame, output: Output, place: str, run: int, *, table: str
) -> Result:
    """Write ``frame`` to ``place``, which only this run uses. ``table`` is a free name in Spark's catalog.

    Raises:
        DriverError: ``frame`` lacks one of the keys, the file system cannot be asked, or tasks on a cluster wrote rows
            that are not there.
    """
    # Left by a run of this number that has reported nothing.
    storage.remove(place)
    options = _WRITER | {
        f"parquet.enable.dictionary#{name}": "true" for name, kind in frame.dtypes if kind.startswith(_TEXTS)
    }
    written = frame.coalesce(1) if output.partitioner is Partitioner.BROADCAST else frame
    counter = None if is_on_this_host(frame.sparkSession) else RowCounter(written)
    if counter is not None:
        written = counter.frame
    writer = written.write.format("parquet").options(**options, **LITERAL_PATH, **storage.write_options)
    if output.partitioner is Partitioner.HASH:
        missing = [key for key in output.keys if key.lower() not in {name.lower() for name in frame.columns}]
        if missing:
            raise DriverError(
                f"An edge is partitioned by {', '.join(missing)}, which its producer does not have: its columns are "
                f"{', '.join(frame.columns)}."
            )
        first, *others = output.keys
        buckets = writer.bucketBy(output.subpartitions, first, *others)
        buckets.option("path", storage.uri(place)).saveAsTable(table)
        forget_table(frame.sparkSession, table)
    else:
        writer.save(storage.uri(place))
    files = storage.data_files(place) if counter is None else _all_files(storage, place, counter)
    return _described(storage, frame, output, place, run, files)


def _all_files(storage: Storage, place: str, counter: RowCounter) -> list[DataFile]:
    """What tasks of a cluster have written.

    Raises:
        DriverError: not all of it is there.
    """
    written = counter.counted().rows
    files = once_whole(
        lambda: storage.data_files(place), lambda found: sum(one.rows for one in found) >= written
    )
    seen = sum(one.rows for one in files)
    if seen < written:
        raise not_there(written, f"{seen} of them are there", place, _WHERE)
    return files


def forget_table(session: SparkSession, table: str) -> None:
    """Remove a table from Spark's catalog, if it is there. Its files stay.

    By the catalog itself: SQL would look for the files, and would take what was cached of the same files from whatever
    else of this job runs.
    """
    session._jsparkSession.sharedState().externalCatalog().dropTable("default", table, True, False)


def _described(
    storage: Storage, frame: DataFrame, output: Output, place: str, run: int, files: Sequence[DataFile]
) -> Result:
    hashed = output.partitioner is Partitioner.HASH
    buckets = [_bucket(one.name) if hashed else 0 for one in files]
    manifest = {
        "schema": frame._jdf.schema().toDDL(),
        "keys": list(output.keys),
        "files": [
            [one.name, one.bytes, one.rows, bucket] for one, bucket in zip(files, buckets, strict=True)
        ],
    }
    content = json.dumps(manifest, separators=(",", ":")).encode()
    storage.write(place, MANIFEST, content)
    if hashed:
        bytes_of, rows_of = [0] * output.subpartitions, [0] * output.subpartitions
        for one, bucket in zip(files, buckets, strict=True):
            bytes_of[bucket] += one.bytes
            rows_of[bucket] += one.rows
    else:
        bytes_of, rows_of = [one.bytes for one in files], [one.rows for one in files]
    return Result(
        dataset=output.dataset,
        run=run,
        path=place,
        manifest_sha256=hashlib.sha256(content).hexdigest(),
        bytes_of=tuple(bytes_of),
        rows_of=tuple(rows_of),
    )


def _bucket(name: str) -> int:
    match = _BUCKET.search(name)
    assert match is not None, f"{name} has no bucket in its name"
    return int(match[1])


def check_result(storage: Storage, result: Result) -> dict[str, Any]:
    """The manifest of a result, all of whose files are there with their lengths.

    Raises:
        LostResult: it is not so.
        DriverError: the file system cannot be asked.
    """
    try:
        content = storage.read(result.path, MANIFEST)
    except OSError as error:
        raise LostResult(result, f"its manifest cannot be read: {error.strerror}.") from error
    if hashlib.sha256(content).hexdigest() != result.manifest_sha256:
        raise LostResult(result, "its manifest is not the one that was written.")
    manifest: dict[str, Any] = json.loads(content)
    try:
        sizes = storage.lengths(result.path)
    except OSError as error:
        raise LostResult(result, f"its files cannot be listed: {error.strerror}.") from error
    for name, size, *_ in manifest["files"]:
        if sizes.get(name) != size:
            found = "is missing" if name not in sizes else f"has {sizes[name]} bytes instead of {size}"
            raise LostResult(result, f"its file {name} {found}.")
    return manifest


def check_contents(storage: Storage, result: Result) -> None:
    """`check_result`, and that every file can be read from its beginning to its end.

    Raises:
        LostResult: it is not so.
        DriverError: the file system cannot be asked.
    """
    manifest = check_result(storage, result)
    names = [name for name, *_ in manifest["files"]]
    damaged = storage.damaged(result.path, names, manifest["schema"])
    if damaged is not None:
        raise LostResult(result, f"its file {damaged[0]} is damaged: {damaged[1]}.")


def readable(order: RegionOrder, root: str) -> RegionOrder:
    """``order`` without the groups that no view below ``root`` can show: there Spark divides the rows as it likes."""

    def has_links(place: str) -> bool:
        return is_local(root) and place.startswith(below(root, ""))

    return replace(
        order,
        reads=tuple(
            read if has_links(read.result.path) or _is_identity(read) else replace(read, groups=())
            for read in order.reads
        ),
    )


def read_result(
    storage: Storage, session: SparkSession, read: Read, tasks: int, view_dir: str, *, table: str
) -> DataFrame:
    """A finished result as input of ``tasks`` tasks. ``view_dir`` does not exist yet, or is a leftover. ``table`` is a
    name that is free in Spark's catalog, for as long as the frame is used.

    Raises:
        LostResult: it is not there any more.
        DriverError: the file system cannot be asked.
    """
    manifest = check_result(storage, read.result)
    if not read.groups:
        frame = session.read.options(**READ_OPTIONS).schema(manifest["schema"])
        return _whole(frame.parquet(storage.uri(read.result.path)), read.result, manifest).coalesce(tasks)
    place = read.result.path
    if not _is_identity(read):
        _make_view(Path(place), manifest["files"], read.groups, Path(view_dir))
        place = view_dir
    keys = ", ".join(f"`{key.replace('`', '``')}`" for key in manifest["keys"])
    options = ", ".join(f"'{name}' '{value}'" for name, value in READ_OPTIONS.items())
    session.sql(
        f"CREATE TABLE {table} ({manifest['schema']}) USING parquet OPTIONS ({options}) CLUSTERED BY ({keys}) "
        f"INTO {len(read.groups)} BUCKETS LOCATION '{_literal(storage.uri(place))}'"
    )
    return _whole(session.table(table), read.result, manifest)


def _whole(frame: DataFrame, result: Result, manifest: dict[str, Any]) -> DataFrame:
    """``frame``, which reads as many files as the result has: a path that Spark takes for another would be empty."""
    found, expected = len(frame.inputFiles()), len(manifest["files"])
    if found != expected:
        raise DriverError(f"Spark sees {found} of the {expected} files of the result {result.path}.")
    return frame


def _is_identity(read: Read) -> bool:
    """Whether task k reads bucket k and no other: the names of the files say so themselves."""
    buckets = len(read.result.bytes_of)
    return len(read.groups) == buckets and all(group == (task,) for task, group in enumerate(read.groups))


def are_alike(reads: Sequence[Read]) -> bool:
    """Whether each task reads the same keys of every input that is divided.

    An input may have several times as many buckets as another: bucket b of the one has keys of b modulo the other's.
    """
    divided = [read for read in reads if read.groups]
    common = min((len(read.result.bytes_of) for read in divided), default=1)
    if any(len(read.result.bytes_of) % common for read in divided):
        return False
    return (
        len({tuple(frozenset(b % common for b in group) for group in read.groups) for read in divided}) <= 1
    )


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


def views_dir(root: str, region: int, run: int) -> str:
    """Where a run of a region has its views: beside the results, as links do not lead to another file system."""
    return below(root, _VIEWS, f"{region}-{run}")


def sweep(storage: Storage, root: str, kept: set[str]) -> None:
    """Remove every result and view below ``root`` whose place is not ``kept``.

    Raises:
        OSError, DriverError: something is left.
    """
    left: OSError | None = None
    for directory in storage.names(root):
        for name in storage.names(below(root, directory)):
            place = below(root, directory, name)
            if place not in kept:
                try:
                    storage.remove(place)
                except OSError as error:
                    left = error
    if left is not None:
        raise left


def _literal(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")


class Keeper:
    """Removes results of one job, which all lie below ``root``."""

    def __init__(self, storages: Storages, root: str) -> None:
        self._storage = storages.of(root)
        self._root = root
        self._swept: set[str] | None = None

    def keep(self, kept: set[str]) -> None:
        """Remove all other places. What was kept last time is not looked at again: each look may ask another host."""
        if kept == self._swept:
            return
        try:
            sweep(self._storage, self._root, kept)
            self._swept = kept
        except (OSError, DriverError) as error:
            log.warning("results that are not needed could not be removed: %s", error)

    def remove_all(self) -> None:
        """Remove all results of the job."""
        try:
            self._storage.remove(self._root)
        except (OSError, DriverError) as error:
            log.warning("the results of the job could not be removed: %s", error)

    @property
    def is_driver_alone(self) -> bool:
        """Whether only a driver can remove them: the control plane has no client of such file systems."""
        return not is_local(self._root)

    def remove_ended(self, roots: Iterable[str]) -> None:
        """Remove, in the background, the results at ``roots``: those of other jobs, whose drivers have ended."""
        places = set(roots)
        if places:
            threading.Thread(target=self._remove_ended, args=(places,), name="leftovers", daemon=True).start()

    def _remove_ended(self, places: set[str]) -> None:
        directories = {place.rpartition("/")[0] for place in places}
        try:
            for directory in directories:
                # With a slash at its end, so that it is a place also where it is the root of a file system.
                for name in self._storage.names(directory + "/"):
                    if (place := below(directory, name)) in places:
                        self._storage.remove(place)
        except (OSError, DriverError) as error:
            log.warning("the results of jobs that have ended could not be removed: %s", error)
