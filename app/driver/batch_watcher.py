"""What is told of a micro-batch that takes long, while it runs: how far it is, and what keeps it from an interruption.

A batch that is short is not looked at: nothing is read of it until it is committed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from app.driver.gateway import Gateway
from app.driver.interruption import Interrupter
from app.driver.progress import measured, records_between
from app.model.analysis import Query
from app.model.measured import BATCHES_TOLD, KeptReason, LongBatch

LONG_S: Final = 5.0
"""A batch that has run for longer is told of."""


@dataclass(slots=True)
class BatchWatcher:
    """Looks at the batch in flight of one run of a query. For the attempt's own thread.

    ``tasks``: how many of a batch are done, and how many are known. ``place``: the checkpoint, None if it is no
    directory of this host. ``may_interrupt``: what the options or the sink say.
    """

    query: Query
    query_id: str
    run_id: str
    gateway: Gateway
    interrupter: Interrupter
    tasks: Callable[[int], tuple[int, int]]
    place: Path | None
    may_interrupt: bool
    _rows: tuple[int, int | None] = (-1, None)

    def now(self) -> LongBatch | None:
        """The batch in flight, if it is long."""
        ran_s, run = self.gateway.batch_age_s, self.gateway.run_in_flight
        if run is None or ran_s <= LONG_S:
            return None
        waited_s = self.gateway.waited_s(tuple(vertex.id for vertex in self.query.flow))
        kept: KeptReason = ""
        if not self.may_interrupt:
            kept = "sink"
        elif self.interrupter.has_interrupted(run.batch_id):
            kept = "once"
        done, known = self.tasks(run.batch_id)
        return LongBatch(
            query=self.query.key,
            query_id=self.query_id,
            run_id=self.run_id,
            batch_id=run.batch_id,
            ran_ms=round(1000 * ran_s),
            plan_version=run.plan.version,
            tasks_done=done,
            tasks_known=known,
            rows=self._rows_of(run.batch_id),
            waited_ms=round(1000 * waited_s),
            kept=kept,
        )

    def _rows_of(self, batch_id: int) -> int | None:
        """Read once for a batch."""
        if self._rows[0] != batch_id:
            place = self.place
            rows = (
                None
                if place is None
                else measured("the rows of a batch", lambda: rows_of(place, batch_id), None)
            )
            self._rows = (batch_id, rows)
        return self._rows[1]


def rows_of(checkpoint: Path, batch_id: int) -> int | None:
    """The records of a batch that is planned, by its offsets and those before it; None if a source does not say, or if
    there are none before."""
    if batch_id == 0:
        return None
    begins, ends = (_offsets(checkpoint / "offsets" / str(number)) for number in (batch_id - 1, batch_id))
    if not ends or len(begins) != len(ends):
        return None
    found = [records_between(begin, end) for begin, end in zip(begins, ends, strict=True)]
    known = [sum(map(sum, topics.values())) for topics in found if topics is not None]
    return sum(known) if len(known) == len(found) else None


def _offsets(file: Path) -> list[object]:
    """Behind a version and a line about the batch there is one for each source."""
    lines = file.read_text(encoding="utf-8").splitlines()[2:]
    return [None if line == "-" else json.loads(line) for line in lines]


def told_of_batches(batches: Iterable[tuple[BatchWatcher, KeptReason]]) -> tuple[LongBatch, ...]:
    """Those that are long, the longest first, each with why it would not be interrupted now whatever it is itself."""
    found = [(told, kept) for batch, kept in batches if (told := batch.now()) is not None]
    found.sort(key=lambda one: -one[0].ran_ms)
    return tuple(replace(told, kept=told.kept or kept) for told, kept in found[:BATCHES_TOLD])
