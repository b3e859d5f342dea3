"""Spark's own sink of files: whose folder it is, said before Spark leaves out a batch in silence."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.driver import arrivals, locks
from app.driver.failures import DriverError
from app.driver.locks import take_driver_lock
from app.driver.sinks import folder
from app.driver.sinks.folder import SinkFolder
from app.model.locations import plain_location


@pytest.fixture(autouse=True)
def without_hadoop(monkeypatch: pytest.MonkeyPatch) -> None:
    def directory_of(_: object, location: str) -> Path | None:
        plain = plain_location(location) or ""
        return Path(plain) if plain.startswith("/") else None

    monkeypatch.setattr(folder, "directory_of", directory_of)


def opened(home: Path, path: str = "", master: str = "local[2]") -> SinkFolder:
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(master=master))
    return SinkFolder.open("store", path or f"file://{home}/out", session, home / "checkpoint")


def prepare(home: Path, sink: SinkFolder | None = None, lock: str = "lock") -> None:
    (sink or opened(home)).prepare(str(home / lock))


def log(directory: Path, *batches: int) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for batch in batches:
        (directory / str(batch)).write_text("v1\n{}\n{}", encoding="utf-8")


def planned(home: Path, *batches: int) -> None:
    log(home / "checkpoint" / "offsets", *batches)


def committed(home: Path, *batches: int) -> None:
    log(home / "checkpoint" / "commits", *batches)


def written(home: Path, *batches: int) -> None:
    log(home / "out" / "_spark_metadata", *batches)


def test_a_folder_is_made_and_its_batches_follow_each_other(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    prepare(tmp_path, sink)
    assert sink.folder == tmp_path / "out"
    assert sink.folder.is_dir()
    for batch in range(3):
        sink.check_batch(batch)
        written(tmp_path, batch)


def test_a_folder_that_another_driver_writes_is_refused_as_long_as_it_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "_PREDECESSOR_WAIT_S", 0.0)
    lock = take_driver_lock(str(tmp_path / "lock"))
    prepare(tmp_path)
    prepare(tmp_path)
    with pytest.raises(DriverError, match=r"store writes files to .*/out, where the driver of another job"):
        prepare(tmp_path, lock="other")
    os.close(lock)
    prepare(tmp_path, lock="other")
    assert [each.name for each in (tmp_path / "out").iterdir()] == ["_slotwise"]


def test_a_batch_that_was_planned_before_may_be_in_the_log(tmp_path: Path) -> None:
    planned(tmp_path, 0, 1)
    committed(tmp_path, 0)
    written(tmp_path, 0, 1)
    sink = opened(tmp_path)
    prepare(tmp_path, sink)
    sink.check_batch(1)
    sink.check_batch(2)


@pytest.mark.parametrize("batches", [(0,), (0, 1, 2)])
def test_a_log_of_another_query_is_refused(tmp_path: Path, batches: tuple[int, ...]) -> None:
    written(tmp_path, *batches)
    sink = opened(tmp_path)
    prepare(tmp_path, sink)
    with pytest.raises(
        DriverError, match=f"the log of another query has batches up to {batches[-1]}"
    ) as caught:
        sink.check_batch(0)
    assert caught.value.vertex == "store"
    assert not caught.value.recoverable


def test_another_query_is_found_while_both_run(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    prepare(tmp_path, sink)
    sink.check_batch(0)
    written(tmp_path, 0, 1)
    with pytest.raises(DriverError, match="leave out what is new in batch 1"):
        sink.check_batch(1)


def test_a_log_that_ends_before_the_checkpoint_is_refused(tmp_path: Path) -> None:
    planned(tmp_path, 0, 1, 2)
    committed(tmp_path, 0, 1)
    with pytest.raises(DriverError, match="ends with batch -1, and the checkpoint with batch 1") as caught:
        prepare(tmp_path)
    assert not caught.value.recoverable


def test_a_folder_that_cannot_be_written_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("", encoding="utf-8")
    with pytest.raises(DriverError, match=r"The directory .*/out cannot be written: "):
        prepare(tmp_path)


def test_what_is_elsewhere_is_not_looked_at(tmp_path: Path) -> None:
    sink = opened(tmp_path, "s3://bucket/out")
    prepare(tmp_path, sink)
    sink.check_batch(0)
    assert sink.folder is None


@pytest.mark.parametrize("compact", [False, True])
def test_files_that_only_executors_see_are_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compact: bool
) -> None:
    monkeypatch.setattr(arrivals, "APPEARS_S", 0)
    out = tmp_path / "out"
    names = [
        f"part-{task:05}-{batch}0000000-1111-2222-3333-444444444444-c000.orc"
        for batch in (1, 2)
        for task in (0, 1)
    ]
    lines = [json.dumps({"path": f"file://{out}/{name}", "action": "add"}) for name in names]
    written(tmp_path)
    name, kept = ("1.compact", lines) if compact else ("1", lines[2:])
    (out / "_spark_metadata" / name).write_text("\n".join(["v1", *kept]), encoding="utf-8")
    (out / names[2]).write_text("rows", encoding="utf-8")

    opened(tmp_path).check_written(1)
    far = opened(tmp_path, master="spark://host:7077")
    with pytest.raises(
        DriverError, match=r"wrote 2 file.s. of batch 1 into .*/out, and 1 of them are not"
    ) as caught:
        prepare(tmp_path, far)
    assert caught.value.recoverable
    (out / names[3]).write_text("rows", encoding="utf-8")
    prepare(tmp_path, far)
