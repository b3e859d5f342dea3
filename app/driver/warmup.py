"""Warms a JVM up with a small real query, so that the first batch of a job does not pay for loading classes."""

from __future__ import annotations

import logging
import shutil
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from app.driver.functions import Functions
from app.driver.plans import Plans
from app.driver.progress import Committed, Happening
from app.driver.running_query import RunningQuery
from app.driver.session import open_session
from app.driver.sources.control import ControlFile
from app.model.analysis import queries
from app.model.graphdoc import parse_document

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_BATCHES = 3
_DEADLINE_S = 60.0

# A source, state and a sink of each kind of work that jobs do: what they share is loaded and compiled.
_DOCUMENT = {
    "name": "warm-up",
    "type": "STREAMING",
    "vertices": [
        {
            "name": "numbers",
            "source": {"format": "rate-micro-batch", "options": {"rowsPerBatch": "200"}},
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
        {"name": "store", "inputs": ["named"], "sink": {"format": "noop", "outputMode": "update"}},
    ],
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
            _run(session, directory / "warm-up")
        finally:
            shutil.rmtree(directory / "warm-up", ignore_errors=True)
    except Exception:
        log.exception("the warm-up failed; the driver goes on cold")
        return None
    return session


def _run(session: SparkSession, directory: Path) -> None:
    graph = parse_document(_DOCUMENT)
    done = threading.Event()

    def tell(happening: Happening) -> None:
        if isinstance(happening, Committed) and happening.batch_id >= _BATCHES - 1:
            done.set()

    control = ControlFile(directory / "control")
    running = RunningQuery(
        queries(graph)[0],
        session=session,
        control=control,
        plans=Plans(control, 1, {vertex.id: vertex.parallelism for vertex in graph.vertices}),
        functions=Functions(directory, ()),
        checkpoint_dir=directory / "checkpoint",
        work_dir=directory,
        slots=2,
        conf={},
        batch_interval_ms=0,
        epoch=lambda: 0,
        may_commit=lambda: None,
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
