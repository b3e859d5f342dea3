"""The first tasks of a new executor, before a query has one there.

An executor that has just started loads its classes and starts its Python with its first tasks, which takes seconds. If
these are the query's, its batch takes as long. So its first task does what those of queries do: it calls Python, sorts
and writes. Before and after it the executor's only core is held by a process that waits: what a query gave it would be
slow, or be moved there and away again, with its state.
"""

from __future__ import annotations

import importlib.util
import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import IntegerType, StructField, StructType

from app.driver.executor_sight import ExecutorSight
from app.driver.failures import describe
from app.driver.scala import java_array, rdd_at, scala_context, shell_at

if TYPE_CHECKING:
    import pyarrow

log = logging.getLogger(__name__)

_SCHEMA = "value int"
_POLL_S = 0.02

_RELIEF_S = 10.0
_AGAIN_S = 0.5
_LOOKS = 3

# Keeps an executor's only core while the file is there that it is given first, and before while it does not see the
# driver's files. Says so and ends where it is not that executor: Spark gives the task to another one if that is lost,
# or busy for long. To open a file on a network file system asks its server, to look at it does not.
_HOLD = r"""
case "$(tr '\0' ' ' <"/proc/$PPID/cmdline")" in
*"--executor-id $1 "*)
    until true <"$2" && true <"$3"; do kill -0 $PPID || exit; sleep 0.5; done
    while true <"$0" && kill -0 $PPID; do sleep 0.05; done ;;
*) echo elsewhere ;;
esac 2>/dev/null
"""


def warm_up_executor(
    session: SparkSession, directory: Path, sight: ExecutorSight, executor: int, let_in: threading.Event
) -> None:
    """Let ``executor`` do what queries let it do, and keep it from queries until ``let_in``; returns when it waits.

    ``directory`` is one that all executors are to see, with the mark of ``sight``. One that does not see it is kept
    from all tasks for as long as that is so. For a thread of its own. What cannot be done raises what Spark raises.

    Raises:
        DriverError: it did not see the directory, and is gone.
    """
    own = directory / f"executor-{executor}"
    shutil.rmtree(own, ignore_errors=True)
    own.mkdir(parents=True)
    # Beside the query, not behind all that it has to do. Of pools with no running task the first by name gets a core.
    held = _Held(session.sparkContext, executor, sight)
    # To plan a query takes so long that the executor would have got a task of another one.
    first, last = held.while_there(own / "first"), own / "last"
    done = threading.Event()

    def relieve() -> None:
        held.answered.wait(_RELIEF_S)
        _relieve(held, own / "first", last, done)

    relief = threading.Thread(target=relieve, daemon=True)
    relief.start()
    try:
        session.sparkContext.setLocalProperty("spark.scheduler.pool", held.pool)
        # All in one stage: behind a shuffle a task would be anywhere. The library is a file in a jar, and large.
        rows = _row_in(session.newSession(), executor)
        if all(map(importlib.util.find_spec, ("pandas", "pyarrow"))):
            rows = rows.mapInArrow(_same_rows(), _SCHEMA).filter("value >= 0")
        rows = rows.selectExpr("value", "reflect('org.rocksdb.RocksDB', 'loadLibrary') AS loaded")
        rows.sortWithinPartitions("value").write.parquet(str(own / "rows"))
    except BaseException:
        let_in = done
        raise
    finally:
        done.set()
        (own / "first").unlink(missing_ok=True)
        threading.Thread(target=_clear, args=(let_in, [first, relief], own), daemon=True).start()
        # It has ended, unless the file system hangs.
        first.join(_RELIEF_S)
        if executor in sight.kept:
            first.join()
            if held.is_blind:
                raise sight.gone(executor)
            sight.sees(executor)


def look_at_executor(
    context: SparkContext, sight: ExecutorSight, executor: int, _let_in: threading.Event
) -> None:
    """Look, beside what runs, whether the newcomer ``executor`` sees the files, and keep it from all tasks while it
    does not. It may have a task already that takes long."""

    def look() -> None:
        held = _Held(context, executor, sight)
        context.setLocalProperty("spark.scheduler.pool", held.pool)
        try:
            # Spark may give the task to another one.
            for _ in range(_LOOKS):
                if not held.answered.is_set():
                    held.note(sight.ask(executor))
            if held.is_blind:
                held.keep()
            if executor in sight.kept:
                (sight.gone if held.is_blind else sight.sees)(executor)
        except Exception as error:
            log.warning("executor %d is not kept from tasks any more: %s", executor, describe(error).sentence)

    threading.Thread(target=look, name=f"look-at-{executor}", daemon=True).start()


class _Held:
    """Keeps the only core of ``executor`` with tasks in a pool of their own, which are done in their order."""

    def __init__(self, context: SparkContext, executor: int, sight: ExecutorSight) -> None:
        self.pool = f"!slotwise-executor-{executor}"
        self.is_blind = False
        """Whether it does not see the files of ``sight``. Then it is kept until it does."""
        self.answered = threading.Event()
        """Whether that is known."""
        self._sight = sight
        self._context = context
        self._executor = executor

    def keep(self) -> None:
        """Keep it while it is blind."""
        self._hold(self._sight.mark.with_name("not there"))

    def while_there(self, file: Path) -> threading.Thread:
        """A task that ends when ``file`` is removed."""
        file.touch()
        holder = threading.Thread(target=self._hold, args=(file,), daemon=True)
        holder.start()
        return holder

    @property
    def tasks(self) -> int:
        """How many sets of tasks there are that run or wait."""
        found = scala_context(self._context).getPoolForName(self.pool)
        return int(found.get().schedulableQueue().size()) if found.isDefined() else 0

    def _hold(self, file: Path) -> None:
        self._context.setLocalProperty("spark.scheduler.pool", self.pool)
        backend = scala_context(self._context).schedulerBackend()
        while (file.exists() or self.is_blind) and backend.isExecutorActive(str(self._executor)):
            try:
                if not self.answered.is_set():
                    # First, and what holds is behind it: what a task says is known when it has ended.
                    answer = self._sight.ask(self._executor)
                    threading.Thread(target=self.note, args=(answer,), daemon=True).start()
                files = self._sight.files
                held = shell_at(self._context, [self._executor], _HOLD, file, self._executor, *files)
                if not list(held.collect()):
                    self.is_blind = False
                    return
            except Exception as error:
                # It is lost, most likely; if not, it is not to be let in for that.
                log.warning("executor %d is not held: %s", self._executor, describe(error).sentence)
                time.sleep(_AGAIN_S)

    def note(self, is_blind: Callable[[], bool | None]) -> None:
        """What it has said, unless another one has got the task."""
        if (answer := is_blind()) is not None:
            self.is_blind = answer
            self.answered.set()


def _relieve(held: _Held, first: Path, last: Path, done: threading.Event) -> None:
    """When what warms up waits behind the first task, let one more wait behind it that holds, and end the first."""
    try:
        deadline = time.monotonic() + _RELIEF_S
        while held.tasks < 2 and time.monotonic() < deadline:
            if done.wait(_POLL_S):
                return
        held.while_there(last)
        while held.tasks < 3 and time.monotonic() < deadline:
            if done.wait(_POLL_S):
                return
    finally:
        # Whatever happens, the warm-up waits for it.
        first.unlink(missing_ok=True)


def _clear(let_in: threading.Event, helpers: list[threading.Thread], own: Path) -> None:
    let_in.wait()
    for each in helpers:
        each.join()
    # With it goes the file that the last task waits for.
    shutil.rmtree(own, ignore_errors=True)


def _same_rows() -> Callable[[Iterator[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]]:
    """A function that is sent whole, not by the name of its module: environments of jobs have none of ours."""

    def same(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        yield from batches

    return same


def _row_in(session: SparkSession, executor: int) -> DataFrame:
    """A table with one row, whose place is ``executor``."""
    jvm: Any = session.sparkContext._jvm
    row = jvm.org.apache.spark.sql.RowFactory.create(java_array(jvm, [0]))
    rows = rdd_at(session.sparkContext, {executor: row}, "org.apache.spark.sql.Row")
    own: Any = session._jsparkSession
    schema = own.parseDataType(StructType([StructField("value", IntegerType(), False)]).json())
    return DataFrame(own.createDataFrame(rows, schema), session)
