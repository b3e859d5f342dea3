"""The pauses of a query by the files of its checkpoint, against which the records of the history are held."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from tests.acceptance.deployment import Deployment

TOLERANCE_MS = 1_500
"""A driver hears of a commit later than the file says, and what is usual differs by what one counts."""


def commits(checkpoint: Path) -> list[int]:
    """When each batch with input was committed: its offsets are others than those of the batch before."""
    times = {
        int(file.name): file.stat().st_mtime * 1000
        for file in (checkpoint / "commits").iterdir()
        if file.name.isdigit()
    }
    read = {
        int(file.name): file.read_text(encoding="utf-8").splitlines()[2:]
        for file in (checkpoint / "offsets").iterdir()
        if file.name.isdigit()
    }
    return [int(times[batch]) for batch in sorted(times) if read.get(batch) != read.get(batch - 1)]


def gap_of(record: dict[str, Any], times: list[int]) -> float:
    """The longest pause that ends within ``record``, less what is usual."""
    start_ms, end_ms = record["startTimestampInMillis"], record["endTimestampInMillis"]
    pauses = [(after, after - before) for before, after in pairwise(times)]
    longest = max(pause for at_ms, pause in pauses if start_ms < at_ms <= end_ms + TOLERANCE_MS)
    # Most of the last intervals are usual ones.
    usual = [pause for at_ms, pause in pauses if at_ms <= start_ms][-15:]
    return max(0, longest - median(usual or [0]))


def check_gap(deployment: Deployment, record: dict[str, Any]) -> None:
    """The output gap in ``record`` is that of the files."""
    (checkpoint,) = (deployment.data_dir / "jobs" / deployment.job_id / "checkpoint").glob("*/commits")
    found, true = record["outputGapInMillis"], gap_of(record, commits(checkpoint.parent))
    print(f"OUTCOME {record['rung']}: gap {found} ms, by the files {true:.0f} ms")
    assert found is not None and abs(found - true) <= TOLERANCE_MS, (found, true, record)
