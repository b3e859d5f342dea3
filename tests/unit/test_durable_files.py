"""Files in directories where somebody else may write."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.durablefiles import read_regular, write_once, write_whole


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


def remove(tmp_path: Path, *calls: str) -> None:
    """In a process of its own: a thread that waits for a pipe cannot be ended."""
    code = "\n".join(
        (
            "from pathlib import Path",
            "from app.cluster.processes import tidy",
            "from app.durablefiles import remove_tree",
            "from app.worker.job.files import tidy_attempts",
            *calls,
        )
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, env=environment)


def test_whatever_lies_where_a_directory_was_is_removed(tmp_path: Path) -> None:
    outside, tree = tmp_path / "outside", tmp_path / "tree"
    (outside / "kept").mkdir(parents=True)
    (tree / "a" / "b" / "empty").mkdir(parents=True)
    for directory in (tree, tree / "a", tree / "a" / "b"):
        os.mkfifo(directory / "pipe")
        (directory / "link").symlink_to(outside)
        (directory / "file").touch()
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(outside)
    remove(
        tmp_path, *(f"remove_tree(Path({str(path)!r}))" for path in (tree, pipe, link, tmp_path / "missing"))
    )
    assert [path.name for path in tmp_path.rglob("*")] == ["outside", "kept"]


def test_no_directory_is_too_deep_to_be_removed(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    fd = os.open(tree, os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("d", dir_fd=fd)
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    remove(tmp_path, f"remove_tree(Path({str(tree)!r}))")
    assert not tree.exists()


def test_pipes_that_a_driver_leaves_stop_no_tidying(tmp_path: Path) -> None:
    """One where the driver had its scratch or its sockets, and some in directories of attempts."""
    lock_file = tmp_path / "driver-1.lock"
    scratch, sockets = lock_file.with_suffix(".scratch"), tmp_path / "slotwise-1"
    os.mkfifo(scratch)
    os.mkfifo(sockets)
    attempt = tmp_path / "job" / "attempt-2"
    attempt.mkdir(parents=True)
    os.mkfifo(attempt / "spec-1.json")
    (attempt / "spark").mkdir()
    os.mkfifo(attempt / "spark" / "pipe")
    (attempt / "driver.log").touch()
    old = tmp_path / "job" / "attempt-1"
    old.mkdir()
    os.mkfifo(old / "pipe")
    remove(
        tmp_path,
        f"tidy(Path({str(lock_file)!r}))",
        f"tidy_attempts(Path({str(attempt.parent)!r}), dead=2, keep=1)",
    )
    assert not scratch.exists() and not sockets.exists() and not old.exists()
    assert [path.name for path in attempt.iterdir()] == ["driver.log"]


def test_what_is_written_once_stays(tmp_path: Path) -> None:
    file = tmp_path / "name"
    assert write_once(file, "first") == "first"
    assert write_once(file, "second") == "first"
    file.write_text("\n")
    assert write_once(file, "third") == "third"
    assert [each.name for each in tmp_path.iterdir()] == ["name"]
