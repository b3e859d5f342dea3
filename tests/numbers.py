"""What documents of tests read: the numbers from 0, by a source that the present PySpark has."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyspark

from app.model.environment import is_before

HAS_RATE = not is_before(pyspark.__version__, "4.2")
"""Whether there is the source `rate` of ours. Where it is not, Spark's own sources stand for it."""
FILES = 6


def unending(per_second: int, *, parts: int = 8, ours: bool = False) -> dict[str, Any]:
    """A source of numbers in the column `value`. ``ours``: by `rate`, whose Python processes take a quarter of the CPU
    time of a driver's start; else a batch has those of a second, split into ``parts`` at most where its plan does not
    say that."""
    if ours and HAS_RATE:
        return {"format": "rate", "options": {"rowsPerSecond": str(per_second)}}
    return {
        "format": "rate-micro-batch",
        "options": {"rowsPerBatch": str(per_second), "numPartitions": str(parts)},
    }


def ending(directory: Path, per_second: int, rows: int) -> tuple[dict[str, Any], dict[str, str]]:
    """A source of so many numbers, and what the config of its job has to say so that it ends with them. Where only
    files have an end, they are in ``directory``, one for each batch."""
    if HAS_RATE:
        return {"format": "rate", "options": {"rowsPerSecond": str(per_second), "rowCount": str(rows)}}, {}
    folder = directory / "numbers"
    folder.mkdir(exist_ok=True)
    for part in range(FILES):
        values = range(rows * part // FILES, rows * (part + 1) // FILES)
        file = folder / f"{part}.csv"
        file.write_text("".join(f"{value}\n" for value in values), encoding="utf-8")
        os.utime(file, (1_000_000 + part,) * 2)  # the oldest is read first
    options = {"maxFilesPerTrigger": "1"}
    source = {"format": "csv", "path": str(folder), "schema": "value BIGINT", "options": options}
    return source, {"slotwise.batch.trigger": "available-now"}


def row_number(offset: Any) -> int:
    """How many numbers come before an offset of a source that does not end."""
    if "offset" in offset:
        return int(offset["offset"])
    ((_start, rows),) = offset.items()
    return int(rows["0"])
