"""Figures that Spark has of batches, operators and executors, read by Java of ours (`load.java`): many in one call. And
what waits at sources of files.

The physical plan of a batch is a tree of plain values. Spark counts rows at some operators only. The others give as
many as they get, or nobody knows.

Spark tells nobody how many files it has not read, so we look ourselves. How many records they have is estimated: as
many for each byte as the files of the batches before.

All are for people and autoscalers. Where a version of Spark does not have them, a job runs without.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

from pyspark import SparkContext

from app.driver.progress import SourceTold, measured
from app.driver.scala import class_loader, made, scala_context
from app.driver.valves.query_valves import Rows
from app.model.protocol import ExecutorLoad

_EVERY_S: Final = 5.0
_LATEST_JOBS: Final = 32

_REST: Final = 20
"""A look at directories may take long: for so many times as long there is no other. Until then what batches have read
is taken off what the last one has found."""
_FADES: Final = 0.9
"""What was learned of records per byte counts by so much less with each batch."""

METRICS: Final = (
    "numOutputRows", "pythonNumRowsReceived", "shuffleRecordsWritten", "pythonProcessingTime",
    "pythonTotalTime", "allUpdatesTimeMs", "allRemovalsTimeMs", "commitTimeMs",
)  # fmt: skip
"""Those of Spark's metrics of an operator that are read."""

_ROWS: Final = ("numOutputRows", "pythonNumRowsReceived", "shuffleRecordsWritten")
_AS_MANY: Final = frozenset(
    {
        "AppendColumns", "AppendColumnsWithObject", "ArrowEvalPython", "ArrowWindowPython", "BatchEvalPython",
        "Coalesce", "CollectMetrics", "DeserializeToObject", "EventTimeWatermark", "InputAdapter",
        "MapElements", "Project", "ReusedExchange", "RowToColumnar", "SerializeFromObject", "ShuffleExchange",
        "Sort", "WholeStageCodegen", "Window", "WindowInPandas",
    }
)  # fmt: skip
"""Operators that give a row for each that they get."""

_FRAMES: Final = frozenset({"Coalesce", "InputAdapter", "WholeStageCodegen"})
"""They do nothing with a row."""

_EXCHANGES: Final = frozenset({"BroadcastExchange", "ShuffleExchange"})


@dataclass(eq=False, slots=True)
class Operator:
    """``valve``: which one it is. ``keeps_state``: Spark tells of the state of each such operator, in the order of
    `tree_of`. ``figures``: those of `METRICS` that it has."""

    kind: str
    keeps_state: bool
    figures: Mapping[str, int]
    valve: Rows | None = None
    children: list[Operator] = field(default_factory=list)
    parent: Operator | None = None

    @property
    def begins_stage(self) -> bool:
        """Whether what is below it runs in other stages."""
        return self.kind in _EXCHANGES

    @property
    def works(self) -> bool:
        return self.kind not in _FRAMES

    @property
    def timed_ms(self) -> int:
        """How long it took by a metric of its own; 0 without one."""
        of = self.figures
        python_ms = of.get("pythonProcessingTime") or of.get("pythonTotalTime", 0)
        return (
            python_ms
            + of.get("allUpdatesTimeMs", 0)
            + of.get("allRemovalsTimeMs", 0)
            + of.get("commitTimeMs", 0)
        )

    @property
    def rows(self) -> int | None:
        """How many rows it produced; None if Spark has not counted them."""
        for name in _ROWS:
            if name in self.figures:
                return self.figures[name]
        if self.kind == "Union":
            return total(child.rows for child in self.children)
        if self.kind in _AS_MANY and len(self.children) == 1:
            return self.children[0].rows
        return None

    @property
    def vertex_id(self) -> str:
        """That of what ends a part of the plan next above: where a vertex keeps state, its own."""
        valves = (node.valve for node in self.above if node.valve is not None and not node.valve.is_front)
        return next((valve.vertex_id for valve in valves), "")

    @property
    def above(self) -> Iterator[Operator]:
        """Those that its rows go to, the nearest first."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent


def total(numbers: Iterator[int | None]) -> int | None:
    """Their sum; None if one of them is not known, or there are none."""
    found = list(numbers)
    known = [each for each in found if each is not None]
    return sum(known) if found and len(known) == len(found) else None


def tree_of(listed: Iterable[Sequence[Any]], rows: Mapping[int, Rows]) -> list[Operator]:
    """The operators of a plan, each before those that it gets rows from.

    ``listed``: as `Load.operators` of `load.java` answers: kind, number of children, RDD, whether it keeps state, and
    figures. ``rows``: the valves of the plan, by the id of their RDD.
    """
    found: list[Operator] = []
    waiting: list[Operator | None] = [None]
    for kind, children, rdd_id, keeps_state, figures in listed:
        parent = waiting.pop()
        made = Operator(kind.removesuffix("Exec"), keeps_state, figures, rows.get(rdd_id), [], parent)
        found.append(made)
        if parent is not None:
            parent.children.append(made)
        waiting += [made] * children
    return found


def below(node: Operator) -> Iterator[Operator]:
    """``node`` and all that it gets rows from."""
    yield node
    for child in node.children:
        yield from below(child)


class Waiting(NamedTuple):
    """``read_bytes``: of the files of the batch; None if some are not known."""

    files: int
    size_bytes: int
    read_bytes: int | None


Find = Callable[[int, int, int, bool], Waiting | None]
"""At the source in this place, for a batch behind and up to these numbers of its log; by a look or without. None: it
cannot be found."""


@dataclass(slots=True)
class _Source:
    """``rest_until_s``: without a look; None if nothing is known. ``known_rows``, ``known_bytes``: what was read."""

    after: int
    rest_until_s: float | None = None
    known_rows: float = 0.0
    known_bytes: float = 0.0

    def find(self, find: Find, place: int, end: int, rows: int) -> Waiting | None:
        began_s = time.monotonic()
        look = self.rest_until_s is None or began_s >= self.rest_until_s
        found = find(place, self.after, end, look)
        self.after = end
        if found is None:
            self.rest_until_s = None
            return None
        if look:
            ended_s = time.monotonic()
            self.rest_until_s = ended_s + _REST * (ended_s - began_s)
        if found.read_bytes:
            self.known_rows = _FADES * self.known_rows + rows
            self.known_bytes = _FADES * self.known_bytes + found.read_bytes
        return found

    def rows_in(self, waiting: Waiting) -> int | None:
        if waiting.files == 0:
            return 0
        return round(waiting.size_bytes * self.known_rows / self.known_bytes) if self.known_bytes else None


class FileBacklog:
    """That of one run of a query. For the thread of its attempt."""

    def __init__(self, find: Find) -> None:
        self._find = find
        self._sources: dict[int, _Source] = {}

    def told(self, sources: tuple[SourceTold, ...]) -> tuple[SourceTold, ...]:
        """``sources`` of a batch in the order of Spark's plan, with what waits in files."""
        return tuple(self._with_files(place, each) for place, each in enumerate(sources))

    def _with_files(self, place: int, told: SourceTold) -> SourceTold:
        if told.log is None:
            return told
        before, end = told.log
        source = self._sources.setdefault(place, _Source(before))
        waiting = source.find(self._find, place, end, told.rows)
        if waiting is None:
            return told
        return replace(
            told, waiting=source.rows_in(waiting), files=waiting.files, size_bytes=waiting.size_bytes
        )


@dataclass(frozen=True, slots=True)
class Stage:
    """What Spark reports of a stage that has run. ``rdd_ids``: the RDDs that its tasks went through. Task times are
    None if they were not read."""

    stage_id: int
    tasks: int
    busy_ms: int
    rdd_ids: frozenset[int]
    shuffle_read_records: int = 0
    shuffle_write_records: int = 0
    written_records: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    median_task_ms: int | None = None
    longest_task_ms: int | None = None


@lru_cache(maxsize=1)
def spark_figures(context: SparkContext, *, in_full: bool) -> SparkFigures:
    """Those of ``context``. A process has one SparkContext at a time."""
    return SparkFigures(context, in_full=in_full)


class SparkFigures:
    """Those of one SparkContext. ``in_full``: also what costs something to read: operators, tasks, executors."""

    def __init__(self, context: SparkContext, *, in_full: bool = True) -> None:
        self.in_full = in_full
        self._context = context
        self._java: Any = None

    def stages(self, run_id: str, batch_id: int) -> list[Stage]:
        """The stages that were run for a batch, in the order of their ids; without those that Spark has forgotten.

        They are those of several jobs: what wrote the batch, before it broadcasts of side tables and what looks at rows
        to put them in order. This waits for the end of jobs, so it is not for the thread that runs batches.
        """
        text = self._ask(lambda java: java.stages(run_id, batch_id, self.in_full))
        return [
            Stage(number, tasks, busy, frozenset(rdds), *more) for number, tasks, busy, rdds, *more in text
        ]

    def operators(self, planned: Any, rows: Iterable[Rows]) -> list[Operator]:
        """Those of the plan of a batch that has run, with its valves ``rows``."""
        if not self.in_full or planned is None:
            return []
        listed = self._ask(lambda java: java.operators(planned, ",".join(METRICS)))
        return tree_of(listed, {valve.rdd_id: valve for valve in rows})

    def waiting_files(self, execution: Any, place: int, after: int, end: int, look: bool) -> Waiting | None:
        """See `FileBacklog`; ``execution`` is the query's."""
        if not self.in_full:
            return None
        found = self._ask(
            lambda java: java.waitingFiles(execution, place, after, end, look), "files that wait"
        )
        if not found:
            return None
        files, size_bytes, read_bytes = found
        return Waiting(files, size_bytes, read_bytes if read_bytes >= 0 else None)

    def has_active_tasks(self, run_id: str) -> bool:
        """Whether a task of the query still runs. Those of a stage that has failed may take a while to end."""
        tracker = scala_context(self._context).statusTracker()
        for job_id in sorted(map(int, tracker.getJobIdsForGroup(run_id)), reverse=True)[:_LATEST_JOBS]:
            job = tracker.getJobInfo(job_id)
            if job.isEmpty():
                continue
            if job.get().status().toString() == "RUNNING":
                # What the tracker says comes late: of a job that has ended it knows which of its tasks have.
                return True
            for stage_id in job.get().stageIds():
                stage = tracker.getStageInfo(stage_id)
                if not stage.isEmpty() and int(stage.get().numActiveTasks()) > 0:
                    return True
        return False

    def executors(self) -> tuple[ExecutorLoad, ...]:
        return tuple(ExecutorLoad(*each) for each in self._ask(lambda java: java.executors()))

    def _ask(self, call: Callable[[Any], str], what: str = "some figures of the load") -> list[Any]:
        def read() -> list[Any]:
            if self._java is None:
                self._java = _made(self._context)
            found: list[Any] = json.loads(call(self._java))
            return found

        return measured(what, read, [])


def _made(context: SparkContext) -> Any:
    """A ``Load`` of `load.java`."""
    jvm: Any = context._jvm
    loader = class_loader(jvm, "load.java", "org.apache.spark.SparkContext")
    return made(jvm, loader.loadClass("slotwise.Load"), scala_context(context))


class LoadNews:
    """Tells the control plane of executors and of queries without data: every few seconds, with a batch or else by
    itself. ``figures`` None: nothing is read of executors. For the attempt's own thread."""

    def __init__(
        self, figures: SparkFigures | None, report: Callable[..., None], idle: Callable[[], tuple[str, ...]]
    ) -> None:
        self._figures = figures
        self._report = report
        self._idle = idle
        self._told_at = time.monotonic() - _EVERY_S

    def figures(self) -> dict[str, Any]:
        """The fields of a report that are due."""
        if time.monotonic() - self._told_at < _EVERY_S:
            return {}
        self._told_at = time.monotonic()
        loads: tuple[ExecutorLoad, ...] = ()
        if self._figures is not None:
            loads = measured("the load of executors", self._figures.executors, loads)
        return {"executor_loads": loads, "idle_queries": self._idle()}

    def turn(self, known: Mapping[str, Any]) -> None:
        """Tell what is due, and what is ``known`` of executors, which an older report may have said that this one
        takes the place of."""
        if fields := self.figures():
            self._report(type="executors", **fields, **known)
