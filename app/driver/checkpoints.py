"""The checkpoint of a query as files: how far it is, how many state partitions it has, which batches there were, and
another one in its place. Spark keeps one file per planned batch in ``offsets`` and one per committed batch in
``commits``.

A checkpoint is replaced by one that was made beside it, so it is whole at every instant:

| directory | what it is |
|---|---|
| ``<query>`` | the checkpoint |
| ``<query>.slotwise-next`` | one in the making; worth nothing |
| ``<query>.slotwise-ready`` | one that is complete and is to take the place: this is finished by whoever comes next |
| ``<query>.slotwise-old`` | the one before, until the first batch after it is committed |
| ``<query>.slotwise-committed`` | an empty file: a batch of the query was committed once |

A program chooses where its checkpoint is: nobody else has directories of these names.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.driver.damaged import damaged_file, missing_file
from app.driver.failures import DriverError
from app.durablefiles import sync_to_disk

_PARTITIONS = "spark.sql.shuffle.partitions"
_VERSION = re.compile(r"v\d+")
# Spark writes these files once, under another name first, and never changes them.
_SHARED = "state"
_BESIDE = ".slotwise-"
_BEGUN = "slotwise-begun"
_COMMITTED = "committed"
_FIRST = "slotwise-first"
_IDLE = "slotwise-idle"
_REPARTITIONED = "slotwise-repartitioned"
COMMITS_REMEMBERED = 11
CLAIMS = frozenset({"owner.json", "owner.lock", "slotwise-writer.json", "slotwise-writer.lock"})
"""Files that say who writes a checkpoint (`app.driver.locks`)."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a checkpoint is: its newest planned and committed batch, and the state partitions of either.

    -1 and None where there is none.
    """

    planned: int
    committed: int
    planned_partitions: int | None
    partitions: int | None

    @property
    def is_whole(self) -> bool:
        """Whether every planned batch is committed."""
        return self.planned == self.committed

    @property
    def abandoned(self) -> int | None:
        """The partitions of a redistribution that Spark began and did not finish here: it has to be that number."""
        begun = self.planned_partitions
        return begun if not self.is_whole and self.committed >= 0 and begun != self.partitions else None


def standing(checkpoint: Path) -> Standing:
    """How far the checkpoint is.

    Raises:
        DriverError: a file without which Spark runs no batch is empty, damaged or missing.
    """
    offsets, commits = checkpoint / "offsets", checkpoint / "commits"
    # In this order: what is committed meanwhile is planned.
    committed = newest_batch(commits)
    planned = newest_batch(offsets)
    is_whole = planned <= committed
    if is_whole and (offsets / str(planned - 1)).exists():
        # Spark reads it to find out what its sources have given.
        _read(offsets, planned - 1)
    anew = f"if the sink has nothing of batch {planned}, remove it, so that the batch is planned anew"
    of_planned = _read(offsets, planned, "" if is_whole else anew)
    of_committed = _read(offsets, committed)
    _read(commits, committed, f"remove it, so that batch {planned} runs again, as after a failure" * is_whole)
    return Standing(planned, committed, _partitions_of(of_planned), _partitions_of(of_committed))


def source_count(checkpoint: Path) -> int | None:
    """How many sources the newest planned batch has an offset of; None if there is none, or Spark does not say so.

    Raises:
        OSError: it cannot be read.
    """
    planned = newest_batch(checkpoint / "offsets")
    if planned < 0:
        return None
    lines = (checkpoint / "offsets" / str(planned)).read_text(encoding="utf-8").splitlines()
    return len(lines) - 2 if lines[:1] == ["v1"] else None


def newest_in_sink(folder: Path) -> int:
    """The newest batch in the log that Spark's file sink keeps in its folder; -1 if there is none."""
    return newest_batch(folder / "_spark_metadata")


def note_committed(own_dir: Path) -> None:
    """A batch of the query with this directory of the job has been committed, wherever its checkpoint is."""
    beside(own_dir, _COMMITTED).touch()


def begins_anew(own_dir: Path, checkpoint: Path) -> bool:
    """Whether a batch of the query was committed once, in this attempt or before, and its checkpoint has none."""
    return beside(own_dir, _COMMITTED).exists() and standing(checkpoint).committed < 0


def is_one_of_several(name: str) -> bool:
    """Whether the directory is not a checkpoint itself but one that has been or will be in its place."""
    return _BESIDE in name


def has_state(checkpoint: Path) -> bool:
    """Whether a stateful operator ever wrote there."""
    return (checkpoint / "state").is_dir()


def newest_batch(directory: Path) -> int:
    """The newest batch of a log of Spark's, such as ``offsets`` or ``commits``; -1 if there is none."""
    try:
        # The log of a file sink is compacted after this number of batches: 9.compact.
        names = [entry.name.removesuffix(".compact") for entry in directory.iterdir()]
        return max((int(name) for name in names if name.isdigit()), default=-1)
    except FileNotFoundError:
        return -1


def _partitions_of(about: Mapping[str, Any]) -> int | None:
    number = about.get("conf", {}).get(_PARTITIONS)
    return None if number is None else int(number)


def _read(log: Path, batch: int, again: str = "") -> dict[str, Any]:
    """What a log of Spark's says about a batch, empty for none. ``again`` as in `damaged_file`.

    Raises:
        DriverError: its file is not what Spark writes.
    """
    if batch < 0:
        return {}
    file = log / str(batch)
    try:
        # A version, then one line about the batch, then in offsets one for each source.
        version, *lines = file.read_text(encoding="utf-8").splitlines() or [""]
        about = json.loads(lines[0]) if lines else None
        if _VERSION.fullmatch(version) and isinstance(about, dict):
            return about
        what = "damaged" if version else "empty"
    except FileNotFoundError:
        raise missing_file(file) from None
    except OSError as error:
        told = f"The file {file} of the checkpoint cannot be read: {error.strerror}."
        raise DriverError(told, recoverable=True, by_files=True) from error
    except ValueError:
        what = "damaged"
    if (log / f".{batch}.crc").exists():
        # With it there, Hadoop does not write the file anew.
        again = again.replace("remove it,", f"remove it and .{batch}.crc,")
    raise damaged_file(file, what, again)


# ---- batches of before


@dataclass(frozen=True, slots=True)
class Past:
    """``committed_ms``: when the latest batches with input of their own were committed, oldest first; ``first_ms``:
    those of them that were the first of an attempt. ``idle_ms``: until when the query had no input, as far as is known.

    ``interrupted``: the batch that was begun and not committed; it runs again with the same id. None if there is
    none, or if the query stopped after planning it, before anything of it was executed. ``newest``: the newest batch
    that is committed, -1 without one.
    """

    committed_ms: tuple[int, ...]
    interrupted: int | None
    newest: int = -1
    first_ms: tuple[int, ...] = ()
    idle_ms: int = 0


def read_past(checkpoint_dir: Path, *, begun_in: Path | None = None, since_ms: int = 0) -> Past:
    """The past of the query whose checkpoint this is; of a new one it is empty.

    ``begun_in``: where `mark_begun` writes, if not there. ``since_ms``: all batches since then are wanted, and the
    latest before; 0: the latest.
    """
    notes, made = begun_in or checkpoint_dir, repartition_batches(checkpoint_dir)
    commits, planned = _batches(checkpoint_dir / "commits"), _batches(checkpoint_dir / "offsets")
    times: dict[int, int] = {}
    before = idle_ms = 0
    idle = _noted(notes / _IDLE)
    for batch in sorted(commits, reverse=True):
        at_ms = _written_ms(commits[batch])
        if at_ms is None:
            continue
        is_before = at_ms <= since_ms or not since_ms
        if is_before and not before and batch in idle:
            # It had no input until it was stopped, unless more came and was planned.
            idle_ms = min(since_ms, _written_ms(planned.get(batch + 1)) or since_ms)
        before += is_before
        if batch not in made and _has_input(planned, batch):
            times[batch] = at_ms
        if before >= COMMITS_REMEMBERED:
            break
    first = [times[batch] for batch in _noted(notes / _FIRST) if batch in times]
    begun, newest = max(planned, default=-1), max(commits, default=-1)
    noted = max(_noted(notes / _BEGUN), default=-1)
    interrupted = begun if newest < begun <= noted else None
    return Past(tuple(sorted(times.values())), interrupted, newest, tuple(first), idle_ms)


def _has_input(planned: Mapping[int, Path], batch: int) -> bool:
    """Whether a batch has read anything new: not if it only let time pass."""
    if batch not in planned or batch - 1 not in planned:
        return True
    try:
        # A version, then one line about the batch, then one for each source.
        this, before = (
            planned[one].read_text(encoding="utf-8").split("\n", 2)[2:] for one in (batch, batch - 1)
        )
    except (OSError, ValueError):
        return True
    return not this or this != before


def _written_ms(file: Path | None) -> int | None:
    try:
        return None if file is None else int(file.stat().st_mtime * 1000)
    except OSError:
        return None


def mark_begun(notes: Path, batch_id: int, *, is_first: bool = False) -> None:
    """Note that from here on something of the batch may have been executed. ``is_first``: of an attempt."""
    # Not synced: it tells how much was done twice when a process dies, no promise rests on it.
    (notes / _BEGUN).write_text(str(batch_id), encoding="ascii")
    if is_first:
        _note(notes / _FIRST, batch_id)


def mark_idle(notes: Path, batch_id: int) -> None:
    """Note that there was no input behind the batch."""
    (notes / _IDLE).write_text(str(batch_id), encoding="ascii")


def repartition_batches(checkpoint_dir: Path) -> frozenset[int]:
    """Batches that redistributed the state, and gave nothing out."""
    return frozenset(_noted(checkpoint_dir / _REPARTITIONED))


def mark_repartitioned(checkpoint_dir: Path, batch_id: int) -> None:
    """Note that ``batch_id`` redistributed the state."""
    _note(checkpoint_dir / _REPARTITIONED, batch_id)


def _note(file: Path, batch_id: int) -> None:
    batches = sorted({*_noted(file), batch_id})[-COMMITS_REMEMBERED:]
    file.write_text(" ".join(map(str, batches)), encoding="ascii")


def _noted(file: Path) -> list[int]:
    try:
        return list(map(int, file.read_text(encoding="ascii").split()))
    except (OSError, ValueError):
        return []


def _batches(directory: Path) -> dict[int, Path]:
    try:
        return {int(entry.name): entry for entry in directory.iterdir() if entry.name.isdigit()}
    except OSError:
        return {}


# ---- one in the place of another


def beside(checkpoint: Path, what: str) -> Path:
    return checkpoint.with_name(f"{checkpoint.name}{_BESIDE}{what}")


def copy_beside(checkpoint: Path, of: Path | None = None) -> Path:
    """A copy of it, or of the checkpoint ``of``, to be changed; files of the state are shared, as nobody changes them.

    Raises:
        OSError: it could not be made.
    """
    copy = beside(checkpoint, "next")
    discard(copy)
    for entry in sorted((of or checkpoint).iterdir()):
        if of is not None and entry.name in CLAIMS:
            continue
        target = copy / entry.name
        copy.mkdir(exist_ok=True)
        if entry.is_dir():
            shutil.copytree(entry, target, copy_function=_share if entry.name == _SHARED else shutil.copy2)
        else:
            shutil.copy2(entry, target)
    return copy


def _share(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        # Not every file system has hard links.
        shutil.copy2(source, target)


def make_ready(checkpoint: Path) -> None:
    """The copy is complete: from here on it takes the place of ``checkpoint``, whatever happens."""
    copy, ready = beside(checkpoint, "next"), beside(checkpoint, "ready")
    discard(ready)
    copy.rename(ready)
    sync_to_disk(checkpoint.parent)


def finish_replacing(checkpoint: Path) -> bool:
    """Put what is ready in the place of ``checkpoint``, also after a crash anywhere in here. Whether there was any."""
    ready = beside(checkpoint, "ready")
    discard(beside(checkpoint, "next"))
    if not ready.is_dir():
        return False
    _set_aside(checkpoint)
    _take_the_place(ready, checkpoint)
    return True


def begin_anew(checkpoint: Path, *, same_query: bool = False) -> None:
    """Remove the checkpoint at one instant, so that none is left in part.

    ``same_query``: the id of the query stays, which a program may have asked for.

    Raises:
        OSError: it could not be removed.
    """
    identity = checkpoint / "metadata"
    kept = identity.read_bytes() if same_query and identity.is_file() else b""
    _set_aside(checkpoint)
    if kept:
        checkpoint.mkdir()
        identity.write_bytes(kept)
    discard(beside(checkpoint, "old"))


def _set_aside(checkpoint: Path) -> None:
    if checkpoint.is_dir():
        old = beside(checkpoint, "old")
        discard(old)
        checkpoint.rename(old)


def _take_the_place(ready: Path, checkpoint: Path) -> None:
    ready.rename(checkpoint)
    sync_to_disk(checkpoint.parent)


def forget_old(checkpoint: Path) -> None:
    """The checkpoint before is of no use any more; what cannot be removed now is the next one's."""
    with contextlib.suppress(OSError):
        discard(beside(checkpoint, "old"))


def discard(directory: Path) -> None:
    """
    Raises:
        OSError: it could not be removed.
    """
    if directory.exists():
        shutil.rmtree(directory)
