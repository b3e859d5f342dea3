"""What each subtask of a vertex did, from the tasks that Spark ran: nothing here is divided by the parallelism."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Final

from app.model.measured import TASKS_TOLD, TaskWork, VertexBatch
from app.model.protocol import Report

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
        for name, column, values in zip(FIGURES, self._columns, _columns_of(work or TaskWork()), strict=True):
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


class QuerySubtasks:
    """Those of the vertices of one query in an attempt."""

    def __init__(self) -> None:
        self._known: dict[str, Subtasks] = {}
        # The parallelism of vertices of which a batch with rows told nothing by task, before another one did.
        self._lacking: dict[str, int] = {}

    @property
    def count(self) -> int:
        return sum(each.count for each in self._known.values())

    def of(self, vertex_id: str) -> Subtasks | None:
        return self._known.get(vertex_id)

    def note(
        self,
        batch: VertexBatch,
        work: TaskWork | None,
        report: Report,
        *,
        took_ms: int,
        held_ms: int,
        room: Callable[[], int],
    ) -> None:
        """Add a vertex in a batch. Subtasks of one with another parallelism begin at 0, as in Flink. ``room``: for how
        many more there is room."""
        vertex_id, count, has_rows = batch.vertex_id, batch.parallelism, report.input_rows > 0
        known = self._known.get(vertex_id)
        if known is None or known.count != count:
            self._known.pop(vertex_id, None)
            if work is None or not 0 < count <= room():
                if has_rows:
                    self._lacking[vertex_id] = count
                return
            unknown = FIGURES if self._lacking.get(vertex_id) == count else ()
            known = self._known[vertex_id] = Subtasks(count, report.started_ms, unknown)
        known.note(work, took_ms=took_ms, held_ms=held_ms, has_rows=has_rows, end_ms=report.at_ms)


def tasks_in(report: Report) -> dict[str, TaskWork]:
    """What the tasks of each vertex did, as far as a report tells it within its limits."""
    told = {each.vertex_id: each.by_task for each in report.vertices if each.by_task is not None}
    return told if within_limit(told.values(), TASKS_TOLD) else {}


def _columns_of(work: TaskWork) -> list[tuple[int, ...]]:
    """In the order of `FIGURES`."""
    return [getattr(work, name) for name in FIGURES]


def within_limit(work: Iterable[TaskWork], most: int) -> bool:
    """Whether what was told of the tasks of a batch is no more than of ``most`` tasks, with columns of one length."""
    count = 0
    for each in work:
        lengths = {len(column) for column in _columns_of(each) if column}
        if len(lengths) > 1:
            return False
        count += sum(lengths)
    return count <= most
