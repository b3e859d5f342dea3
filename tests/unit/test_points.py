"""The points of the acceptance tests are put around functions that are there: found out here, in a second, and not by
drivers that die as soon as they start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# In a process of their own: they replace functions for good.
DRIVER = "from tests.acceptance import driver_points as points; points.install()"
SERVER = """
from tests.acceptance import server_launcher as points
points.around_transactions()
points.around_requests()
points.around_the_driver_protocol()
points.around_starts()
points.start_drivers_with_points()
"""


@pytest.mark.parametrize("program", [DRIVER, SERVER], ids=["driver", "server"])
def test_the_points_are_around_functions_that_are_there(program: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
