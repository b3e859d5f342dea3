"""Files of a checkpoint that Spark cannot go on without: what an operator can do, in one sentence, whether we have met
the file first or Spark has."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

from app.driver.failures import DriverError, Failure, one_line
from app.durablefiles import APPEARS_S

_UNREADABLE: Final = re.compile(
    r"Failed to read log file (?:file:)?(\S+)\. (?:(Incomplete)|\[MALFORMED_LOG_FILE|Log file was malformed)"
)
_MISSING: Final = re.compile(r"Previous batch (\d+) not found in offset log|batch (\d+) doesn't exist")


def damaged_file(file: Path | str, what: str, again: str = "") -> DriverError:
    """``what``: is the matter with ``file``. ``again``: what one may do instead of having it back."""
    ways = [
        "restore it from a backup",
        *filter(None, [again]),
        "let the query begin from an empty checkpoint",
    ]
    told = f"The file {file} of the checkpoint is {what}, so Spark cannot go on from there: {'; or '.join(ways)}."
    return DriverError(told, by_files=True)


def missing_file(file: Path) -> DriverError:
    error = damaged_file(file, "missing")
    times = [each.stat().st_mtime for each in file.parent.iterdir() if each.name.isdigit()]
    error.recoverable = time.time() - max(times, default=0.0) < APPEARS_S
    return error


def named(failure: Failure, checkpoint: Path) -> Failure:
    """``failure`` of a query with this ``checkpoint``, if it is of such a file: with the sentence."""
    if (unreadable := _UNREADABLE.search(failure.sentence)) is not None:
        error = damaged_file(unreadable[1], "empty" if unreadable[2] else "damaged")
    elif (missing := _MISSING.search(failure.sentence)) is not None:
        batch = missing[1] or missing[2]
        logs = [checkpoint / "offsets", *sorted(checkpoint.glob("sources/*"))]
        files = [log / batch for log in logs]
        gone = [each for each in files if not each.exists() and not each.with_suffix(".compact").exists()]
        if not gone:
            return failure
        error = missing_file(gone[0])
    else:
        return failure
    # What a list of the job has decided stays.
    recoverable = failure.recoverable if failure.why else error.recoverable
    return replace(failure, sentence=one_line(str(error)), recoverable=recoverable, by_files=True)
