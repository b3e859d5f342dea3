"""The past batches of a query, read from its checkpoint, and the pauses in its output.

Spark keeps one file per planned batch in ``offsets`` and one per committed batch in ``commits``.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

_COMMITS_REMEMBERED = 11
_BEGUN = "slotwise-begun"
_REPARTITIONED = "slotwise-repartitioned"


@dataclass(frozen=True, slots=True)
class Past:
    """``committed_ms``: when the latest batches were committed, oldest first.

    ``interrupted``: the batch that was begun and not committed; it runs again with the same id. None if there is
    none, or if the query stopped after planning it, before anything of it was executed. ``newest``: the newest batch
    that is committed, -1 without one.
    """

    committed_ms: tuple[int, ...]
    interrupted: int | None
    newest: int = -1


def read_past(checkpoint_dir: Path, *, begun_in: Path | None = None) -> Past:
    """The past of the query whose checkpoint this is; of a new one it is empty.

    ``begun_in``: where `mark_begun` writes, if not there.
    """
    made = repartition_batches(checkpoint_dir)
    commits = {
        batch: file for batch, file in _batches(checkpoint_dir / "commits").items() if batch not in made
    }
    planned = _batches(checkpoint_dir / "offsets")
    times = []
    for batch in sorted(commits)[-_COMMITS_REMEMBERED:]:
        try:
            times.append(int(commits[batch].stat().st_mtime * 1000))
        except OSError:
            continue
    begun, newest = max(planned, default=-1), max([*commits, *made], default=-1)
    interrupted = begun if begun > newest else None
    if (
        interrupted is not None
        and max(_noted((begun_in or checkpoint_dir) / _BEGUN), default=-1) < interrupted
    ):
        interrupted = None
    return Past(tuple(times), interrupted, newest)


def mark_begun(checkpoint_dir: Path, batch_id: int) -> None:
    """Note that from here on something of the batch may have been executed."""
    # Not synced: it tells how much was done twice when a process dies, no promise rests on it.
    (checkpoint_dir / _BEGUN).write_text(str(batch_id), encoding="ascii")


def repartition_batches(checkpoint_dir: Path) -> frozenset[int]:
    """Batches that redistributed the state, and gave nothing out."""
    return frozenset(_noted(checkpoint_dir / _REPARTITIONED))


def mark_repartitioned(checkpoint_dir: Path, batch_id: int) -> None:
    """Note that ``batch_id`` redistributed the state."""
    batches = sorted(repartition_batches(checkpoint_dir) | {batch_id})[-_COMMITS_REMEMBERED:]
    (checkpoint_dir / _REPARTITIONED).write_text(" ".join(map(str, batches)), encoding="ascii")


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


class GapMeter:
    """Measures the pause that a change of plan made in the output of one query. Times are Unix milliseconds.

    A query that had committed one batch only, or none, has no steady interval: its gap is the pause itself. A pause
    without input is nobody's gap: after it the gap counts from the last moment at which there was none.
    """

    def __init__(self, past: Past) -> None:
        self._commits: list[int] = list(past.committed_ms)
        self._idle_ms = 0
        # The steady interval before the change whose gap is looked for, and the longest gap since.
        self._change: tuple[float, int | None] | None = None
        self._gap_ms: int | None = None
        if self._commits:
            self.changing()

    def changing(self) -> None:
        """Another plan is ordered. Of several in a row the first counts: the output waits since then."""
        if self._change is None:
            steady = [after - before for before, after in pairwise(self._commits)]
            self._change = (statistics.median(steady) if steady else 0, None)

    def committed(self, at_ms: int, *, at_plan: bool) -> None:
        """A batch was committed; ``at_plan`` if it ran at the newest plan."""
        last_ms = self._commits[-1] if self._commits else None
        self._commits = [*self._commits, at_ms][-_COMMITS_REMEMBERED:]
        if self._change is None:
            return
        steady_ms, longest_ms = self._change
        if last_ms is not None:
            gap_ms = at_ms - last_ms - int(steady_ms)
            if self._idle_ms > last_ms:
                gap_ms = min(gap_ms, at_ms - self._idle_ms)
            longest_ms = max(longest_ms or 0, gap_ms)
        self._change = (steady_ms, longest_ms)
        if at_plan:
            self._gap_ms, self._change = longest_ms, None

    def idle(self, at_ms: int) -> None:
        """There was no input at ``at_ms``. A plan that is in force then holds up no output from here on."""
        self._idle_ms = at_ms
        if self._change is not None:
            _, longest_ms = self._change
            self._gap_ms = 0 if longest_ms is None and self._commits else longest_ms
            self._change = None

    def forget(self) -> None:
        """What paused the output was no change of plan."""
        self._change = self._gap_ms = None

    def take(self) -> int | None:
        """The longest pause around the last change less the steady interval, once; None if it cannot be known."""
        gap, self._gap_ms = self._gap_ms, None
        return gap
