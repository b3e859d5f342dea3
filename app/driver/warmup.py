"""Warms a JVM up with a small real query, so that the first batch of a job does not pay for loading classes."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from app.driver import gate
from app.driver.document_query import DocumentQuery
from app.driver.functions import Functions
from app.driver.plans import Plans
from app.driver.progress import Committed, Happening
from app.driver.session import open_session
from app.driver.sinks.base import run_without_output
from app.driver.started_query import Shared
from app.driver.valves.spark import self_test
from app.model.analysis import queries
from app.model.graphdoc import parse_document

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

_BATCHES = 3
_DEADLINE_S = 60.0
_POLL_S = 0.05

# A source, state and a sink of each kind of work that jobs do: what they share is loaded and compiled.
_DOCUMENT = {
    "name": "warm-up",
    "type": "STREAMING",
    "vertices": [
        {
            "name": "numbers",
            "source": {"format": "rate", "options": {"rowsPerSecond": "2000", "maxRowsPerTrigger": "200"}},
            "parallelism": 2,
        },
        {
            "name": "counts",
            "inputs": ["numbers"],
            "sql": "SELECT value % 10 AS k, count(*) AS n, sum(value) AS total FROM numbers GROUP BY value % 10",
            "maxParallelism": 2,
            "parallelism": 2,
        },
        {
            "name": "named",
            "inputs": ["counts"],
            "sql": "SELECT *, upper('x') AS name FROM counts",
            "parallelism": 2,
        },
        {
            "name": "store",
            "inputs": ["named"],
            "sink": {"python": f"{__name__}:take", "outputMode": "update"},
        },
    ],
    # In which the function may be, for all that the document says.
    "artifacts": ["warm-up.zip"],
}


def warm_up(directory: Path, socket_dir: str, master: str) -> SparkSession | None:
    """Run a few batches in ``directory``. The session stays: a job whose settings fit takes it over.

    A failure costs speed only: it is logged, and there is no session.
    """
    try:
        session = open_session(
            app_name="slotwise", master=master, work_dir=str(directory), socket_dir=socket_dir, conf={}
        )
        try:
            run = _run if _has_sources() else _run_of_spark
            self_test(session)
            gate.self_test()
            run(session, directory / "warm-up")
        finally:
            shutil.rmtree(directory / "warm-up", ignore_errors=True)
    except Exception:
        log.exception("the warm-up failed; the driver goes on cold")
        return None
    return session


def take(frame: DataFrame, batch_id: int) -> None:
    """A sink that gets each micro-batch, which is more than those of Spark's own need."""
    run_without_output(frame)


def _has_sources() -> bool:
    """Whether there are sources of ours. The environment of a program need not have what they are made with."""
    try:
        import app.driver.sources.rate  # noqa: F401
    except ImportError:
        return False
    return True


def _run(session: SparkSession, directory: Path) -> None:
    graph = parse_document(_DOCUMENT)
    done = threading.Event()

    def tell(happening: Happening) -> None:
        if isinstance(happening, Committed) and happening.batch_id >= _BATCHES - 1:
            done.set()

    plans = Plans(1, {vertex.id: vertex.parallelism for vertex in graph.vertices})
    running = DocumentQuery(
        queries(graph)[0],
        Shared(plans, "", lambda: None),
        session=session,
        functions=Functions(directory, ()),
        checkpoint_dir=directory / "checkpoint",
        work_dir=directory,
        slots=2,
        conf={},
        trigger={},
        epoch=lambda: 0,
        tell=tell,
    )
    try:
        running.start()
        if not done.wait(_DEADLINE_S):
            failure = running.failure()
            log.warning(
                "the warm-up was not done in time: %s", failure.sentence if failure else "no reason known"
            )
    finally:
        running.close()


def _run_of_spark(session: SparkSession, directory: Path) -> None:
    """What Spark does by itself, without a source or a sink of ours."""
    session = session.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "2")
    numbers = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 200).load()
    counts = numbers.groupBy((numbers.value % 10).alias("k")).count()
    writer = counts.writeStream.format("noop").outputMode("update")
    query = writer.option("checkpointLocation", str(directory)).start()
    try:
        end = time.monotonic() + _DEADLINE_S
        while (query.lastProgress or {"batchId": -1})["batchId"] < _BATCHES - 1:
            if not query.isActive or time.monotonic() > end:
                log.warning("the warm-up was not done: %s", query.exception() or "no reason known")
                return
            time.sleep(_POLL_S)
    finally:
        query.stop()
