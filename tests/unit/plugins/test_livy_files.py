"""What a batch names by path is read as it was when it was looked at, or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from app.plugins.livy.document import FileAsked
from app.plugins.livy.files import find_files, read_files
from app.worker.refusals import InvalidRequest

SECRET = "TOKEN = 1\n"


def a_link_in_its_place(file: Path, secret: Path) -> None:
    file.unlink()
    file.symlink_to(secret)


def a_link_above_it(file: Path, secret: Path) -> None:
    os.rename(file.parent, file.parent.with_name("moved"))
    file.parent.symlink_to(secret.parent)


def more_in_it(file: Path, _: Path) -> None:
    file.write_text(SECRET + SECRET)


def nothing_in_it(file: Path, _: Path) -> None:
    file.write_text("")


def nothing_there(file: Path, _: Path) -> None:
    file.unlink()


@pytest.mark.parametrize(
    "change", [a_link_in_its_place, a_link_above_it, more_in_it, nothing_in_it, nothing_there]
)
def test_a_file_that_is_changed_between_the_look_and_the_reading_is_refused(
    tmp_path: Path, change: Callable[[Path, Path], None]
) -> None:
    programs, secret = tmp_path / "programs", tmp_path / "elsewhere" / "etl.py"
    for file in (programs / "jobs" / "etl.py", secret):
        file.parent.mkdir(parents=True)
        # Of equal length: their sizes tell nothing.
        file.write_text(SECRET)
    found = find_files(programs, [], {"etl.py": FileAsked("file", "jobs/etl.py")})
    assert read_files(found) == {"etl.py": SECRET.encode()}
    change(programs / "jobs" / "etl.py", secret)
    with pytest.raises(InvalidRequest, match="cannot be read: "):
        read_files(found)
