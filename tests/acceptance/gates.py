"""Vertices that change nothing and hold their region, while it is RUNNING and before it reads what comes later in the
graph, until the test gives them a ticket."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def first(frame: DataFrame) -> DataFrame:
    return _hold("first", frame)


def second(frame: DataFrame) -> DataFrame:
    return _hold("second", frame)


def _hold(name: str, frame: DataFrame) -> DataFrame:
    """Wait for a ticket, and take it: one ticket lets one run pass."""
    directory = Path(os.environ["ACCEPTANCE_KILLS"])
    held = directory / f"held-{name}"
    held.touch()
    while True:
        try:
            (directory / f"ticket-{name}").unlink()
            break
        except FileNotFoundError:
            time.sleep(0.02)
    held.unlink(missing_ok=True)
    return frame
