"""The files of jobs: written whole or not at all, and laid out again when they are damaged."""

from __future__ import annotations

import os
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from app.worker.job.files import are_intact, check_links, write_artifacts
from tests.unit.worker.fakes import graph, rig_on

CONTENT = b"def f(rows):\n    return rows\n" * 100


async def test_a_damaged_artifact_is_laid_out_again(sqlite_url: str, tmp_path: Path) -> None:
    listed = replace(graph(), artifacts=("functions.py",))
    async with rig_on(sqlite_url, tmp_path) as rig:
        job = await rig.plane.submit(listed, {"functions.py": CONTENT})
        await rig.bring_up(job, 1)
    file = rig.places.artifacts_dir(job) / "functions.py"
    assert file.read_bytes() == CONTENT
    file.write_bytes(CONTENT[:7])
    async with rig_on(sqlite_url, tmp_path, host=rig.host):
        assert file.read_bytes() == CONTENT
    inode = file.stat().st_ino
    async with rig_on(sqlite_url, tmp_path, host=rig.host):
        assert file.stat().st_ino == inode, "one that is intact is left alone"


def test_a_file_that_cannot_be_written_whole_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "job" / "artifacts"
    write_artifacts(directory, {"a.py": b"old", "b.py.tmp": b"another"})

    def full(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched, pytest.raises(OSError, match="No space left"):
        patched.setattr(os, "fsync", full)
        write_artifacts(directory, {"a.py": b"new"})
    assert (directory / "a.py").read_bytes() == b"old"
    assert are_intact(
        directory, {"a.py": sha256(b"old").hexdigest(), "b.py.tmp": sha256(b"another").hexdigest()}
    )
    assert not are_intact(directory, {"a.py": sha256(b"new").hexdigest()})
    assert not are_intact(directory, {"gone.py": sha256(b"").hexdigest()})


def test_a_file_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[bytes, bool]] = []
    fsync, target = os.fsync, tmp_path / "job" / "artifacts" / "a.py"

    def watched(fd: int) -> None:
        fsync(fd)
        if not os.path.isdir(f"/proc/self/fd/{fd}"):
            synced.append((Path(f"/proc/self/fd/{fd}").read_bytes(), target.exists()))

    monkeypatch.setattr(os, "fsync", watched)
    write_artifacts(target.parent, {"a.py": b"content"})
    assert synced == [(b"content", False)]
    assert [path.name for path in target.parent.iterdir()] == ["a.py"]


def test_a_folder_for_results_takes_links_and_is_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_links(tmp_path / "new" / "results")
    assert list((tmp_path / "new" / "results").iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="File exists"):
        check_links(tmp_path / "file")

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    with pytest.raises(OSError, match="not permitted"):
        check_links(tmp_path)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["file", "new"]
