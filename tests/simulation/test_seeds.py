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
def test_500_seeds_and_those_that_failed_once_break_no_promise() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.simulation.run",
            "--seeds",
            str(SEEDS),
            "--jobs",
            str(min(4, os.cpu_count() or 1)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )
    assert done.returncode == 0, f"{done.stdout[-20000:]}\n{done.stderr[-5000:]}"
    assert " 0 failed" in done.stdout
