"""One server per data directory."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from app.store.datadir import DataDirectory
from app.store.errors import DataDirectoryInUse, StoreUnavailable

ROOT = Path(__file__).parents[3]
HOLDER = """
import sys
from pathlib import Path
from app.store.datadir import DataDirectory
claim = DataDirectory.claim(Path(sys.argv[1]))
print("claimed", flush=True)
sys.stdin.read()
"""


def test_a_directory_is_made_for_its_owner_only(tmp_path: Path) -> None:
    place = tmp_path / "new" / "data"
    with DataDirectory.claim(place) as claim:
        assert claim.path == place
        assert stat.S_IMODE(place.stat().st_mode) == 0o700


def test_a_second_claim_is_refused_until_the_first_is_released(tmp_path: Path) -> None:
    with (
        DataDirectory.claim(tmp_path),
        pytest.raises(
            DataDirectoryInUse, match=rf"{tmp_path} is in use by another server \(pid {os.getpid()}, since 20"
        ),
    ):
        DataDirectory.claim(tmp_path)
    claim = DataDirectory.claim(tmp_path)
    claim.release()
    claim.release()
    DataDirectory.claim(tmp_path).release()


def test_directories_do_not_hinder_each_other(tmp_path: Path) -> None:
    with DataDirectory.claim(tmp_path / "a"), DataDirectory.claim(tmp_path / "b"):
        pass


def test_a_claim_ends_with_its_process_however_it_ends(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, tmp_path],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "claimed\n"
        with pytest.raises(
            DataDirectoryInUse, match=rf"\(pid {holder.pid}, since .* choose another data directory"
        ):
            DataDirectory.claim(tmp_path)
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    DataDirectory.claim(tmp_path).release()


def test_drivers_do_not_inherit_the_claim(tmp_path: Path) -> None:
    """They outlive the server, and must not keep the next one out."""
    claim = DataDirectory.claim(tmp_path)
    driver = subprocess.Popen(["sleep", "60"], close_fds=False)
    try:
        claim.release()
        DataDirectory.claim(tmp_path).release()
    finally:
        driver.kill()
        driver.wait()


@pytest.mark.parametrize("note", ["", "not JSON", "[]", '{"pid": "x"}', '{"since": 1}'])
def test_whatever_the_lock_file_says_the_lock_counts(tmp_path: Path, note: str) -> None:
    with DataDirectory.claim(tmp_path):
        (tmp_path / "server.lock").write_text(note)
        with pytest.raises(DataDirectoryInUse, match="in use by another server: stop that one first"):
            DataDirectory.claim(tmp_path)
    DataDirectory.claim(tmp_path).release()


def test_a_file_in_the_place_of_the_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(
        StoreUnavailable, match=f"The data directory {tmp_path}/data cannot be used: File exists"
    ):
        DataDirectory.claim(tmp_path / "data")


def test_a_full_or_read_only_directory_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_fd: int, _data: bytes, _offset: int) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.pwrite", refuse)
    with pytest.raises(StoreUnavailable, match="cannot be written: No space left on device"):
        DataDirectory.claim(tmp_path)
    monkeypatch.undo()
    DataDirectory.claim(tmp_path).release()
