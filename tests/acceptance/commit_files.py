"""The pauses of a query by the files of its checkpoint, against which the records of the history are held."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from tests.acceptance.deployment import Deployment, wait_for

TOLERANCE_MS = 1_500
"""A driver hears of a commit later than the file says, and what is usual differs by what one counts."""


_STEADY = 8


def commits_of(deployment: Deployment) -> list[int]:
    (found,) = (deployment.data_dir / "jobs" / deployment.job_id / "checkpoint").glob("*/commits")
    return commits(found.parent)


def await_steady(deployment: Deployment) -> None:
    """Wait until it is known from the files what is usual."""
    wanted = len(commits_of(deployment)) + _STEADY + 1
    wait_for("so many batches", lambda: len(commits_of(deployment)) >= wanted)


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
    usual = [pause for at_ms, pause in pauses if at_ms <= start_ms][-_STEADY:]
    return max(0, longest - median(usual or [0]))


def check_gap(deployment: Deployment, record: dict[str, Any]) -> None:
    """The output gap in ``record`` is that of the files."""
    found, true = record["outputGapInMillis"], gap_of(record, commits_of(deployment))
    print(f"OUTCOME {record['rung']}: gap {found} ms, by the files {true:.0f} ms")
    assert found is not None and abs(found - true) <= TOLERANCE_MS, (found, true, record)
