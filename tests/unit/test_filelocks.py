"""The lock contract of drivers and control planes: who holds a lock, who inherits it; what is not known is held."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app import filelocks
from app.cluster.processes import is_lock_free, sweep
from app.driver.failures import DriverError
from app.driver.locks import claim_checkpoint, take_driver_lock

SLEEPER = [sys.executable, "-c", "import sys; sys.stdin.read()"]


@contextmanager
def child(**options: object) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(SLEEPER, stdin=subprocess.PIPE, **options)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()


@pytest.fixture
def cannot_open(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Too many open files, wherever a lock file is to be looked at."""

    def refuse(path: str | Path) -> bool:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))

    monkeypatch.setattr(filelocks, "is_held", refuse)
    yield errno.EMFILE


def test_a_lock_is_held_until_its_descriptor_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not filelocks.is_held(path), "there is no such file"
    fd = filelocks.lock(path)
    assert fd is not None
    assert path.stat().st_mode & 0o777 == 0o600
    assert filelocks.is_held(path)
    assert filelocks.lock(path) is None
    os.close(fd)
    assert not filelocks.is_held(path)


def test_what_cannot_be_opened_is_an_error_and_not_free(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="symbolic links"):
        filelocks.is_held(tmp_path / "loop")
    assert not is_lock_free(str(tmp_path / "loop"))


def test_a_waiting_lock_comes_after_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    code = f"from app import filelocks; filelocks.lock({str(path)!r}, wait=True); print('mine', flush=True)"
    fd = filelocks.lock(path)
    assert fd is not None
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    ) as other:
        assert other.stdout is not None
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(0.5)
        os.close(fd)
        assert other.stdout.readline() == b"mine\n"


def test_only_a_child_that_is_named_the_driver_lock_inherits_it(tmp_path: Path) -> None:
    """The JVM holds it on; a daemon that the code of a user started must not keep a dead driver alive."""
    path = tmp_path / "driver.lock"
    fd = take_driver_lock(str(path))
    with child(close_fds=False):
        with child(pass_fds=(fd,)):
            os.close(fd)
            assert filelocks.is_held(path), "as the JVM does"
        assert not filelocks.is_held(path), "the other child has no part in it"


def test_a_driver_lock_that_is_held_or_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    fd = take_driver_lock(str(tmp_path / "driver.lock"))
    with pytest.raises(DriverError, match="held by another driver"):
        take_driver_lock(str(tmp_path / "driver.lock"))
    with pytest.raises(DriverError, match="cannot be opened"):
        take_driver_lock(str(tmp_path / "missing" / "driver.lock"))
    os.close(fd)


def test_a_checkpoint_whose_writer_cannot_be_told_dead_is_not_claimed(
    tmp_path: Path, cannot_open: int
) -> None:
    claim_checkpoint(tmp_path / "checkpoint", lock_file="/first.lock", attempt=1, epoch=1)
    owner = (tmp_path / "checkpoint" / "owner.json").read_text()
    with pytest.raises(DriverError, match=r"cannot be told: its lock file /first\.lock") as refused:
        claim_checkpoint(tmp_path / "checkpoint", lock_file="/second.lock", attempt=2, epoch=1)
    assert refused.value.recoverable, "there will be fewer open files"
    assert (tmp_path / "checkpoint" / "owner.json").read_text() == owner


def test_a_sweep_leaves_what_cannot_be_told_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cannot_open: int
) -> None:
    lock_file = tmp_path / "driver-20260101-000000-aa.lock"
    lock_file.touch()
    sweep(tmp_path)
    assert lock_file.exists()
    monkeypatch.undo()
    sweep(tmp_path)
    assert not lock_file.exists()
