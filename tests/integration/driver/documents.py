"""Jobs for the tests of drivers: a finite source whose counts are known, state, and a keyed sink."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from tests.numbers import ending, unending

KEYS = 97


def counting(
    directory: Path,
    *,
    rows: int | None,
    rows_per_second: int = 4_000,
    state_partitions: int = 8,
    ours: bool = False,
) -> dict[str, Any]:
    """Counts numbers by key; ``rows`` None never ends. ``ours``: see `unending`."""
    source, config = unending(rows_per_second, ours=ours), {}
    if rows is not None:
        source, config = ending(directory, rows_per_second, rows)
    return {
        "name": "counting",
        "type": "STREAMING",
        "config": config,
        "vertices": [
            {"name": "numbers", "source": source, "parallelism": 8},
            {
                "name": "counts",
                "inputs": ["numbers"],
                "sql": f"SELECT value % {KEYS} AS k, count(*) AS n, sum(value) AS total FROM numbers "
                f"GROUP BY value % {KEYS}",
                "parallelism": state_partitions,
                "maxParallelism": state_partitions,
            },
            {
                "name": "store",
                "inputs": ["counts"],
                "parallelism": 8,
                "sink": {
                    "format": "sqlite",
                    "path": str(directory / "counts.db"),
                    "outputMode": "update",
                    "options": {"table": "counts", "mode": "upsert", "keys": "k"},
                },
            },
        ],
    }


def expected_counts(rows: int) -> dict[int, tuple[int, int]]:
    """What the sink should hold after ``rows`` rows: per key the count and the sum."""
    return {key: (len(range(key, rows, KEYS)), sum(range(key, rows, KEYS))) for key in range(min(KEYS, rows))}


def stored_counts(directory: Path) -> dict[int, tuple[int, int]]:
    connection = sqlite3.connect(directory / "counts.db")
    try:
        return {k: (n, total) for k, n, total in connection.execute("SELECT k, n, total FROM counts")}
    finally:
        connection.close()


def slow_files(directory: Path, artifacts: Path, sink: dict[str, Any], *, row_s: float) -> dict[str, Any]:
    """Files of JSON in ``in``, of which each row takes a task ``row_s``."""
    (artifacts / "slow.py").write_text(
        f"""
import time
from pyspark.sql import functions as F

def work(rows):
    return rows.select(F.udf(lambda v: (time.sleep({row_s}), v)[1], "long")("v").alias("v"))
""",
        encoding="utf-8",
    )
    source = {"format": "json", "path": str(directory / "in"), "schema": "v LONG"}
    return {
        "name": "heap",
        "type": "STREAMING",
        "artifacts": ["slow.py"],
        "vertices": [
            {"name": "files", "source": source},
            {"name": "work", "inputs": ["files"], "python": "slow:work"},
            {"name": "store", "inputs": ["work"], "sink": sink},
        ],
    }
