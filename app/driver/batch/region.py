"""One run of a region: its vertices as one Spark plan (or one per output), its results and its sinks written."""

from __future__ import annotations

import contextlib
import itertools
import re
import secrets
import shutil
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from app.driver.batch.results import (
    LostResult,
    are_alike,
    check_contents,
    check_result,
    forget_table,
    is_modulo,
    read_result,
    readable,
    views_dir,
    write_result,
)
from app.driver.batch.sources import Schemas
from app.driver.batch.storage import Storages
from app.driver.batch.tasks import GroupTasks
from app.driver.failures import DriverError, Failure, Fenced, describe
from app.driver.scala import scala_context
from app.driver.session import region_session
from app.driver.sinks.base import BatchRef
from app.driver.sinks.opening import open_sink
from app.driver.sources.opening import read_static
from app.driver.vertices import Functions, apply_operation, guarded
from app.model.batch import Read, RegionOrder, Result
from app.model.jobgraph import JobGraph, JobVertex, PythonSpec, SinkSpec
from app.model.resultsurl import below, is_local

# Spark's catalog is one for all runs of a process, a region may be planned twice, and a job may have a catalog that
# other processes use too.
_process = secrets.token_hex(4)
_table_numbers = itertools.count(1)

# Behind the keys of an exchange by hash.
_PARTITIONS = re.compile(r", (\d++)\)")
_PRUNED = re.compile(r"SelectedBucketsCount: (\d+) out of (\d+)")
_FILE_ERROR = re.compile(r"parquet|FAILED_READ_FILE|CANNOT_READ_FILE", re.IGNORECASE)


class _Canceled(Exception):
    """The run is not needed any more."""


@dataclass(frozen=True, slots=True)
class RegionDone:
    """A run has ended, and nothing of it writes any more. ``failure`` None: ``results`` are complete."""

    order: RegionOrder
    results: tuple[Result, ...] = ()
    failure: Failure | None = None
    lost: tuple[str, ...] = ()
    fenced: bool = False


@dataclass(eq=False)
class RegionRun:
    """Runs in a thread of its own; ``tell`` hears how it ended. ``session`` and ``work_dir`` are the attempt's."""

    order: RegionOrder
    graph: JobGraph
    session: SparkSession
    conf: dict[str, str]
    functions: Functions
    schemas: Schemas
    job_id: str
    storages: Storages
    results_dir: str
    work_dir: Path
    epoch: Callable[[], int]
    may_commit: Callable[[], None]
    tell: Callable[[RegionDone], None]

    def __post_init__(self) -> None:
        order = self.order = readable(self.order, self.results_dir)
        self._context = self.session.sparkContext
        self._views_dir = views_dir(self.results_dir, order.region, order.run)
        self._work_dir = self.work_dir / f"region-{order.region}-{order.run}"
        self._group = f"{self.job_id}/{order.region}/{order.run}"
        self._cached: list[DataFrame] = []
        self._tables: list[str] = []
        self._tasks: GroupTasks | None = None
        self._canceled = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self._group, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def cancel(self) -> None:
        """The run is not needed any more: end it soon, without further writes. It still reports its end."""
        self._canceled.set()
        with contextlib.suppress(Exception):
            scala_context(self._context).cancelJobGroupAndFutureJobs(self._group)

    def task_news(self) -> tuple[int, int] | None:
        """How many of its Spark tasks are done, and how many are known; None if nothing has changed.

        Raises:
            Exception: of any kind, if Spark cannot be asked.
        """
        if self._tasks is None:
            self._tasks = GroupTasks(self._context._jsc.statusTracker(), self._group)
        return self._tasks.news()

    @property
    def result_paths(self) -> set[str]:
        """Where its results are to be."""
        return {self._path(output.dataset) for output in self.order.outputs}

    @property
    def places(self) -> set[str]:
        """All that it writes below the directory of the results, until it has ended."""
        return {*self.result_paths, self._views_dir}

    def _path(self, dataset: str) -> str:
        return below(self.results_dir, dataset, str(self.order.run))

    # -- the thread

    def _run(self) -> None:
        done = RegionDone(self.order, failure=Failure("The run of a region ended without a word.", ""))
        try:
            names = ", ".join(self.graph.by_id[one].name for one in self.order.parallelism)
            self._context.setJobGroup(self._group, f"region {names}", interruptOnCancel=False)
            # Not of the run: Spark never forgets a pool.
            self._context.setLocalProperty("spark.scheduler.pool", f"{self.job_id}/{self.order.region}")
            done = RegionDone(self.order, self._execute(), failure=None)
        except Fenced:
            done = RegionDone(self.order, failure=None, fenced=True)
        except BaseException as error:
            done = self._failed(error)
        finally:
            for frame in self._cached:
                with contextlib.suppress(Exception):
                    frame.unpersist()
            for table in self._tables:
                with contextlib.suppress(Exception):
                    forget_table(self.session, table)
            shutil.rmtree(self._work_dir, ignore_errors=True)
            if is_local(self._views_dir):
                shutil.rmtree(self._views_dir, ignore_errors=True)
            self.tell(done)

    def _failed(self, error: BaseException) -> RegionDone:
        """A file that is missing fails as a task does: so whether an input is lost is looked up."""
        failure = describe(error, vertex=getattr(error, "vertex", None))
        # Only then is it worth reading all of it.
        check = check_contents if _FILE_ERROR.search(failure.stack) else check_result
        lost: list[str] = []
        sentence = None
        for read in self.order.reads:
            try:
                check(self.storages.of(read.result.path), read.result)
            except DriverError:
                # The file system cannot be asked: then it is not known, and the region fails as it did.
                continue
            except LostResult as gone:
                lost.append(gone.dataset)
                sentence = sentence or str(gone)
        if sentence is not None:
            failure = Failure(sentence, failure.stack, failure.vertex, recoverable=True)
        return RegionDone(self.order, failure=failure, lost=tuple(dict.fromkeys(lost)))

    def _execute(self) -> tuple[Result, ...]:
        order = self.order
        groups = {read.groups for read in order.reads if read.groups}
        free = {one for one in groups if not is_modulo(one)}
        partitions = max(order.parallelism.values())
        while partitions in {len(one) for one in free}:
            # So that a shuffle into as many partitions can only be one that is to meet the buckets.
            partitions += 1
        session = region_session(
            self.session,
            self.conf,
            splits=self._splits(),
            partitions=partitions,
            volume_bytes=order.volume_bytes,
            skew=order.skew,
        )
        # Freely chosen buckets are where Spark does not look for their rows. They are kept where it never will.
        by_bucket = not free or (are_alike(order.reads) and not self._has_python())
        frames = self._frames(session, by_bucket=by_bucket)
        if free and by_bucket and not self._keeps_buckets(frames, len(next(iter(free)))):
            frames = self._frames(session, by_bucket=False)
        results = []
        for output in order.outputs:
            self._go_on()
            frame = frames[output.producer]
            producer = self.graph.by_id[output.producer]
            place = self._path(output.dataset)
            try:
                results.append(
                    write_result(
                        self.storages.of(place), frame, output, place, order.run, table=_free_table("w")
                    )
                )
            except DriverError as error:
                sentence = f"Vertex {producer.name}: {error}"
                raise DriverError(sentence, vertex=producer.name, recoverable=error.recoverable) from error
        for vertex_id in order.parallelism:
            vertex = self.graph.by_id[vertex_id]
            if vertex.is_sink:
                self._write_sink(vertex, frames)
        self._go_on()
        return tuple(results)

    def _splits(self) -> int:
        """How many tasks read files that Spark divides as it likes."""
        order = self.order
        readers = [read.vertex_id for read in order.reads if not read.groups]
        readers += [one for one in order.parallelism if self.graph.by_id[one].is_source]
        return max((order.parallelism[one] for one in readers), default=1)

    def _go_on(self) -> None:
        """Called before anything is written or becomes visible.

        Raises:
            Fenced: a newer owner or attempt exists.
        """
        if self._canceled.is_set():
            raise _Canceled
        self.may_commit()

    def _write_sink(self, vertex: JobVertex, frames: dict[str, DataFrame]) -> None:
        sink = open_sink(vertex, work_dir=self._work_dir, functions=self.functions)
        self._work_dir.mkdir(parents=True, exist_ok=True)
        sink.prepare()
        # One batch for the whole job: a run that is repeated has the same id, and writes nothing twice.
        batch = BatchRef(f"{self.job_id}-{vertex.id}", 0, self.epoch())
        try:
            sink.write(self._narrowed(vertex, frames[vertex.inputs[0].vertex_id]), batch, self._go_on)
        except (DriverError, Fenced, _Canceled):
            raise
        except Exception as error:
            # All vertices of the region run within the sink's action: which one failed is in the message.
            raise DriverError.of(describe(error)) from error

    # -- the plan

    def _frames(self, session: SparkSession, *, by_bucket: bool = True) -> dict[str, DataFrame]:
        """Every vertex of the region but its sinks, and every result that it reads, by vertex id."""
        order = self.order
        reads = {(read.vertex_id, read.producer): read for read in order.reads}
        uses = Counter(output.producer for output in order.outputs)
        uses.update(edge.vertex_id for one in order.parallelism for edge in self.graph.by_id[one].inputs)
        frames: dict[str, DataFrame] = {}
        for vertex_id in order.parallelism:
            vertex = self.graph.by_id[vertex_id]
            inputs = {
                edge.vertex_id: self._read(session, reads[vertex_id, edge.vertex_id], by_bucket=by_bucket)
                for edge in vertex.inputs
                if (vertex_id, edge.vertex_id) in reads
            }
            frames.update(inputs)
            if vertex.is_sink:
                continue
            if vertex.is_source:
                schema = self.schemas.schema(vertex)
                frame = guarded(vertex, partial(read_static, session, vertex, schema))
            else:
                frame = guarded(
                    vertex, partial(apply_operation, session, vertex, {**frames, **inputs}, self.functions)
                )
            if uses[vertex_id] > 1 and not vertex.is_source:
                # Written twice, it would be computed twice, and might even be other rows.
                frame = frame.persist()
                self._cached.append(frame)
            frames[vertex_id] = self._narrowed(vertex, frame)
        return frames

    def _narrowed(self, vertex: JobVertex, frame: DataFrame) -> DataFrame:
        """``frame`` with no more tasks at its end than ``vertex`` may have, if others of the region may have more.

        One that reads its own subpartitions has as many tasks as those, and loses what Spark knows of their keys if it
        is told so again.
        """
        order = self.order
        own = order.parallelism[vertex.id]
        most = self._splits() if vertex.is_source else max(order.parallelism.values())
        divided = any(read.vertex_id == vertex.id and read.groups for read in order.reads)
        return frame.coalesce(own) if own < most and not divided else frame

    def _read(self, session: SparkSession, read: Read, *, by_bucket: bool) -> DataFrame:
        order = self.order
        name = f"{read.vertex_id}_{read.result.dataset}".replace("-", "_")
        if not by_bucket and read.groups and not is_modulo(read.groups):
            read = Read(read.vertex_id, read.producer, read.result)
        table = _free_table("r")
        if read.groups:
            self._tables.append(table)
        return read_result(
            self.storages.of(read.result.path),
            session,
            read,
            order.parallelism[read.vertex_id],
            below(self._views_dir, name),
            table=table,
        )

    def _has_python(self) -> bool:
        """Whether a function of the user sees the frames: it may join or run them by itself."""
        for vertex_id in self.order.parallelism:
            operation = self.graph.by_id[vertex_id].operation
            if isinstance(operation, PythonSpec) or (isinstance(operation, SinkSpec) and operation.python):
                return True
        return False

    def _keeps_buckets(self, frames: dict[str, DataFrame], count: int) -> bool:
        """Whether Spark leaves ``count`` buckets as they are: it brings no rows to meet them by their hash, and leaves
        none out because of it."""
        tops = {output.producer for output in self.order.outputs}
        for vertex_id in self.order.parallelism:
            vertex = self.graph.by_id[vertex_id]
            if vertex.is_sink:
                tops.update(edge.vertex_id for edge in vertex.inputs)
        text = "\n".join(frames[top]._jdf.queryExecution().executedPlan().toString() for top in tops)
        exchanges = [line.partition("Exchange hashpartitioning(")[2] for line in text.splitlines()]
        shuffled = {int(found[-1]) for each in exchanges if (found := _PARTITIONS.findall(each))}
        return count not in shuffled and all(some == every for some, every in _PRUNED.findall(text))


def _free_table(kind: str) -> str:
    return f"slotwise_{kind}_{_process}_{next(_table_numbers)}"
