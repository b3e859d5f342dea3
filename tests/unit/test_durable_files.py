"""Files in directories where somebody else may write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from app.durablefiles import read_regular, write_whole


def test_a_link_in_the_place_of_the_temporary_file_is_not_followed(tmp_path: Path) -> None:
    other, file = tmp_path / "other", tmp_path / "file"
    other.write_text("somebody's")
    (tmp_path / ".file.tmp").symlink_to(other)
    write_whole(file, b"ours")
    file.unlink()
    file.symlink_to(other)
    write_whole(file, b"ours")
    assert (other.read_text(), file.read_text(), file.is_symlink()) == ("somebody's", "ours", False)


def test_only_regular_files_of_a_sane_size_are_read(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"1234")
    assert read_regular(file, 4) == b"1234"
    (tmp_path / "link").symlink_to(file)
    os.mkfifo(tmp_path / "pipe")
    for path, most in ((file, 3), (tmp_path / "link", 4), (tmp_path / "pipe", 4), (tmp_path / "missing", 4)):
        with pytest.raises(OSError, match=r"too large|symbolic links|no regular file|No such file"):
            read_regular(path, most)
