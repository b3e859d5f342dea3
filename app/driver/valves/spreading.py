"""Spreads the rows of a source over tasks where it has fewer parts than its parallelism.

A valve only joins parts. So a source of one file a batch, a topic of one partition or a socket has one task, which does
the work of all that is behind it up to the next shuffle, too. A valve behind the source can spread the rows by a
shuffle, round robin. That costs 10 to 30 ms a batch and 1 to 3 µs a row, and pays where what is behind takes much
longer than what reads. Only a batch that was spread tells how long each of both takes: so it is tried where the task is
long, and ends where it does not pay, for the longer the more often.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from app.driver.load import Stage
from app.driver.valves.query_valves import Rows
from app.driver.valves.spark import WriterFacts
from app.model.analysis import Query
from app.model.sink_formats import DATABASES, WHOLE_BATCHES

_BATCH_MS: Final = 50.0
_ROW_MS: Final = 0.002
"""What a shuffle costs, at most, as a first guess."""
_LEAST_MS: Final = 50.0
_LEAST: Final = 0.2
"""It is tried where it could save so much, and this part, of the time of the tasks."""
_KEEPS: Final = 0.1
"""It stays where it saves this part."""
_TRIED_AFTER: Final = 2
_MOST_AFTER: Final = 512
_LONGER: Final = 4
"""It is tried after so many batches in a row; after so many times as many when it was tried and did not pay."""
_ENDS_AFTER: Final = 3
"""It ends after so many batches in a row in which it does not pay. In the first ones workers of Python start."""


def goes_by_no_order(query: Query, facts: WriterFacts, own_format: str | None) -> bool:
    """Whether nothing in a query can go by the order of the rows that a task reads. What keeps state may: which
    duplicate it keeps, what comes last for a key. So may a function that is given batches, and readers of a log such as
    Kafka, in which the rows of a key have an order. ``own_format``: that of a sink of a document."""
    if query.stateful:
        return False
    if own_format is not None:
        return own_format in DATABASES or own_format in WHOLE_BATCHES
    return facts.table is None and (facts.format or "").lower() in WHOLE_BATCHES


@dataclass(frozen=True, slots=True)
class SourceRun:
    """A source in a batch: how many tasks by the plan, and how many parts, of ``rows`` rows. ``reading_ms``: how long
    the longest task took in the stage that reads; where rows are spread, ``behind_ms`` in that behind, and
    ``behind_busy_ms`` all of its tasks."""

    parallelism: int
    parts: int
    rows: int
    reading_ms: float
    behind_ms: float | None = None
    behind_busy_ms: float = 0.0

    @property
    def is_spread(self) -> bool:
        return self.behind_ms is not None

    @property
    def lacks_parts(self) -> bool:
        return 0 < self.parts < self.parallelism


def source_run(
    own: Rows,
    front: Rows,
    stages: Sequence[Stage],
    others: Collection[int] = (),
    *,
    parallelism: int,
    rows: int,
) -> SourceRun | None:
    """``own``: the valve of the source in a batch of ``stages``; ``front``: that which may spread its rows; ``others``:
    the RDDs of the valves of other sources. None if it is not in them, or shares a stage with another source: nobody
    knows which of the two its longest task is of."""
    reading = [stage for stage in stages if own.rdd_id in stage.rdd_ids]
    behind = [stage for stage in stages if front.rdd_id in stage.rdd_ids] if front.shuffles else []
    if not reading or (front.shuffles and not behind):
        return None
    if any(not stage.rdd_ids.isdisjoint(others) for stage in reading):
        return None
    return SourceRun(
        parallelism,
        own.partitions,
        rows,
        # A program may work on a batch several times.
        sum(map(_longest_ms, reading)),
        sum(map(_longest_ms, behind)) if behind else None,
        sum(stage.busy_ms for stage in behind),
    )


def _longest_ms(stage: Stage) -> float:
    return max(stage.by_task.run_ms, default=stage.busy_ms / max(1, stage.tasks))


class Spreading:
    """Whether the rows of one source are to be spread, by its last batches."""

    def __init__(self) -> None:
        self.is_on = False
        self._parallelism = 0
        # Batches in a row that speak for a change.
        self._streak = 0
        self._tried_after = _TRIED_AFTER
        # Of a batch that was not spread.
        self._row_ms = 0.0

    def note(self, run: SourceRun) -> None:
        """A batch has ended."""
        if run.parallelism != self._parallelism:
            self._parallelism, self._streak, self._tried_after = run.parallelism, 0, _TRIED_AFTER
        # One that was planned before the last decision says nothing of it.
        if run.rows > 0 and self.is_on == run.is_spread:
            (self._note_spread if self.is_on else self._note_narrow)(run)

    def _note_narrow(self, run: SourceRun) -> None:
        if not _may_pay(run, run.reading_ms):
            self._streak = 0
            return
        row_ms = run.reading_ms / run.rows
        self._row_ms = min(self._row_ms, row_ms) if self._streak else row_ms
        self._streak += 1
        if self._streak >= self._tried_after:
            self.is_on, self._streak = True, 0

    def _note_spread(self, run: SourceRun) -> None:
        assert run.behind_ms is not None
        # Without: by the rows of before, as tasks that share cores take longer; and by the tasks, as rows change.
        alone_ms = min(self._row_ms * run.rows, run.reading_ms + run.behind_busy_ms)
        saved_ms = alone_ms - run.reading_ms - run.behind_ms
        if run.lacks_parts and saved_ms >= _KEEPS * alone_ms:
            self._streak, self._tried_after = 0, _TRIED_AFTER
            return
        self._streak += 1
        if self._streak < _ENDS_AFTER:
            return
        self.is_on, self._streak = False, 0
        if _may_pay(run, alone_ms):
            self._tried_after = min(_LONGER * self._tried_after, _MOST_AFTER)


def _may_pay(run: SourceRun, alone_ms: float) -> bool:
    """Whether a batch that takes ``alone_ms`` without may be shorter if its rows are spread."""
    if not run.lacks_parts:
        return False
    saved_ms = alone_ms * (1 - run.parts / run.parallelism) - _BATCH_MS - _ROW_MS * run.rows
    return saved_ms >= max(_LEAST_MS, _LEAST * alone_ms)


class Spreader:
    """The sources of one run of a query."""

    def __init__(self) -> None:
        self._sources: dict[str, Spreading] = {}

    def note(self, runs: Mapping[str, SourceRun]) -> set[str]:
        """What sources did in a batch, by vertex id: those whose rows are to be spread from now on."""
        for source_id, run in runs.items():
            self._sources.setdefault(source_id, Spreading()).note(run)
        return {source_id for source_id, each in self._sources.items() if each.is_on}
