"""The promises hold in every world that the seeds make; see docs/simulation.md."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.planted_seeds import SEEDS

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(3000)
@pytest.mark.parametrize(
    ("first", "count", "more"),
    [
        pytest.param(0, 100, [], id="100, and those that failed once"),
        pytest.param(100, SEEDS - 100, ["--forget"], id="500 more", marks=pytest.mark.long),
    ],
)
def test_in_the_worlds_of_seeds_no_promise_is_broken(first: int, count: int, more: list[str]) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.simulation.run",
            "--start",
            str(first),
            "--seeds",
            str(count),
            "--jobs",
            str(min(4, os.cpu_count() or 1)),
            *more,
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )
    assert done.returncode == 0, f"{done.stdout[-20000:]}\n{done.stderr[-5000:]}"
    assert " 0 failed" in done.stdout
