"""Logs of drivers: places in them stay what they are when they are cut, and nobody is led elsewhere."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from app.cluster import driverlogs
from app.cluster.driverlogs import end_of_log, open_log, trim_logs

LINES = b"".join(b"line %d\n" % number for number in range(200))


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driverlogs, "_LOG_LIMIT_BYTES", 1_000)
    monkeypatch.setattr(driverlogs, "_LOG_TAIL_BYTES", 100)
    monkeypatch.setattr(driverlogs, "_LOCK_PATIENCE_S", 0.05)


def read(path: Path, begin: int, end: int = 1 << 30) -> bytes:
    with open_log(path) as opened:
        return opened.read(begin, end)


def test_a_log_that_has_grown_too_long_is_cut_down_to_its_end(tmp_path: Path) -> None:
    long, short = tmp_path / "driver-1.log", tmp_path / "driver-2.log"
    with open(long, "ab") as writer:
        writer.write(LINES)
        writer.flush()
        short.write_bytes(b"little\n")
        trim_logs(tmp_path)
        writer.write(b"and on\n")
    lines = long.read_text().splitlines()
    assert lines[0].endswith("bytes were cut off here")
    assert lines[1].startswith("line ") and lines[-2:] == ["line 199", "and on"]
    assert long.stat().st_size < 200
    assert short.read_bytes() == b"little\n"


def test_a_place_stays_the_same_however_often_the_log_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "driver-1.log"
    written = b""
    for _ in range(3):
        with open(path, "ab") as writer:
            writer.write(LINES)
        written += LINES
        trim_logs(tmp_path)
        with open_log(path) as opened:
            assert (opened.end, opened.first > 0) == (len(written), True)
            assert opened.read(opened.first, opened.end) == written[opened.first :]
            assert opened.read(0, len(written) - 5) == written[opened.first : -5]
    assert end_of_log(str(path.with_suffix(".lock"))) == len(written)
    assert path.read_bytes().count(b"were cut off here") == 1


def test_one_line_without_an_end_is_cut_too(tmp_path: Path) -> None:
    path = tmp_path / "driver-1.log"
    path.write_bytes(b"." * 5_000)
    trim_logs(tmp_path)
    assert path.stat().st_size < 200
    assert read(path, 0) == b"." * 100


def test_what_is_written_while_it_is_cut_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "driver-1.log"
    path.write_bytes(LINES)
    write_at: Callable[[int, int, bytes], int] = driverlogs._write_at
    late = [b"late %d\n" % number for number in range(3)]

    def writing(fd: int, place: int, content: bytes) -> int:
        if late:
            with open(path, "ab") as driver:
                driver.write(late.pop(0))
        return write_at(fd, place, content)

    monkeypatch.setattr(driverlogs, "_write_at", writing)
    trim_logs(tmp_path)
    assert path.read_bytes().endswith(b"line 199\nlate 0\nlate 1\nlate 2\n")
    assert end_of_log(str(path)) == len(LINES) + 21


def test_a_driver_that_locks_its_log_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "driver-1.log"
    path.write_bytes(LINES)
    monkeypatch.setattr(driverlogs, "_LOCK_PAUSE_S", None)
    with open(path, "ab") as driver:
        fcntl.flock(driver, fcntl.LOCK_EX)
        trim_logs(tmp_path)
        assert read(path, len(LINES) - 9) == b"line 199\n"
    assert (tmp_path / "logs.lock").stat().st_mode & 0o077 == 0


def test_who_reads_waits_for_who_cuts_but_not_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "driver-1.log"
    path.write_bytes(LINES)
    with open_log(path), open(tmp_path / "logs.lock", "ab") as server, pytest.raises(BlockingIOError):
        fcntl.flock(server, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with open(tmp_path / "logs.lock", "ab") as server:
        fcntl.flock(server, fcntl.LOCK_EX)
        assert read(path, len(LINES) - 9) == b"line 199\n"


def test_a_driver_that_writes_faster_than_it_is_copied_keeps_nobody_busy_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "driver-1.log"
    path.write_bytes(LINES)
    write_at: Callable[[int, int, bytes], int] = driverlogs._write_at
    turns = 0

    def writing(fd: int, place: int, content: bytes) -> int:
        nonlocal turns
        turns += 1
        assert turns < 10
        with open(path, "ab") as driver:
            driver.write(b"and on and on\n" * 10)
        return write_at(fd, place, content)

    monkeypatch.setattr(driverlogs, "_write_at", writing)
    trim_logs(tmp_path)
    text = path.read_bytes()
    assert text.startswith(b"... ") and b"line 199\nand on and on\n" in text


def test_who_dies_while_a_log_is_cut_leaves_its_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "driver-1.log"
    path.write_bytes(b"... 100 bytes were cut off here\n" + LINES)
    before = end_of_log(str(path))

    def full(fd: int, size: int) -> None:
        raise OSError(errno.EIO, "It died")

    monkeypatch.setattr(os, "ftruncate", full)
    trim_logs(tmp_path)
    assert end_of_log(str(path)) == before == 100 + len(LINES)


@pytest.mark.parametrize("kind", ["link", "pipe", "directory", "nothing"])
def test_what_is_no_file_is_not_read_and_not_cut(tmp_path: Path, kind: str) -> None:
    secret, path = tmp_path / "token", tmp_path / "driver-1.log"
    secret.write_bytes(LINES)
    if kind == "link":
        path.symlink_to(secret)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    with pytest.raises(OSError, match=r"no regular file|symbolic links|Is a directory|No such file"):
        read(path, 0)
    trim_logs(tmp_path)
    assert secret.read_bytes() == LINES
    assert end_of_log(str(path)) is None
