"""Warms a JVM up with a small real query, so that the first batch of a job does not pay for loading classes."""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from app.driver import gate
from app.driver.failures import Failure
from app.driver.host_slots import counter
from app.driver.plans import Plans
from app.driver.program.asked import Asked, Shared
from app.driver.program.document import DocumentQuery
from app.driver.program.places import Places
from app.driver.program.takeover import Host, Start, Takeover
from app.driver.progress import Ended, Happening, QueryListener
from app.driver.session import close_session, open_session
from app.driver.sinks.base import run_without_output
from app.driver.started_query import StartedQuery
from app.driver.valves.spark import self_test
from app.driver.vertices import Functions
from app.model.analysis import queries
from app.model.graphdoc_build import RawInput, RawVertex, vertices_of
from app.model.grapherrors import Errors
from app.model.jobgraph import JobGraph, JobType, OutputMode, PythonSpec, SinkSpec, SourceSpec, SqlSpec
from app.model.protocol import DriverSpec
from app.model.statefulness import analysed

log = logging.getLogger(__name__)

_BATCHES = 3
_DEADLINE_S = 60.0

_SOURCE = SourceSpec("rate", options=(("rowsPerSecond", "2000"), ("maxRowsPerTrigger", "200")))
_SPARKS_SOURCE = SourceSpec("rate-micro-batch", options=(("rowsPerBatch", "200"),))
_COUNTS = "SELECT value % 10 AS k, count(*) AS n, sum(value) AS total FROM numbers GROUP BY value % 10"


def _graph(source: SourceSpec) -> JobGraph:
    """A source, state and a sink of each kind of work that jobs do: what they share is loaded and compiled."""
    sink = SinkSpec("python", output_mode=OutputMode.UPDATE, python=PythonSpec(f"{__name__}:take"))
    raw = (
        RawVertex(0, "numbers", source, (), 2),
        RawVertex(1, "counts", SqlSpec(_COUNTS), (RawInput("", "numbers"),), 2, max_parallelism=2),
        RawVertex(
            2, "named", SqlSpec("SELECT *, upper('x') AS name FROM counts"), (RawInput("", "counts"),), 2
        ),
        RawVertex(3, "store", sink, (RawInput("", "named"),), 1),
    )
    graph = JobGraph("warm-up", JobType.STREAMING, vertices_of(Errors(), "warm-up", JobType.STREAMING, raw))
    return analysed(graph, {graph.by_name["counts"].id})


def warm_up(directory: Path, socket_dir: str, master: str) -> SparkSession | None:
    """Run a few batches in ``directory``. The session stays: a job whose settings fit takes it over.

    A failure costs speed only: it is logged, and there is no session.
    """
    session = None
    try:
        session = open_session(
            app_name="slotwise", master=master, work_dir=str(directory), socket_dir=socket_dir, conf={}
        )
        try:
            self_test(session)
            gate.self_test()
            counter(session.sparkContext)
            _run(session, directory / "warm-up")
        finally:
            shutil.rmtree(directory / "warm-up", ignore_errors=True)
    except Exception:
        log.exception("the warm-up failed; the driver goes on cold")
        if session is not None:
            # A JVM has one SparkContext.
            close_session(session)
        return None
    return session


def take(frame: DataFrame, batch_id: int) -> None:
    """A sink that gets each micro-batch, which is more than those of Spark's own need."""
    run_without_output(frame)


def _source() -> SourceSpec:
    """Our own source, or one of Spark's: the environment of a program need not have what ours is made with."""
    try:
        import app.driver.sources.rate  # noqa: F401
    except ImportError:
        return _SPARKS_SOURCE
    return _SOURCE


def _run(session: SparkSession, directory: Path) -> None:
    """Run the first batches of the graph. That they do not come is logged."""
    graph = _graph(_source())
    done = threading.Event()

    def tell(happening: Happening) -> None:
        if isinstance(happening, Ended) or happening.batch_id >= _BATCHES - 1:
            done.set()

    host = _Warming(graph, directory)
    calls = Takeover(host, Places(directory, __name__), {})
    query = DocumentQuery(graph, queries(graph)[0], session, Functions(directory, ()), calls)
    listener = QueryListener(tell)
    listener.listen(query.session)
    try:
        query.start()
        in_time, failure = done.wait(_DEADLINE_S), None if host.running is None else host.running.failure()
        if failure is not None or not in_time:
            log.warning(
                "the warm-up was not done in time: %s", failure.sentence if failure else "no reason known"
            )
    finally:
        if host.running is not None:
            host.running.close()
        listener.close()


class _Warming(Host):
    """What the calls of the warm-up end in: no job is there yet."""

    is_stopping = False

    def __init__(self, graph: JobGraph, directory: Path) -> None:
        self._plans = Plans(1, {vertex.id: vertex.parallelism for vertex in graph.vertices})
        place = str(directory)
        self.spec = DriverSpec(
            job_id="",
            secret="",
            address_file="",
            master="",
            job_name=graph.name,
            attempt=1,
            epoch=1,
            graph={},
            plan_version=1,
            parallelism=dict(self._plans.current.parallelism),
            slots=2,
            held_slots=2,
            checkpoint_dir=place,
            work_dir=place,
            artifacts_dir=place,
        )
        self.running: StartedQuery | None = None

    def open_session(self, conf: Mapping[str, str]) -> SparkSession:
        raise AssertionError(conf)

    def program_ended(self, failure: Failure | None) -> None:
        raise AssertionError(failure)

    def start(self, asked: Start) -> StreamingQuery:
        assert asked.document is not None
        known = Asked.by_document(asked, asked.document.query)
        self.running = StartedQuery(known, Shared(self._plans, "", lambda: None))
        self.running.start()
        return asked.handle
