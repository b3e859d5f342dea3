"""The command that keeps an executor's core, as an executor runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from app.driver.executor_warmup import _HOLD


def held(file: Path, number: int, parent: int) -> subprocess.Popen[bytes]:
    command = ["sh", "-c", _HOLD, str(file), str(number)]
    program = f"import subprocess; subprocess.call({command!r})"
    return subprocess.Popen([sys.executable, "-c", program, "--executor-id", str(parent), "--cores", "1"])


def test_it_lasts_until_the_file_is_removed(tmp_path: Path) -> None:
    file = tmp_path / "held"
    file.touch()
    process = held(file, 12, 12)
    try:
        # It ends by itself at once if it is going to.
        other = held(file, 12, 1)
        assert other.wait(20) == 0, "it holds an executor that it is not meant for"
        assert process.poll() is None
        file.unlink()
        assert process.wait(20) == 0
    finally:
        process.kill()


def test_a_number_that_begins_alike_is_another_one(tmp_path: Path) -> None:
    file = tmp_path / "held"
    file.touch()
    assert held(file, 1, 12).wait(20) == 0


def test_where_the_file_cannot_be_seen_nothing_is_held(tmp_path: Path) -> None:
    assert held(tmp_path / "nowhere", 3, 3).wait(20) == 0
