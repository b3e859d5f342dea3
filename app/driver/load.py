"""Figures that Spark has of batches and executors, read by Java of ours (`load.java`): many of them in one call.

They are for people and autoscalers. Where a version of Spark does not have them, a job runs without.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

from pyspark import SparkContext

from app.driver.file_backlog import Waiting
from app.driver.progress import measured
from app.driver.scala import class_loader, made, scala_context
from app.driver.valves.operators import METRICS, Operator, tree_of
from app.driver.valves.query_valves import Rows
from app.model.measured import ExecutorLoad, LongBatch

_EVERY_S: Final = 5.0
_LATEST_JOBS: Final = 32


class StageTasks(NamedTuple):
    """What the tasks of a stage did that have succeeded, by their number."""

    run_ms: Sequence[int] = ()
    records_read: Sequence[int] = ()
    records_written: Sequence[int] = ()
    bytes_read: Sequence[int] = ()
    bytes_written: Sequence[int] = ()


_NO_TASKS: Final = StageTasks()


@dataclass(frozen=True, slots=True)
class Stage:
    """What Spark reports of a stage that has run. ``rdd_ids``: the RDDs that its tasks went through. ``by_task`` is
    empty if tasks were not noted."""

    stage_id: int
    tasks: int
    busy_ms: int
    rdd_ids: frozenset[int]
    shuffle_read_records: int = 0
    shuffle_write_records: int = 0
    written_records: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    by_task: StageTasks = _NO_TASKS


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
        self._making = threading.Lock()

    def begin(self) -> None:
        """Note what tasks do from now on, as soon as Java of ours is compiled: this does not wait for it."""
        if self.in_full:
            threading.Thread(
                target=measured, args=("tasks", self._compiled, None), name="load", daemon=True
            ).start()

    def stages(self, run_id: str, batch_id: int) -> list[Stage]:
        """The stages that were run for a batch, in the order of their ids; without those that Spark has forgotten.

        They are those of several jobs: what wrote the batch, before it broadcasts of side tables and what looks at rows
        to put them in order. This waits for the end of jobs, so it is not for the thread that runs batches.
        """
        text = self._ask(lambda java: java.stages(run_id, batch_id))
        return [
            Stage(number, tasks, busy_ms, frozenset(rdd_ids), *[*figures, StageTasks(*columns)])
            for number, tasks, busy_ms, rdd_ids, *figures, columns in text
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

    def tasks(self, run_id: str, batch_id: int) -> tuple[int, int]:
        """How many tasks of a batch are done, and how many are known so far; 0 of 0 if Spark does not tell."""
        done, known = self._ask(lambda java: java.tasks(run_id, batch_id), "the tasks of a batch") or (0, 0)
        return int(done), int(known)

    def cancel(self, run_id: str, why: str) -> None:
        """Cancel all that runs for the query. It ends with an error that has ``why`` in its text."""
        scala_context(self._context).cancelJobGroup(run_id, why)

    def executors(self) -> tuple[ExecutorLoad, ...]:
        return tuple(ExecutorLoad(*each) for each in self._ask(lambda java: java.executors()))

    def _ask(self, call: Callable[[Any], str], what: str = "some figures of the load") -> list[Any]:
        def read() -> list[Any]:
            found: list[Any] = json.loads(call(self._compiled()))
            return found

        return measured(what, read, [])

    def _compiled(self) -> Any:
        with self._making:
            if self._java is None:
                self._java = _made(self._context, self.in_full)
            return self._java


def _made(context: SparkContext, with_tasks: bool) -> Any:
    """A ``Load`` of `load.java`."""
    jvm: Any = context._jvm
    loader = class_loader(jvm, "load.java", "org.apache.spark.SparkContext")
    return made(jvm, loader.loadClass("slotwise.Load"), scala_context(context), with_tasks)


class LoadNews:
    """Tells the control plane of executors, of queries without data and of batches that take long: every few seconds,
    with a batch or else by itself. ``figures`` None: nothing is read of executors. For the attempt's own thread."""

    def __init__(
        self,
        figures: SparkFigures | None,
        report: Callable[..., None],
        *,
        idle: Callable[[], tuple[str, ...]],
        long_batches: Callable[[], tuple[LongBatch, ...]],
    ) -> None:
        self._figures = figures
        self._report = report
        self._idle = idle
        self._long_batches = long_batches
        self._told_at = time.monotonic() - _EVERY_S

    def figures(self) -> dict[str, Any]:
        """The fields of a report that are due."""
        if time.monotonic() - self._told_at < _EVERY_S:
            return {}
        self._told_at = time.monotonic()
        loads: tuple[ExecutorLoad, ...] = ()
        if self._figures is not None:
            loads = measured("the load of executors", self._figures.executors, loads)
        long: tuple[LongBatch, ...] = ()
        long = measured("the batches that take long", self._long_batches, long)
        return {"executor_loads": loads, "idle_queries": self._idle(), "long_batches": long}

    def turn(self, known: Mapping[str, Any]) -> None:
        """Tell what is due, and what is ``known`` of executors, which an older report may have said that this one
        takes the place of."""
        if fields := self.figures():
            self._report(type="executors", **fields, **known)
