"""Whether the files of a batch that runs again are unchanged since it was planned.

Spark's log of a file source has their names and modification times, but Spark reads the present files, and
silently reads nothing for a removed file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from app.driver.checkpoints import newest_batch
from app.driver.directories import path_of_uri
from app.driver.failures import DriverError

_LOG_START = "v1"
_OPTION = "ignoremissingfiles"
_SETTING = "spark.sql.files.ignoreMissingFiles"


def may_be_gone(session: SparkSession, options: Iterable[tuple[str, str]]) -> bool:
    """Whether missing files are to be passed over: the ``options`` of one of a query's sources say so, or else the
    ``session`` of the query does."""
    said = [value for name, value in options if name.lower() == _OPTION]
    return "true" in map(str.lower, said or [session.conf.get(_SETTING) or ""])


def check_planned_files(checkpoint: Path, *, may_be_gone: Callable[[], bool] = bool) -> None:
    """Look at the files of the batch that is planned and not committed; those on a mounted file system only.

    ``may_be_gone``: whether the job says that missing files are to be passed over (``ignoreMissingFiles``); asked only
    if one is missing.

    Raises:
        DriverError: one of them is gone, or was written again. The message names it.
    """
    newest, before = newest_batch(checkpoint / "offsets"), newest_batch(checkpoint / "commits")
    if newest <= before:
        return
    ends = list(_logs(checkpoint, newest))
    begins = dict(_logs(checkpoint, newest - 1)) if newest else {}
    for source, end in ends:
        for batch in range(begins.get(source, -1) + 1, end + 1):
            for entry in _entries(checkpoint / "sources" / str(source), batch):
                _check(entry, newest, may_be_gone=may_be_gone)


def _check(entry: dict[str, Any], batch_id: int, *, may_be_gone: Callable[[], bool]) -> None:
    path = path_of_uri(str(entry["path"]))
    if path is None:
        return
    about = f"Batch {batch_id} is to be run again, and its file {path}"
    advice = "Put it back as it was: a file must stay as it is until its rows are committed."
    try:
        changed_ms = path.stat().st_mtime_ns // 1_000_000
    except FileNotFoundError:
        if may_be_gone():
            return
        raise DriverError(
            f"{about} is gone. {advice} With the option ignoreMissingFiles of the source it is passed over.",
            recoverable=True,
            by_files=True,
        ) from None
    except OSError:
        # Spark says what is wrong with it.
        return
    if changed_ms != entry["timestamp"]:
        told = f"{about} was written again since it was planned. {advice}"
        raise DriverError(told, recoverable=True, by_files=True)


def _logs(checkpoint: Path, batch: int) -> Iterator[tuple[int, int]]:
    """How far the log of each source of files is in a batch, by the number of the source."""
    try:
        lines = (checkpoint / "offsets" / str(batch)).read_text(encoding="utf-8").splitlines()[2:]
    except OSError:
        return
    for number, line in enumerate(lines):
        value = _read(line)
        if isinstance(value, dict) and isinstance(value.get("logOffset"), int):
            yield number, value["logOffset"]


def _entries(log: Path, batch: int) -> Iterator[dict[str, Any]]:
    """The files of a batch in the log of a source."""
    for name in (str(batch), f"{batch}.compact"):
        try:
            lines = (log / name).read_text(encoding="utf-8").splitlines()
        except OSError:
            continue
        for line in lines if lines[:1] == [_LOG_START] else ():
            value = _read(line)
            if isinstance(value, dict) and value.get("batchId") == batch and "path" in value:
                yield value


def _read(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None
