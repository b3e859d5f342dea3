"""Whether the files of a batch that runs again still have what it was planned with.

Spark's log of a file source has their names and modification times, but Spark reads the present files, and
silently reads nothing for a removed file. One that was only touched or appended to is no reason to stop.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from app.driver.checkpoints import standing
from app.driver.directories import path_of_uri
from app.driver.failures import DriverError
from app.durablefiles import APPEARS_S

log = logging.getLogger(__name__)

_LOG_START = "v1"
_SIZES = "slotwise-files"
_MOST_NOTED = 1000
"""Of more files in a batch no sizes are noted: to look at them takes time, and each batch begins so."""
_FOOTED = (b"PAR1", b"ORC")
"""How files begin to which nothing can be appended."""
_OPTION = "ignoremissingfiles"
_SETTING = "spark.sql.files.ignoreMissingFiles"


def may_be_gone(session: SparkSession, options: Iterable[tuple[str, str]]) -> bool:
    """Whether missing files are to be passed over: the ``options`` of one of a query's sources say so, or else the
    ``session`` of the query does."""
    said = [value for name, value in options if name.lower() == _OPTION]
    return "true" in map(str.lower, said or [session.conf.get(_SETTING) or ""])


def note_sizes(checkpoint: Path, batch_id: int, notes: Path) -> None:
    """Note how large the files of a batch are of which nothing has been executed. Spark notes only when they were
    changed, which says nothing of how."""
    if not (checkpoint / "sources").is_dir():
        return
    files = list(islice(_planned(checkpoint, batch_id), _MOST_NOTED + 1))
    if files and len(files) <= _MOST_NOTED:
        sizes = {entry["path"]: _size(entry) for entry in files}
        (notes / _SIZES).write_text(json.dumps({"batch": batch_id, "sizes": sizes}), encoding="utf-8")


def check_planned_files(
    checkpoint: Path, *, notes: Path | None = None, may_be_gone: Callable[[], bool] = bool
) -> None:
    """Look at the files of the batch that is planned and not committed; those on a mounted file system only.

    ``notes``: where `note_sizes` writes. ``may_be_gone``: whether the job says that missing files are to be passed over
    (``ignoreMissingFiles``); asked only if one is missing.

    Raises:
        DriverError: one of them is gone, or has lost rows that it had when the batch began. The message names it.
    """
    place = standing(checkpoint)
    if place.is_whole:
        return
    noted = _read(_text(notes and notes / _SIZES)) or {}
    sizes = noted["sizes"] if noted.get("batch") == place.planned else {}
    for entry in _planned(checkpoint, place.planned):
        path = path_of_uri(str(entry["path"]))
        if path is not None and (told := _change(path, entry, sizes.get(entry["path"]), may_be_gone)):
            planned_s = (checkpoint / "offsets" / str(place.planned)).stat().st_mtime
            raise DriverError(
                f"Batch {place.planned} is to be run again, and its file {path} {told}",
                # A network file system may show it yet.
                recoverable=not path.exists() and time.time() - planned_s < APPEARS_S,
                by_files=True,
            )


def _change(path: Path, entry: dict[str, Any], size: int | None, may_be_gone: Callable[[], bool]) -> str:
    """Why the batch cannot be run with this file; empty if it can."""
    advice = "Put it back as it was: a file must stay as it is until its rows are committed."
    try:
        now = path.stat()
        if now.st_mtime_ns // 1_000_000 == entry["timestamp"]:
            return ""
        if size is None or now.st_size == size or (now.st_size > size and not _has_a_footer(path)):
            # Nothing of it was executed, or what was executed is there.
            log.warning("the file %s has changed since its batch was planned: it is read as it is now", path)
            return ""
    except FileNotFoundError:
        if may_be_gone():
            return ""
        return f"is gone. {advice} With the option ignoreMissingFiles of the source it is passed over."
    except OSError:
        # Spark says what is wrong with it.
        return ""
    return f"was written again since it was planned: it had {size} bytes, and has {now.st_size}. {advice}"


def _has_a_footer(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4).startswith(_FOOTED)


def _size(entry: dict[str, Any]) -> int | None:
    path = path_of_uri(str(entry["path"]))
    try:
        return None if path is None else path.stat().st_size
    except OSError:
        return None


def _planned(checkpoint: Path, batch_id: int) -> Iterator[dict[str, Any]]:
    """The files of a batch of the query."""
    begins = dict(_logs(checkpoint, batch_id - 1)) if batch_id else {}
    for source, end in _logs(checkpoint, batch_id):
        for batch in range(begins.get(source, -1) + 1, end + 1):
            yield from _entries(checkpoint / "sources" / str(source), batch)


def _logs(checkpoint: Path, batch: int) -> Iterator[tuple[int, int]]:
    """How far the log of each source of files is in a batch, by the number of the source."""
    for number, line in enumerate(_text(checkpoint / "offsets" / str(batch)).splitlines()[2:]):
        value = _read(line)
        if isinstance(value, dict) and isinstance(value.get("logOffset"), int):
            yield number, value["logOffset"]


def _entries(of: Path, batch: int) -> Iterator[dict[str, Any]]:
    """The files of a batch in the log of a source."""
    for name in (str(batch), f"{batch}.compact"):
        lines = _text(of / name).splitlines()
        for line in lines if lines[:1] == [_LOG_START] else ():
            value = _read(line)
            if isinstance(value, dict) and value.get("batchId") == batch and "path" in value:
                yield value


def _text(file: Path | None) -> str:
    try:
        return "" if file is None else file.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""


def _read(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None
