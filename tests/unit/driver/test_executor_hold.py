"""The command that keeps an executor's core, as an executor runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from app.driver.executor_sight import _LOOK
from app.driver.executor_warmup import _HOLD


def run_by(executor: int, script: str, *arguments: object) -> subprocess.Popen[str]:
    command = ["sh", "-c", script, *map(str, arguments)]
    program = f"import subprocess; subprocess.call({command!r})"
    return subprocess.Popen(
        [sys.executable, "-c", program, "--executor-id", str(executor), "--cores", "1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def held(file: Path, number: int, executor: int, mark: Path | None = None) -> subprocess.Popen[str]:
    if mark is None:
        mark = file.with_name("mark")
        mark.touch()
    return run_by(executor, _HOLD, file, number, mark, sys.executable)


def said_by(process: subprocess.Popen[str], line: str = "") -> str:
    """What it says when it has ended; ``line`` is what it reads."""
    try:
        return process.communicate(line, timeout=20)[0]
    finally:
        process.kill()


def test_it_lasts_until_the_file_is_removed(tmp_path: Path) -> None:
    file = tmp_path / "held"
    file.touch()
    process = held(file, 12, 12)
    # It ends by itself at once if it is going to.
    assert said_by(held(file, 12, 1)) == "elsewhere\n", "it holds an executor that it is not meant for"
    assert process.poll() is None
    file.unlink()
    assert said_by(process) == ""


def test_a_number_that_begins_alike_is_another_one(tmp_path: Path) -> None:
    file = tmp_path / "held"
    file.touch()
    assert said_by(held(file, 1, 12)) == "elsewhere\n"


def test_where_the_file_cannot_be_seen_nothing_is_held(tmp_path: Path) -> None:
    assert said_by(held(tmp_path / "nowhere", 3, 3)) == ""


def test_who_does_not_see_the_mark_is_held_until_it_does(tmp_path: Path) -> None:
    mark = tmp_path / "no mark"
    assert said_by(held(tmp_path / "nowhere", 3, 4, mark)) == "elsewhere\n"
    process = held(tmp_path / "nowhere", 3, 3, mark)
    assert said_by(held(tmp_path / "nowhere", 3, 3)) == "", "it would have ended by now"
    assert process.poll() is None
    mark.touch()
    assert said_by(process) == ""


def test_who_is_asked_says_whether_it_sees_the_mark_and_the_python(tmp_path: Path) -> None:
    mark, python = tmp_path / "mark", tmp_path / "python"
    python.touch()
    assert said_by(run_by(12, _LOOK, mark, python), "12\n") == "12 is blind\n"
    assert said_by(run_by(12, _LOOK, mark, python), "1\n") == "", "another one is asked"
    mark.touch()
    assert said_by(run_by(12, _LOOK, mark, python), "12\n") == "12 sees\n"
    python.unlink()
    assert said_by(run_by(12, _LOOK, mark, python), "12\n") == "12 is blind\n"
