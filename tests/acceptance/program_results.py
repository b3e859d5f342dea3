"""What a streaming program has done, read from its files without Spark."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg

from tests.outputs import batch_of, entries, files_of, newest, rows_of

Rows = list[tuple[Any, ...]]


def is_at_end(checkpoint: Path, sources: list[Path]) -> bool:
    """Whether a query has committed every file of its ``sources``, folders of files or outputs of queries, and has
    nothing left to do.

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
        if {one["path"] for one in entries(log)} != {f"file://{file}" for file in files_of(folder)}:
            return False
    return True


def file_sink(folder: Path) -> Rows:
    """The rows of a folder that a streaming query writes, sorted."""
    rows = rows_of(folder)
    return sorted(tuple(sorted((name, str(value)) for name, value in row.items())) for row in rows)


def database(url: str) -> Rows:
    statement = "SELECT page, n, total FROM pages ORDER BY page"
    if url.startswith("postgresql:"):
        with psycopg.connect(url) as server:
            return server.execute(statement).fetchall()
    with contextlib.closing(sqlite3.connect(url)) as file:
        return file.execute(statement).fetchall()


def windows(folder: Path) -> Rows:
    """The rows that windowed_counts.py writes, as `expected_windows` has them."""

    def window(row: dict[str, str]) -> tuple[Any, ...]:
        start = datetime.fromisoformat(row["start"])
        start = start if start.tzinfo is not None else start.replace(tzinfo=UTC)
        return (int(start.timestamp()), row["page"], int(row["n"]), int(row["total"]), int(row["newest"]))

    return sorted(window(dict(row)) for row in file_sink(folder))


def expected_windows(events: Path) -> Rows:
    """Start, page, number, sum and newest of each window but the last, which nothing ends."""
    found: dict[tuple[int, str], list[tuple[int, int]]] = defaultdict(list)
    for file in events.iterdir():
        for line in file.read_text(encoding="utf-8").splitlines():
            one = json.loads(line)
            start = int(datetime.fromisoformat(one["at"]).timestamp()) // 30 * 30
            found[start, one["page"]].append((one["amount"], one["id"]))
    last = max(start for start, _ in found)
    return sorted(
        (start, page, len(rows), sum(amount for amount, _ in rows), max(identity for _, identity in rows))
        for (start, page), rows in found.items()
        if start != last
    )
