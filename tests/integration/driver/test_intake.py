"""A query that falls behind: its batches stay near the length that they should have."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.integration.driver.documents import slow_files
from tests.integration.driver.harness import Bench, wait_for
from tests.outputs import rows_of

pytestmark = [pytest.mark.timeout(300), pytest.mark.long]

ROWS = 50


def job(rig: Bench) -> dict[str, Any]:
    """Files of rows that take 4 ms each."""
    (rig.directory / "in").mkdir()
    sink = {"format": "parquet", "path": str(rig.directory / "out")}
    return slow_files(rig.directory, rig.artifacts_dir, sink, row_s=0.004)


def add_files(directory: Path, numbers: range) -> None:
    for number in numbers:
        whole = directory / f".{number}.json"
        values = range(number * ROWS, (number + 1) * ROWS)
        whole.write_text("".join(json.dumps({"v": value}) + "\n" for value in values), encoding="utf-8")
        whole.rename(directory / f"{number}.json")


def limit_of(batch: dict[str, Any]) -> int | None:
    (found,) = [one for one in batch["vertices"] if one["intake_unit"]] or [None]
    return None if found is None else int(found["intake_limit"])


def test_a_heap_is_worked_off_in_batches_near_the_target(rig: Bench) -> None:
    document = job(rig)
    add_files(rig.directory / "in", range(20))
    driver = rig.start(document, batch_target_ms=2_000)
    (first,) = wait_for("the first batch", lambda: rig.control_plane.batches)[:1]
    assert first["input_rows"] == 20 * ROWS and limit_of(first) is not None
    add_files(rig.directory / "in", range(20, 80))
    rig.wait_batches(3)
    driver.kill()
    seen = len(rig.control_plane.batches)
    for before, batch in pairwise(rig.control_plane.batches):
        limit = limit_of(before)
        assert limit is not None and batch["input_rows"] <= limit * ROWS
    # The next driver knows the limit, or its first batch but one would have all the rest.
    rig.start(document, batch_target_ms=2_000, attempt=2)

    def all_stored() -> bool:
        return len(rows_of(rig.directory / "out")) == 80 * ROWS

    wait_for("all rows", all_stored)
    batches = rig.control_plane.batches
    assert max(one["input_rows"] for one in batches[seen:]) < 20 * ROWS
    assert sorted(row["v"] for row in rows_of(rig.directory / "out")) == list(range(80 * ROWS))
