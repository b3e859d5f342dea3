"""A coarse history of a job's load, for a page that draws it: short steps of the last minutes, long ones of hours.

Its size is bounded: `COLUMNS_MAX` columns at most, each of 8 bytes for each step. Not durable.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

STEPS: Final = {5_000: 120, 60_000: 360}
"""The length of a step in ms, and how many are kept: ten minutes, and six hours."""
COLUMNS_MAX: Final = 200
"""Rows, backlog, the longest batch, time of batches, and one for each vertex: of a job with more vertices the last ones
are left out."""

_ROWS, _BACKLOG, _LONGEST, _BATCHES = "rows", "backlog", "longest", "batches"
_OWN: Final = (_ROWS, _BACKLOG, _LONGEST, _BATCHES)


@dataclass(frozen=True, slots=True)
class Stretch:
    """The steps of one length that are known, oldest first. ``starts_ms`` are epoch ms; all other lists are as long.

    Rates are per second and 0 where no batch ran; None: not known in that step.
    """

    step_ms: int
    starts_ms: list[int]
    rows_per_second: list[float]
    backlog_rows: list[float | None]
    longest_batch_ms: list[float | None]
    batch_ms_per_second: list[float]
    busy_ms_per_second: dict[str, list[float]]


class LoadSteps:
    """Both histories of a job."""

    def __init__(self) -> None:
        self._rings = {step_ms: _Ring(step_ms, count) for step_ms, count in STEPS.items()}

    def note(
        self, start_ms: int, end_ms: int, *, rows: int, backlog_rows: int | None, busy_ms: Mapping[str, float]
    ) -> None:
        """A batch. What it did is spread evenly over its time. ``busy_ms``: per vertex id, of one slot."""
        for ring in self._rings.values():
            ring.spread(_ROWS, start_ms, end_ms, rows)
            ring.spread(_BATCHES, start_ms, end_ms, end_ms - start_ms)
            ring.keep_greatest(_LONGEST, end_ms, end_ms - start_ms)
            if backlog_rows is not None:
                ring.set(_BACKLOG, end_ms, backlog_rows)
            for vertex_id, value in busy_ms.items():
                if value:
                    ring.spread(vertex_id, start_ms, end_ms, value)

    def read(self, step_ms: int, now_ms: int) -> Stretch:
        """The steps of one of the lengths of `STEPS`, up to now."""
        ring = self._rings[step_ms]
        numbers = ring.numbers(now_ms)

        def rate(column: str) -> list[float]:
            return [round((value or 0) * 1000 / step_ms, 3) for value in ring.values(column, numbers)]

        vertices = [name for name in ring.columns if name not in _OWN]
        return Stretch(
            step_ms,
            [number * step_ms for number in numbers],
            rate(_ROWS),
            ring.values(_BACKLOG, numbers),
            ring.values(_LONGEST, numbers),
            rate(_BATCHES),
            {vertex_id: rate(vertex_id) for vertex_id in vertices},
        )


class _Ring:
    """Columns of the latest steps; a step is known by its number, which is its start in steps since 1970."""

    def __init__(self, step_ms: int, count: int) -> None:
        self._step_ms, self._count = step_ms, count
        self._first, self._newest = 0, -1
        self.columns: dict[str, array[float]] = {}

    def spread(self, name: str, start_ms: int, end_ms: int, amount: float) -> None:
        self._turn(end_ms)
        last = end_ms // self._step_ms
        if start_ms // self._step_ms == last:
            self._put(name, last, (self._get(name, last) or 0.0) + amount)
            return
        took_ms = end_ms - start_ms
        for number in range(max(start_ms // self._step_ms, last - self._count + 1), last + 1):
            inside_ms = min(end_ms, (number + 1) * self._step_ms) - max(start_ms, number * self._step_ms)
            if inside_ms > 0:
                self._put(name, number, (self._get(name, number) or 0.0) + amount * inside_ms / took_ms)

    def keep_greatest(self, name: str, at_ms: int, value: float) -> None:
        self._turn(at_ms)
        number = at_ms // self._step_ms
        self._put(name, number, max(value, self._get(name, number) or 0.0))

    def set(self, name: str, at_ms: int, value: float) -> None:
        self._turn(at_ms)
        self._put(name, at_ms // self._step_ms, value)

    def numbers(self, now_ms: int) -> range:
        """Of the steps up to now of which something may be known."""
        if self._newest < 0:
            return range(0)
        self._turn(now_ms)
        return range(max(self._first, self._newest - self._count + 1), self._newest + 1)

    def values(self, name: str, numbers: range) -> list[float | None]:
        return [self._get(name, number) for number in numbers]

    def _turn(self, at_ms: int) -> None:
        """Go on to the step of ``at_ms``: those in between are empty, and the oldest are forgotten."""
        number = at_ms // self._step_ms
        if self._newest < 0:
            self._first = self._newest = number
        for passed in range(max(self._newest, number - self._count) + 1, number + 1):
            for column in self.columns.values():
                column[passed % self._count] = math.nan
        self._newest = max(self._newest, number)

    def _get(self, name: str, number: int) -> float | None:
        column = self.columns.get(name)
        if column is None or math.isnan(value := column[number % self._count]):
            return None
        return value

    def _put(self, name: str, number: int, value: float) -> None:
        if number <= self._newest - self._count:
            return
        if name not in self.columns:
            if len(self.columns) >= COLUMNS_MAX:
                return
            self.columns[name] = array("d", [math.nan]) * self._count
        self._first = min(self._first, number)
        self.columns[name][number % self._count] = value
