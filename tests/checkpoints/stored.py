"""Checkpoints of earlier code, as files: their input, how they are packed, and the place where they lie while they are
used.
"""

from __future__ import annotations

import contextlib
import io
import json
import lzma
import os
import shutil
import sqlite3
import tarfile
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from app import filelocks
from app.model.ids import vertex_id
from tests.integration.driver.harness import wait_for

HERE = Path(__file__).parent
HOME = Path("/tmp/slotwise-checkpoints")
"""Spark writes the absolute paths of its input into a checkpoint, and takes a file at another path for a new one. So
checkpoints are written and continued at the same path, on whatever machine."""

JOB = "earlier"
STATES = ("whole", "open")
"""``whole``: the last batch is committed. ``open``: the driver was killed when the state of the last batch was written,
and neither its sink nor Spark had committed it."""

BEFORE = {"whole": (0, 1), "open": (0,)}
"""Which files of each source are in committed batches. ``open``: the next one is in the batch that is not committed."""
FILES = 3

_BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
Row = dict[str, Any]


def at(seconds: float) -> datetime:
    return _BEGIN + timedelta(seconds=seconds)


def rows_of(source: str, number: int) -> list[Row]:
    """The rows of a file, which is one batch. ``s``: the event time, in seconds.

    Each file of ``left`` repeats a row of the one before. The last file has a row that is an hour late: it is dropped
    behind a watermark, and only the checkpoint knows the watermark.
    """
    if source == "left":
        new = [*((j, "abc"[j % 3], 2 * j, j // 3) for j in range(4)), (4, "d", 1, number)]
    else:
        new = [(j, "acd"[j], 3 * j, 1) for j in range(3)]
    rows = [{"id": 10 * number + j, "k": k, "s": 10 * number + s, "v": v} for j, k, s, v in new]
    if number > 1:
        rows.append({"id": 10 * number + 9, "k": "late", "s": -3600, "v": 0})
    if source == "left" and number > 0:
        rows.append(rows_of(source, number - 1)[3])
    return rows


SIDE = (rows_of("left", 0)[1], rows_of("left", 1)[2])
"""The rows of the static table: one of each file that was there when the checkpoints were written."""


def put(state: str, number: int) -> None:
    """Put the files with this number into the sources of ``state``, at one instant each."""
    for source in ("left", "right"):
        folder = HOME / "in" / state / source
        folder.mkdir(parents=True, exist_ok=True)
        rows = [
            {**{key: row[key] for key in ("id", "k", "v")}, "at": at(row["s"]).isoformat()}
            for row in rows_of(source, number)
        ]
        hidden, file = folder / f".{number}.json", folder / f"{number}.json"
        hidden.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        # Spark reads files in the order of these times, which are not to depend on when this runs.
        os.utime(hidden, (at(number * 60).timestamp(),) * 2)
        hidden.rename(file)


def put_side_table() -> None:
    (HOME / "in").mkdir(exist_ok=True)
    rows = [{"id": row["id"], "at": at(row["s"]).isoformat()} for row in SIDE]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (HOME / "in" / "side.json").write_text(text, encoding="utf-8")


def checkpoint_of(kind: str, state: str) -> Path:
    return HOME / "checkpoint" / vertex_id(JOB, f"{kind}_{state}")


def table_of(kind: str, state: str) -> Path:
    return HOME / "out" / f"{kind}_{state}.db"


def query_id(kind: str, state: str) -> str:
    """Spark's id of the query, which it keeps as long as it continues the same checkpoint."""
    return str(json.loads((checkpoint_of(kind, state) / "metadata").read_text(encoding="utf-8"))["id"])


def rows_in(table: Path) -> list[tuple[Any, ...]]:
    """All rows of the table, in order. Without a table there are none."""
    with contextlib.closing(sqlite3.connect(table)) as db:
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'result'").fetchone():
            return []
        return sorted(db.execute("SELECT * FROM result"))


# -- packing


def pack(archive: Path, places: Iterable[Path]) -> None:
    """The files of ``places``, below HOME, with their times, which the driver reads too."""
    files = sorted(
        file
        for place in places
        for file in ([place] if place.is_file() else place.rglob("*"))
        if file.is_file()
    )
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for file in files:
            tar.add(file, file.relative_to(HOME), filter=_of_nobody)
    archive.write_bytes(lzma.compress(content.getvalue(), preset=9 | lzma.PRESET_EXTREME))


def _of_nobody(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = int(member.mtime)
    return member


def unpack(archive: Path) -> None:
    with tarfile.open(archive) as tar:
        tar.extractall(HOME, filter="data")


# -- the place


@contextlib.contextmanager
def home() -> Iterator[None]:
    """HOME, empty and for this process alone, for a while. What a run left there that was killed is removed.

    Raises:
        PermissionError: it is somebody else's.
    """
    lock_file = HOME.with_suffix(".lock")
    fd = wait_for(f"{lock_file}, which another run of the tests holds", lambda: _locked(lock_file))
    try:
        if HOME.is_symlink() or (HOME.exists() and HOME.stat().st_uid != os.getuid()):
            raise PermissionError(f"{HOME} is somebody else's")
        shutil.rmtree(HOME, ignore_errors=True)
        HOME.mkdir(mode=0o700)
        yield
        shutil.rmtree(HOME)
    finally:
        os.close(fd)


def _locked(lock_file: Path) -> int | None:
    return filelocks.lock(lock_file)
