"""The files of a batch that is to be run again."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from app.driver.failures import DriverError
from app.driver.sources.planned_files import check_planned_files


def planned(checkpoint: Path, file: Path) -> Path:
    """A checkpoint whose first batch was planned with ``file`` and not committed."""
    for name in ("offsets", "commits", "sources/0"):
        (checkpoint / name).mkdir(parents=True)
    (checkpoint / "offsets" / "0").write_text('v1\n{}\n{"logOffset":0}')
    entry = {"path": file.as_uri(), "timestamp": file.stat().st_mtime_ns // 1_000_000, "batchId": 0}
    (checkpoint / "sources" / "0" / "0").write_text(f"v1\n{json.dumps(entry)}")
    return checkpoint


def test_a_file_that_is_gone_is_named_unless_it_may_be(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("1")
    checkpoint = planned(tmp_path / "checkpoint", file)
    check_planned_files(checkpoint)
    file.unlink()
    with pytest.raises(DriverError, match=r"a\.csv is gone\. Put it back .* ignoreMissingFiles"):
        check_planned_files(checkpoint)
    check_planned_files(checkpoint, may_be_gone=lambda: True)


def test_a_file_that_was_written_again_is_named_in_any_case(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("1")
    checkpoint = planned(tmp_path / "checkpoint", file)
    file.unlink()
    file.write_text("1")
    os.utime(file, (1, 1))
    with pytest.raises(DriverError, match="was written again"):
        check_planned_files(checkpoint, may_be_gone=lambda: True)
