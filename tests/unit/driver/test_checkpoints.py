"""A checkpoint as files, and another one in its place."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from app.driver import checkpoints
from app.driver.checkpoints import (
    begin_anew,
    beside,
    copy_beside,
    finish_replacing,
    make_ready,
    mark_repartitioned,
    read_past,
    standing,
)
from app.driver.failures import DriverError


def planned(checkpoint: Path, batch: int, partitions: int) -> None:
    (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
    about = json.dumps({"conf": {"spark.sql.shuffle.partitions": str(partitions)}})
    (checkpoint / "offsets" / str(batch)).write_text(f"v1\n{about}\n7")


def committed(checkpoint: Path, batch: int, partitions: int) -> None:
    planned(checkpoint, batch, partitions)
    (checkpoint / "commits").mkdir(exist_ok=True)
    (checkpoint / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    made = tmp_path / "query"
    for batch in range(3):
        committed(made, batch, 8)
    (made / "state" / "0" / "1").mkdir(parents=True)
    (made / "state" / "0" / "1" / "3.changelog").write_text("state")
    (made / "slotwise-source-v").mkdir()
    (made / "slotwise-source-v" / "log").write_text("rows")
    (made / "metadata").write_text('{"id":"q"}')
    return made


def test_a_new_checkpoint_has_nothing(tmp_path: Path) -> None:
    now = standing(tmp_path / "none")
    assert (now.planned, now.partitions, now.is_whole, now.abandoned) == (-1, None, True, None)


def test_how_far_it_is(checkpoint: Path) -> None:
    assert standing(checkpoint).is_whole and standing(checkpoint).partitions == 8
    planned(checkpoint, 3, 8)
    assert not standing(checkpoint).is_whole and standing(checkpoint).abandoned is None


def test_a_redistribution_that_was_begun_by_hand_is_known(checkpoint: Path) -> None:
    planned(checkpoint, 3, 12)
    now = standing(checkpoint)
    assert (now.abandoned, now.partitions) == (12, 8)


def test_a_first_batch_that_was_interrupted_is_no_redistribution(tmp_path: Path) -> None:
    planned(tmp_path, 0, 8)
    now = standing(tmp_path)
    assert (now.is_whole, now.committed, now.abandoned) == (False, -1, None)


def test_other_files_are_no_batches(checkpoint: Path) -> None:
    for name in (".8.0a1b.tmp", ".2.crc"):
        (checkpoint / "offsets" / name).write_text("")
    now = standing(checkpoint)
    assert (now.planned, now.committed, now.partitions) == (2, 2, 8)


def test_an_old_spark_does_not_say_how_many_partitions_there_are(checkpoint: Path) -> None:
    (checkpoint / "offsets" / "2").write_text("v1\n{}\n7")
    assert standing(checkpoint).partitions is None


REMOVE = {
    "offsets/3": "; or if the sink has nothing of batch 3, remove it, so that the batch is planned anew",
    "commits/2": "; or remove it, so that batch 2 runs again, as after a failure",
}


@pytest.mark.parametrize(
    ("file", "planned_more"),
    [
        ("offsets/1", False),
        ("offsets/2", False),
        ("commits/2", False),
        ("offsets/2", True),
        ("offsets/3", True),
        ("commits/2", True),
    ],
)
@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "empty"),
        ("garbage", "damaged"),
        ("v1\ngarbage\n7", "damaged"),
        ("v1\n[]", "damaged"),
        ("\0\0", "damaged"),
    ],
)
def test_a_damaged_file_of_a_log_is_final_and_one_sentence(
    checkpoint: Path, file: str, planned_more: bool, text: str, what: str
) -> None:
    if planned_more:
        planned(checkpoint, 3, 8)
    (checkpoint / file).write_text(text)
    with pytest.raises(DriverError) as found:
        standing(checkpoint)
    again = "" if planned_more and file == "commits/2" else REMOVE.get(file, "")
    assert str(found.value) == (
        f"The file {checkpoint / file} of the checkpoint is {what}, so Spark cannot go on from there: "
        f"restore it from a backup{again}; or let the query begin from an empty checkpoint."
    )
    assert (found.value.recoverable, found.value.by_files) == (False, True)


def test_a_checksum_is_to_be_removed_too(checkpoint: Path) -> None:
    planned(checkpoint, 3, 8)
    (checkpoint / "offsets" / ".3.crc").touch()
    (checkpoint / "offsets" / "3").write_text("")
    with pytest.raises(
        DriverError, match=r"batch 3, remove it and \.3\.crc, so that the batch is planned anew"
    ):
        standing(checkpoint)


@pytest.mark.parametrize("is_late", [True, False])
def test_a_missing_file_may_still_come_for_a_minute(checkpoint: Path, is_late: bool) -> None:
    (checkpoint / "offsets" / "2").unlink()
    if not is_late:
        for file in (checkpoint / "offsets").iterdir():
            os.utime(file, (1, 1))
    with pytest.raises(DriverError, match="offsets/2 of the checkpoint is missing") as found:
        standing(checkpoint)
    assert (found.value.recoverable, found.value.by_files) == (is_late, True)


def test_a_copy_shares_the_state_and_nothing_else(checkpoint: Path) -> None:
    (beside(checkpoint, "next") / "left").mkdir(parents=True)
    copy = copy_beside(checkpoint)
    assert not (copy / "left").exists()
    assert (copy / "state/0/1/3.changelog").samefile(checkpoint / "state/0/1/3.changelog")
    for name in ("metadata", "slotwise-source-v/log", "offsets/2", "commits/2"):
        assert (copy / name).read_text() == (checkpoint / name).read_text()
        assert not (copy / name).samefile(checkpoint / name)


def test_without_hard_links_it_is_copied(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object) -> None:
        raise OSError("no hard links here")

    monkeypatch.setattr("os.link", refuse)
    copy = copy_beside(checkpoint)
    assert (copy / "state/0/1/3.changelog").read_text() == "state"


class Killed(BaseException):
    pass


@pytest.mark.parametrize("fatal", range(1, 4))
def test_whoever_comes_next_finishes_it(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, fatal: int
) -> None:
    """Killed before each of the renames: until the first one the old one counts, and from then on the new one."""
    committed(copy_beside(checkpoint), 3, 12)
    calls = 0
    rename = Path.rename

    def killing(self: Path, target: Path) -> Path:
        nonlocal calls
        calls += 1
        if calls == fatal:
            raise Killed
        return rename(self, target)

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(Path, "rename", killing)
        make_ready(checkpoint)
        finish_replacing(checkpoint)
    assert finish_replacing(checkpoint) is (fatal > 1)
    assert standing(checkpoint).partitions == (8 if fatal == 1 else 12)
    left = {path.name for path in checkpoint.parent.iterdir()}
    assert left == ({"query"} if fatal == 1 else {"query", "query.slotwise-old"})
    assert not finish_replacing(checkpoint), "once"
    checkpoints.forget_old(checkpoint)
    assert [path.name for path in checkpoint.parent.iterdir()] == ["query"]


def test_the_batch_of_a_redistribution_gave_nothing_out(checkpoint: Path) -> None:
    before = read_past(checkpoint)
    committed(checkpoint, 3, 12)
    mark_repartitioned(checkpoint, 3)
    assert read_past(checkpoint) == replace(before, newest=3)
    planned(checkpoint, 4, 12)
    (checkpoint / "slotwise-begun").write_text("4")
    assert read_past(checkpoint).interrupted == 4


def test_one_that_begins_anew_is_never_there_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = tmp_path / "query"
    begin_anew(checkpoint)
    committed(checkpoint, 3, 8)

    def killed(_directory: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoints.shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        begin_anew(checkpoint)
    assert not checkpoint.exists() and standing(checkpoint).planned == -1
    monkeypatch.undo()
    committed(checkpoint, 0, 8)
    begin_anew(checkpoint)
    assert not list(tmp_path.iterdir())


def test_a_query_that_begins_anew_may_keep_its_id(tmp_path: Path) -> None:
    checkpoint = tmp_path / "query"
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "offsets/0").touch()
    (checkpoint / "metadata").write_text('{"id": "a"}', encoding="utf-8")
    begin_anew(checkpoint, same_query=True)
    assert [each.name for each in checkpoint.iterdir()] == ["metadata"]
    assert (checkpoint / "metadata").read_text(encoding="utf-8") == '{"id": "a"}'

    begin_anew(checkpoint)
    begin_anew(checkpoint, same_query=True)
    assert not checkpoint.exists()
