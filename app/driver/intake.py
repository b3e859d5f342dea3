"""The valves of intake: how much each source of a running query gives to its next batch.

A job that falls behind has batches that grow: each takes all that has come during the one before. A rescale in place
waits for the end of a batch, so help would come the later, the more it is needed. Spark has no back-pressure for
streaming queries; it asks each source before a batch for what a `ReadLimit` allows. So once batches get long, that of
each source is set to what the query can work off in about the time that a batch should take; never beyond what the
program itself allows. The limits are in a field of Spark's (`intake.java`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from pyspark import SparkContext

from app.driver.progress import IntakeLimit, measured
from app.driver.scala import class_loader, made

DEFAULT_TARGET_MS: Final = 10_000
INTAKE_NOTE: Final = "slotwise-intake"
"""In the directory of a query: the limits of its sources."""
_LONG: Final = 0.25
"""A batch that takes less than this part of the target is short: most of it is Spark's own time for each batch, which
says nothing of the rows that would fill the target."""
_GROWTH: Final = 4
"""By this the limit of short batches grows that leave something behind."""
_FULL: Final = 0.9
"""A batch with at least this part of its limit has left something behind."""
_QUIET_BATCHES: Final = 3
"""After so many short batches in a row that leave nothing behind there are no limits any more. One alone says little:
Spark may have given a batch the rest of the files that it had listed, before it lists those that have come since."""
_CLOSE: Final = 0.1
"""A limit that would change by less stays."""
_FIRST: Final = 0.3
"""So much of the target is that of the first batch at other numbers of tasks, which are in force when it is
committed."""
_INTERVALS: Final = 1.25
"""Where batches begin at an interval, the target is at least this many: after a shorter batch nothing would be done
until the next one."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What a source has given to a batch, in ``unit``: files or rows. ``count`` None: it is not known, but no more than
    its limit. ``own``: the most that the program allows."""

    unit: str
    count: int | None
    own: int | None


def is_full(taken: Taken, limit: int) -> bool:
    """Whether the batch may have left something behind, as far as it is known."""
    return taken.count is None or taken.count >= _FULL * limit


def next_limit(taken: Taken, limit: int | None, took_ms: float, target_ms: float) -> int | None:
    """The limit of the batch after one that had ``limit`` and took ``took_ms``; None: that of the program."""
    # What a sink reads twice, Spark has counted twice.
    count = min([one for one in (taken.count, limit or taken.own) if one is not None], default=0)
    if not count:
        return limit
    if took_ms >= _LONG * target_ms:
        wanted = max(1, round(count * target_ms / took_ms))
    elif limit is not None and is_full(taken, limit):
        wanted = _GROWTH * limit
    else:
        return limit
    if taken.own is not None and wanted >= taken.own:
        return None
    if limit is not None and abs(wanted - limit) <= _CLOSE * limit:
        return limit
    return wanted


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
        self._keeps_time = False
        self._quiet_batches = 0
        self._execution: Any = None
        self._java: Any = None
        # By the place of the source. The thread of the attempt reads it: it is never changed in place.
        self._limits: Mapping[int, IntakeLimit] = {}

    def begin(self, execution: Any) -> None:
        """In the thread of the query, which is ``execution`` in Spark: nothing of it is planned."""
        self._execution = execution
        if not self._is_off and self._note.exists():
            measured("the intake of a query that begins", self._begin, None)

    def _begin(self) -> None:
        known = [IntakeLimit(*each) for each in json.loads(self._note.read_text(encoding="utf-8"))]
        self._open()
        told = self._taken()
        if len(told) != len(known):
            # Those of another version of the job.
            return
        limits = {}
        for place, (taken, limit) in enumerate(zip(told, known, strict=True)):
            is_lower = taken is not None and (taken.own is None or (limit.most or 0) < taken.own)
            if (
                taken is not None
                and limit.most
                and taken.unit == limit.unit
                and is_lower
                and not self._keeps_time
            ):
                self._java.limit(place, limit.most)
                limits[place] = limit
        self._limits = limits

    def limit_of(self, place: int) -> IntakeLimit:
        """That of the source at ``place`` in the order of Spark's plan, in batches that are planned from now on."""
        return self._limits.get(place, IntakeLimit())

    def batch_ended(self, took_ms: float, *, is_changing: bool = False) -> None:
        """In the thread of the query: the sink has a batch, which took so long, and the next one is not planned yet.
        ``is_changing``: that will be the first with other numbers of tasks."""
        if self._is_off or (not self._limits and took_ms < _LONG * self._target_ms):
            return
        measured("the intake of sources", partial(self._adjust, took_ms, is_changing), None)

    def _adjust(self, took_ms: float, is_changing: bool) -> None:
        if self._java is None:
            self._open()
        limits = {}
        told = self._taken()
        self._quiet_batches = self._quiet_batches + 1 if self._is_quiet(told, took_ms) else 0
        for place, taken in enumerate(told):
            before = self.limit_of(place).most
            is_over = self._quiet_batches >= _QUIET_BATCHES
            limit = IntakeLimit() if is_over else self._next(taken, before, took_ms, is_changing)
            if limit.most != before:
                self._java.limit(place, -1 if limit.most is None else limit.most)
            if limit != IntakeLimit():
                limits[place] = limit
        if limits != self._limits:
            self._limits = limits
            self._write([self.limit_of(place) for place in range(len(told))])

    def _write(self, limits: Sequence[IntakeLimit]) -> None:
        if any(one.most for one in limits):
            self._note.write_text(json.dumps([(one.unit, one.most) for one in limits]), encoding="utf-8")
        else:
            self._note.unlink(missing_ok=True)

    def _is_quiet(self, told: Sequence[Taken | None], took_ms: float) -> bool:
        """Whether a batch was short, and has left nothing behind."""
        return took_ms < _LONG * self._target_ms and not any(
            taken is not None and (most := self.limit_of(place).most) is not None and is_full(taken, most)
            for place, taken in enumerate(told)
        )

    def _next(
        self, taken: Taken | None, before: int | None, took_ms: float, is_changing: bool
    ) -> IntakeLimit:
        if taken is not None and not self._keeps_time:
            target_ms = self._target_ms * (_FIRST if is_changing else 1)
            most = next_limit(taken, before, took_ms, target_ms)
            return IntakeLimit() if most is None else IntakeLimit(taken.unit, most)
        if took_ms <= self._target_ms:
            return IntakeLimit()
        return IntakeLimit(why="keeps-time" if self._keeps_time else "no-admission-control")

    def _open(self) -> None:
        java = self._make(self._execution)
        # Smaller batches move a watermark earlier: rows could be too late that one large batch would keep.
        self._keeps_time = not self._is_asked_for and bool(java.keepsTime())
        self._target_ms = max(self._target_ms, _INTERVALS * java.intervalMs())
        self._java = java

    def _taken(self) -> Sequence[Taken | None]:
        def known(number: int) -> int | None:
            return number if number >= 0 else None

        told = json.loads(self._java.taken())
        return [Taken(each[0], known(each[1]), known(each[2])) if each else None for each in told]
