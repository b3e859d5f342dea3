"""What a query's checkpoint says of its past, and the pauses in its output.

Spark keeps one file per planned batch in ``offsets`` and one per committed batch in ``commits``.
"""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass
from pathlib import Path

from app.driver.locks import write_atomically

_COMMITS_REMEMBERED = 11
_UNTOUCHED = "slotwise-untouched.json"


@dataclass(frozen=True, slots=True)
class Past:
    """``committed_ms``: when the latest batches were committed, oldest first.

    ``interrupted``: the batch that was begun and not committed; it runs again with the same id. None if there is
    none, or if it was stopped before anything of it was executed.
    """

    committed_ms: tuple[int, ...]
    interrupted: int | None


def read_past(checkpoint_dir: Path) -> Past:
    """The past of the query whose checkpoint this is; of a new one it is empty."""
    commits = _batches(checkpoint_dir / "commits")
    planned = _batches(checkpoint_dir / "offsets")
    times = []
    for batch in sorted(commits)[-_COMMITS_REMEMBERED:]:
        try:
            times.append(int(commits[batch].stat().st_mtime * 1000))
        except OSError:
            continue
    newest = max(planned, default=-1)
    interrupted = newest if newest > max(commits, default=-1) else None
    if interrupted is not None and _untouched(checkpoint_dir) == interrupted:
        interrupted = None
    return Past(tuple(times), interrupted)


def mark_untouched(checkpoint_dir: Path, batch_id: int) -> None:
    """Note that nothing of the planned batch ``batch_id`` was executed: the query stopped before it."""
    write_atomically(checkpoint_dir / _UNTOUCHED, json.dumps({"batch_id": batch_id}))


def clear_untouched(checkpoint_dir: Path) -> None:
    """The query starts: from now on a planned batch may have been begun."""
    (checkpoint_dir / _UNTOUCHED).unlink(missing_ok=True)


def _untouched(checkpoint_dir: Path) -> int | None:
    try:
        return int(json.loads((checkpoint_dir / _UNTOUCHED).read_text(encoding="utf-8"))["batch_id"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _batches(directory: Path) -> dict[int, Path]:
    try:
        return {int(entry.name): entry for entry in directory.iterdir() if entry.name.isdigit()}
    except OSError:
        return {}


class GapMeter:
    """Measures the pause that a change of plan made in the output of one query. Times are Unix milliseconds."""

    def __init__(self, past: Past) -> None:
        self._commits: list[int] = list(past.committed_ms)
        self._changed_ms: int | None = self._commits[-1] if self._commits else None
        self._gap_ms: int | None = None

    def changing(self, now_ms: int) -> None:
        """Another plan was ordered. Of several in a row the first counts: the output waits since then."""
        if self._changed_ms is None:
            self._changed_ms = now_ms

    def committed(self, at_ms: int, *, at_plan: bool) -> None:
        """A batch was committed; ``at_plan`` if it ran at the newest plan."""
        self._commits.append(at_ms)
        del self._commits[: -2 * _COMMITS_REMEMBERED]
        if at_plan and self._changed_ms is not None:
            self._gap_ms = self._measure(self._changed_ms)
            self._changed_ms = None

    def take(self) -> int | None:
        """The longest pause around the last change less the steady interval, once; None if it cannot be known."""
        gap, self._gap_ms = self._gap_ms, None
        return gap

    def _measure(self, changed_ms: int) -> int | None:
        pairs = list(zip(self._commits, self._commits[1:], strict=False))
        steady = [b - a for a, b in pairs if b <= changed_ms]
        around = [b - a for a, b in pairs if b > changed_ms]
        if not steady or not around:
            return None
        return max(0, max(around) - int(statistics.median(steady[-_COMMITS_REMEMBERED + 1 :])))
