"""The valves of intake: how much each source of a running query gives to its next batch.

A job that falls behind has batches that grow: each takes all that has come during the one before. A rescale in place
waits for the end of a batch, so help would come the later, the more it is needed. Spark has no back-pressure for
streaming queries; it asks each source before a batch for what a `ReadLimit` allows. So once batches get long, that of
each source is set to what the query can work off in about the time that a batch should take; never beyond what the
program itself allows. The limits are in a field of Spark's (`intake.java`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from pyspark import SparkContext

from app.driver.intake_limits import Aim, SourceLimit, Taken
from app.driver.progress import IntakeLimit, measured
from app.driver.scala import class_loader, made

DEFAULT_TARGET_MS: Final = 10_000
INTAKE_NOTE: Final = "slotwise-intake"
"""In the directory of a query: the limits of its sources."""
_FIRST: Final = 0.3
"""So much of the target is that of the first batch at other numbers of tasks, which are in force when it is
committed."""
_INTERVALS: Final = 1.25
"""Where batches begin at an interval, the target is at least this many: after a shorter batch nothing would be done
until the next one."""
_GROWTH: Final = 4.0
_GROWTH_AT_INTERVALS: Final = 100.0
"""There a limit that is too low costs an interval each time."""
_QUIET: Final = 0.25
_QUIET_BATCHES: Final = 3
"""After so many batches in a row that take less than this part of the target and leave nothing behind there are no
limits any more. One alone says little: Spark may have given a batch the rest of the files that it had listed, before it
lists those that have come since."""


def java_intake(execution: Any) -> Any:
    """An ``Intake`` of `intake.java`, of the query that is ``execution`` in Spark."""
    jvm: Any = SparkContext._jvm
    loader = class_loader(jvm, "intake.java", "org.apache.spark.SparkContext")
    return made(jvm, loader.loadClass("slotwise.Intake"), execution)


class Intake:
    """The limits of the sources of one run of a query. A note in the directory of the query hands them to its next run,
    which would have all that waits in its first batch."""

    def __init__(
        self,
        note: Path,
        *,
        target_ms: int | None,
        may_limit: bool = True,
        make: Callable[[Any], Any] = java_intake,
    ) -> None:
        """``target_ms``: how long a batch should take, 0: that does not matter; None: the job does not say.
        ``may_limit``: False of a trigger that makes one batch of all there is. ``make``: of Spark's execution."""
        self._note = note
        self._target_ms: float = DEFAULT_TARGET_MS if target_ms is None else target_ms
        self._is_asked_for = target_ms is not None
        self._is_off = not may_limit or not self._target_ms
        self._make = make
        self._growth = _GROWTH
        self._keeps_time = False
        self._quiet_batches = 0
        self._execution: Any = None
        self._java: Any = None
        self._sources: list[str] = []
        # What the note says, if this run has written it.
        self._noted = ""
        self._limits: list[SourceLimit] = []
        # What is told of each source. The thread of the attempt reads it: it is never changed in place.
        self._told: Sequence[IntakeLimit] = ()

    def limit_of(self, place: int) -> IntakeLimit:
        """Of the source at ``place`` in the order of Spark's plan, if the last batch has left something behind, or
        took too long."""
        told = self._told
        return told[place] if place < len(told) else IntakeLimit()

    # -- in the thread of the query

    def begin(self, execution: Any) -> None:
        """The query is ``execution`` in Spark, and nothing of it is planned."""
        self._execution = execution
        if self._is_off:
            self._note.unlink(missing_ok=True)
        elif self._note.exists():
            measured("the intake of a query that begins", self._begin, None)

    def _begin(self) -> None:
        known = json.loads(self._note.read_text(encoding="utf-8"))
        self._open()
        if self._keeps_time or known["sources"] != self._sources:
            # Those of another version of the job.
            self._note.unlink()
            return
        for place, (most, taken) in enumerate(zip(known["limits"], self._taken(), strict=True)):
            if taken is not None and taken.unit and most and (taken.own is None or most < taken.own):
                self._set(place, SourceLimit(most))

    def batch_ended(
        self,
        took_ms: float,
        *,
        tasks: Callable[[], Sequence[int]] = tuple,
        is_changing: bool = False,
    ) -> None:
        """The sink has a batch, which took so long, and the next one is not planned yet. ``tasks``: of the sources, in
        the order of the plan. ``is_changing``: that will be the first with other numbers of tasks."""
        if self._is_off or (not self._limits and took_ms <= self._target_ms):
            self._told = ()
            return
        measured("the intake of sources", partial(self._adjust, took_ms, tasks, is_changing), None)

    def _adjust(self, took_ms: float, tasks_of: Callable[[], Sequence[int]], is_changing: bool) -> None:
        if self._java is None:
            self._open()
        known, tasks = self._taken(), tasks_of()
        limits = [*self._limits, *[SourceLimit() for _ in known[len(self._limits) :]]]
        for place, (limit, taken) in enumerate(zip(limits, known, strict=True)):
            if taken is None or not taken.unit or self._keeps_time:
                continue
            if taken.count is None and len(known) > 1:
                # It may have had no part in the batch.
                continue
            before = limit.most
            part = _FIRST if is_changing and before is not None else 1
            aim = Aim(part * self._target_ms, self._growth, tasks[place] if place < len(tasks) else 1)
            limit.note(taken, took_ms, aim)
            if limit.most != before:
                self._set(place, limit)
            if is_changing:
                limit.forget_point()
        self._end_if_quiet(limits, took_ms)
        self._told = [
            self._telling(limit, taken, took_ms) for limit, taken in zip(limits, known, strict=True)
        ]
        self._write(known)

    def _set(self, place: int, limit: SourceLimit) -> None:
        self._java.limit(place, -1 if limit.most is None else limit.most)
        while len(self._limits) <= place:
            self._limits.append(SourceLimit())
        self._limits[place] = limit

    def _end_if_quiet(self, limits: Sequence[SourceLimit], took_ms: float) -> None:
        is_quiet = took_ms < _QUIET * self._target_ms and not any(one.is_full for one in limits)
        self._quiet_batches = self._quiet_batches + 1 if is_quiet else 0
        if self._quiet_batches < _QUIET_BATCHES:
            return
        for place, limit in enumerate(self._limits):
            if limit.most is not None:
                self._set(place, SourceLimit())
        self._limits = []

    def _telling(self, limit: SourceLimit, taken: Taken | None, took_ms: float) -> IntakeLimit:
        if limit.most is not None and (limit.is_full or took_ms > self._target_ms):
            return IntakeLimit("" if taken is None else taken.unit, limit.most)
        if limit.most is not None or took_ms <= self._target_ms:
            return IntakeLimit()
        if self._keeps_time:
            return IntakeLimit(why="keeps-time")
        if taken is None:
            return IntakeLimit(why="no-admission-control")
        return IntakeLimit() if taken.unit else IntakeLimit(why="own-limit")

    def _write(self, known: Sequence[Taken | None]) -> None:
        limits = [one.most for one in self._limits] + [None] * (len(known) - len(self._limits))
        if not any(limits):
            self._note.unlink(missing_ok=True)
            self._noted = ""
            return
        text = json.dumps({"sources": self._sources, "limits": limits})
        if text != self._noted:
            self._note.write_text(text, encoding="utf-8")
            self._noted = text

    def _open(self) -> None:
        java = self._make(self._execution)
        # Smaller batches move a watermark earlier: rows could be too late that one large batch would keep.
        self._keeps_time = not self._is_asked_for and bool(java.keepsTime())
        if interval_ms := java.intervalMs():
            self._target_ms = max(self._target_ms, _INTERVALS * interval_ms)
            self._growth = _GROWTH_AT_INTERVALS
        self._sources = json.loads(java.names())
        self._java = java

    def _taken(self) -> list[Taken | None]:
        """Of each source; None: Spark cannot tell it how much to give. Without a unit: its options say how much."""
        told = json.loads(self._java.taken())
        rows = [each[4] if each else -1 for each in told]
        total = sum(rows) if min(rows, default=-1) >= 0 else 0

        def known(number: int) -> int | None:
            return number if number >= 0 else None

        return [
            Taken(each[0], known(each[1]), known(each[2]), each[3], each[4] / total if total else None)
            if each
            else None
            for each in told
        ]
