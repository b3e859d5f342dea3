"""What a streaming program has done, read from its files without Spark."""

from __future__ import annotations

import contextlib
import csv
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import psycopg
import pyarrow.parquet as pq

Rows = list[tuple[Any, ...]]


def is_at_end(checkpoint: Path, sources: list[Path]) -> bool:
    """Whether a query has committed every file of its ``sources`` and has nothing left to do.

    The last batch is committed, contains all files, and advanced no watermark that a batch without data would use.
    """
    offsets, commits = newest(checkpoint / "offsets"), newest(checkpoint / "commits")
    if not offsets or not commits or offsets.name != commits.name:
        return False
    _, metadata, *ends = offsets.read_text(encoding="utf-8").splitlines()
    committed = json.loads(commits.read_text(encoding="utf-8").splitlines()[1])
    if json.loads(metadata)["batchWatermarkMs"] != committed["nextBatchWatermarkMs"]:
        return False
    for number, (folder, end) in enumerate(zip(sources, ends, strict=True)):
        log = checkpoint / "sources" / str(number)
        latest = newest(log)
        if latest is None or json.loads(end)["logOffset"] != batch_of(latest):
            return False
        if {one["path"] for one in entries(log)} != {f"file://{file}" for file in folder.iterdir()}:
            return False
    return True


def batch_of(file: Path) -> int:
    return int(file.name.removesuffix(".compact"))


def newest(log: Path) -> Path | None:
    numbered = [one for one in log.glob("*") if one.name.removesuffix(".compact").isdigit()]
    return max(numbered, key=batch_of, default=None)


def entries(log: Path) -> Iterator[Any]:
    """What a metadata log of Spark's says: its last compaction, and what came after that."""
    files = [one for one in log.glob("*") if one.name.removesuffix(".compact").isdigit()]
    since = max((batch_of(one) for one in files if one.suffix == ".compact"), default=-1)
    for file in sorted(files, key=batch_of):
        if batch_of(file) >= since:
            for line in file.read_text(encoding="utf-8").splitlines()[1:]:
                yield json.loads(line)


def file_sink(folder: Path) -> Rows:
    """The rows of a folder that a streaming query writes, sorted: those that Spark would read there."""
    found: Rows = []
    for entry in entries(folder / "_spark_metadata"):
        file = Path(unquote(urlparse(entry["path"]).path))
        if file.name.endswith(".parquet"):
            rows = pq.read_table(file).to_pylist()
        elif file.name.endswith(".csv"):
            rows = list(csv.DictReader(file.read_text(encoding="utf-8").splitlines()))
        else:
            rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        found += [tuple(sorted((name, str(value)) for name, value in row.items())) for row in rows]
    return sorted(found)


def database(url: str) -> Rows:
    statement = "SELECT page, n, total FROM pages ORDER BY page"
    if url.startswith("postgresql:"):
        with psycopg.connect(url) as server:
            return server.execute(statement).fetchall()
    with contextlib.closing(sqlite3.connect(url)) as file:
        return file.execute(statement).fetchall()
