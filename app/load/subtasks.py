"""What each subtask of a vertex did, from the tasks that Spark ran: nothing here is divided by the parallelism."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, fields
from typing import Final

from app.model.measured import TaskWork

FIGURES: Final = tuple(field.name for field in fields(TaskWork))
RECENT_MS: Final = 60_000
"""How subtasks differ is told of the last one or two of these."""


@dataclass(slots=True)
class _Mark:
    """What the columns were at a time by the clock of the driver."""

    at_ms: int
    columns: list[list[int]]


class Subtasks:
    """Those of a vertex in an attempt, since it has as many as now.

    ``whole_ms``: how long each of them was there up to the end of the last batch; ``held_ms``: for how much of it a
    source had rows to read while no batch ran. ``unknown``: of these figures nothing was told of some batch that had
    rows, so they are too small.
    """

    def __init__(self, count: int, at_ms: int, unknown: Iterable[str] = ()) -> None:
        self.count = count
        self.whole_ms = 0
        self.held_ms = 0
        self.unknown = frozenset(unknown)
        self._columns = [[0] * count for _ in FIGURES]
        self._base = self._next = _Mark(at_ms, self._copy())

    def note(self, work: TaskWork | None, *, took_ms: int, held_ms: int, has_rows: bool, end_ms: int) -> None:
        """Add a batch, with the pause before it."""
        self.whole_ms += took_ms
        self.held_ms += held_ms
        told = astuple(work or TaskWork())
        for name, column, values in zip(FIGURES, self._columns, told, strict=True):
            if not values and has_rows:
                self.unknown |= {name}
            for number, value in enumerate(values):
                column[number % self.count] += value
        if end_ms - self._next.at_ms >= RECENT_MS:
            self._base, self._next = self._next, _Mark(end_ms, self._copy())

    def total(self, name: str) -> Sequence[int]:
        """Of each subtask, one of `FIGURES`."""
        return self._columns[FIGURES.index(name)]

    def shares(self, name: str) -> list[float] | None:
        """Which part of a figure each subtask had lately; None if that is not known."""
        place = FIGURES.index(name)
        lately = [
            now - then for now, then in zip(self._columns[place], self._base.columns[place], strict=True)
        ]
        whole = sum(lately)
        if not whole and name in self.unknown:
            return None
        return [each / whole for each in lately] if whole else [0.0] * self.count

    def _copy(self) -> list[list[int]]:
        return [list(column) for column in self._columns]


def within_limit(work: Iterable[TaskWork], most: int) -> bool:
    """Whether what was told of the tasks of a batch is no more than of ``most`` tasks, with columns of one length."""
    count = 0
    for each in work:
        lengths = {len(column) for column in astuple(each) if column}
        if len(lengths) > 1:
            return False
        count += sum(lengths)
    return count <= most
