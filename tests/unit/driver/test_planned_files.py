"""The files of a batch that is to be run again."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from app.driver.failures import DriverError
from app.driver.sources.planned_files import check_planned_files, note_sizes


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
    with pytest.raises(DriverError, match=r"a\.csv is gone\. Put it back .* ignoreMissingFiles") as found:
        check_planned_files(checkpoint)
    assert found.value.recoverable, "a network file system may show it yet"
    os.utime(checkpoint / "offsets" / "0", (1, 1))
    with pytest.raises(DriverError, match=r"a\.csv is gone") as found:
        check_planned_files(checkpoint)
    assert (found.value.recoverable, found.value.by_files) == (False, True)
    check_planned_files(checkpoint, may_be_gone=lambda: True)


@pytest.mark.parametrize(
    ("before", "after", "runs"),
    [
        (b"1\n2\n", b"1\n2\n", True),
        (b"1\n2\n", b"1\n2\n3\n", True),
        (b"1\n2\n", b"1\n", False),
        (b"1\n2\n", b"", False),
        (b"PAR1xPAR1", b"PAR1xPAR1", True),
        (b"PAR1xPAR1", b"PAR1xPAR1x", False),
    ],
)
def test_a_file_that_has_lost_what_it_had_is_named_and_no_other(
    tmp_path: Path, before: bytes, after: bytes, runs: bool
) -> None:
    file = tmp_path / "a"
    file.write_bytes(before)
    checkpoint = planned(tmp_path / "checkpoint", file)
    note_sizes(checkpoint, 0, tmp_path)
    file.write_bytes(after)
    os.utime(file, (1, 1))
    # Nothing of it was executed, as far as is known.
    check_planned_files(checkpoint)
    if runs:
        check_planned_files(checkpoint, notes=tmp_path)
        return
    told = f"a was written again .* it had {len(before)} bytes, and has {len(after)}. Put it back"
    with pytest.raises(DriverError, match=told) as found:
        check_planned_files(checkpoint, notes=tmp_path, may_be_gone=lambda: True)
    assert (found.value.recoverable, found.value.by_files) == (False, True)


def test_sizes_of_another_batch_say_nothing(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("1")
    checkpoint = planned(tmp_path / "checkpoint", file)
    note_sizes(checkpoint, 0, tmp_path)
    (tmp_path / "slotwise-files").write_text((tmp_path / "slotwise-files").read_text().replace("0,", "7,", 1))
    file.write_text("")
    os.utime(file, (1, 1))
    check_planned_files(checkpoint, notes=tmp_path)
