"""A program is planned: it runs up to where it waits for its queries, of which none is started.

What each query would be is read from its plan. A query that ends by itself (available-now, once) is taken to have ended
as soon as the program waits for it, and the program goes on.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from app.driver.directories import directory_of
from app.driver.failures import DriverError, Failure
from app.driver.locks import BeingWritten
from app.driver.plan_check import check_by_spark
from app.driver.program.facts import checkpoint_of, own_directory, state_partitions_of, with_facts
from app.driver.program.known import KnownQueries
from app.driver.program.origin import Origin, StateMismatch, check_state
from app.driver.program.places import Places
from app.driver.program.threads import ProgramThreads
from app.driver.valves.spark import WriterFacts, writer_facts, writer_frame
from app.model.planned import Planned, PlannedVertex
from app.model.sink_formats import FILE_SINKS

_OWN_SINKS = frozenset({"memory", "console", "noop"})
_REFUSED_TRIGGERS = {
    "real-time": "a real-time trigger (realTime)",
    "continuous": "a continuous trigger (continuous)",
}


def _check_sink(frame: DataFrame, facts: WriterFacts) -> None:
    """
    Raises:
        AnalysisException: there is no library for the sink.
    """
    if facts.format is None or facts.table is not None or facts.format in _OWN_SINKS:
        return
    jvm: Any = frame.sparkSession._jvm
    state: Any = frame._jdf.sparkSession().sessionState()
    try:
        jvm.org.apache.spark.sql.execution.datasources.DataSource.lookupDataSource(facts.format, state.conf())
    except AnalysisException as error:
        # Of a data source that is written in Python nothing is found here.
        if not state.dataSourceManager().dataSourceExists(facts.format):
            raise error from None


def _behind_a_wait(answer: Any) -> Any:
    """A property that waits for the query: it has ended then."""

    def ask(self: PlannedQuery) -> Any:
        self._planner.wait(self)
        return answer

    return property(ask)


class PlannedQuery(StreamingQuery):
    """The handle of a query that would run. What tells of it, or waits for it, waits."""

    def __init__(
        self, planner: Planner, facts: WriterFacts, frame: DataFrame, sink: str, *, again: bool
    ) -> None:
        """``again``: the program has started it before, and it had ended."""
        self._planner = planner
        self._facts = facts
        self._ids = str(uuid.uuid4()), str(uuid.uuid4())
        self.frame = frame
        self.sink = sink
        self.ends_by_itself = facts.ends_by_itself
        # Who starts it again and waits again may do so for ever.
        self.is_last = again or not facts.ends_by_itself
        self.has_ended = False
        self.thread = threading.current_thread()

    @property
    def id(self) -> str:
        return self._ids[0]

    @property
    def runId(self) -> str:
        return self._ids[1]

    @property
    def name(self) -> str:
        return self._facts.query_name  # type: ignore[return-value] # as in Spark

    isActive = _behind_a_wait(False)
    status = _behind_a_wait({"message": "Stopped", "isDataAvailable": False, "isTriggerActive": False})
    recentProgress = _behind_a_wait([])
    lastProgress = _behind_a_wait(None)

    def awaitTermination(self, timeout: int | None = None) -> bool | None:
        if timeout is None:
            self._planner.wait(self)
            return None
        if not self.ends_by_itself and not self.has_ended:
            self._planner.wait_a_while(self)
            return False
        self._planner.wait(self)
        return True

    def processAllAvailable(self) -> None:
        pass

    def stop(self) -> None:
        self.has_ended = True

    def exception(self) -> StreamingQueryException | None:
        return None

    def explain(self, extended: bool = False) -> None:
        self.frame.explain(extended)


class Planner:
    """One program that is planned. ``done`` gets the result, and does not return.

    Implements `takeover.Host`.
    """

    is_stopping = False

    def __init__(
        self,
        places: Places,
        open_session: Callable[[Mapping[str, str]], SparkSession],
        done: Callable[[Planned], NoReturn],
        scratch: Path,
        *,
        origin: Origin | None = None,
        before: Callable[[str], Path | None] = lambda _: None,
    ) -> None:
        """``scratch``: a directory for what is tried out. ``origin``: what its queries go on from. ``before``: where
        the job that the program is a new version of has the checkpoint of a query, by the name of its sink."""
        self.places = places
        self.open_session = open_session
        self._done = done
        self._scratch, self._origin, self._before = scratch, origin, before
        self.queries: list[PlannedQuery] = []
        self._known = KnownQueries()
        self._lock = threading.RLock()
        self._waited_at: set[str] = set()
        self._threads = ProgramThreads(places)
        self.skipped = False
        """Whether the program is behind a wait that was none: what it meets there does not count."""

    # -- Host

    def start(self, writer: DataStreamWriter, table: str | None, where: str, handle: Any) -> StreamingQuery:
        with self._lock:
            facts = writer_facts(writer, table)
            frame = writer_frame(writer)
            session = frame.sparkSession
            self._check(facts, where)
            check_by_spark(frame, facts.output_mode)
            _check_sink(frame, facts)
            checkpoint = checkpoint_of(session, facts)
            try:
                found = self._known.read(frame, facts, checkpoint)
                again = found[-1].name in self._known
                own = own_directory(session, checkpoint)
                place = self._goes_on_from(session, found, checkpoint, own, facts)
                if place is not None:
                    scratch = self._scratch / str(len(self.queries))
                    check_state(frame, facts.output_mode, found, place, scratch)
                found = with_facts(found, session, facts, checkpoint, state_partitions_of(session, place))
            except DriverError as error:
                is_mismatch = isinstance(error, StateMismatch)
                told = f"from: {error}" if is_mismatch and self._origin is not None else str(error)
                self._refuse(where, told, conflict=is_mismatch or isinstance(error, BeingWritten))
            query = PlannedQuery(self, facts, frame, found[-1].name, again=again)
            self._known.note(found, where, lambda: not query.has_ended)
            self.queries.append(query)
            if len(self.queries) == 1:
                threading.Thread(target=self._watch, name="planning", daemon=True).start()
            return query

    def _watch(self) -> None:
        """A program may wait in ways that cannot be observed: for a lock, a signal, a socket."""
        tracker = self.queries[0].frame.sparkSession.sparkContext.statusTracker()
        self._threads.await_idle(lambda: self.has_running and not tracker.getActiveJobsIds())
        self.answer()

    def restarts(self, error: StreamingQueryException) -> bool:
        """No query is started."""
        return False

    def waits(self, where: str) -> None:
        self.wait(None)

    def program_ended(self, failure: Failure | None) -> None:
        with self._lock:
            if failure is not None and not self.skipped:
                self._done(Planned(error=failure.sentence, stack=failure.stack))
            if not self.queries:
                self._refuse(
                    self.places.end,
                    "the program has ended and has started no streaming query; it should call start() or toTable() "
                    "of a writeStream.",
                )
            left = [query.sink for query in self.queries if not query.has_ended]
            if left and failure is None:
                self._refuse(
                    self.places.end,
                    f"the program has ended without waiting for its query of {left[0]}, which would end with it: call "
                    "awaitTermination() of the query, or spark.streams.awaitAnyTermination().",
                )
            self.answer()

    # -- what a program waits for

    def wait(self, query: PlannedQuery | None) -> None:
        """The program waits for ``query``, or for any. It is planned if that runs for ever."""
        with self._lock:
            waited = [query] if query is not None else self.queries
            for_ever = any(not each.has_ended and each.is_last for each in waited)
            if not for_ever and any(not each.has_ended for each in waited):
                self.skipped = True
                for each in waited:
                    each.has_ended = True
        if for_ever:
            self._threads.await_others()
            self.answer()

    def wait_a_while(self, query: PlannedQuery | None) -> None:
        """The program waits for some time. It may go on behind that, unless it comes there again."""
        where = self.places.here()
        if where in self._waited_at:
            self.wait(query)
        self._waited_at.add(where)
        self.skipped = True

    @property
    def has_running(self) -> bool:
        return any(not query.has_ended for query in self.queries)

    def has_started_here(self) -> bool:
        """Whether this thread is the main one or has started a query that runs."""
        here = threading.current_thread()
        return here is threading.main_thread() or any(
            query.thread is here and not query.has_ended for query in self.queries
        )

    def answer(self) -> NoReturn:
        with self._lock:
            self._done(Planned(self._known.vertices))

    # -- what cannot be a job

    def _check(self, facts: WriterFacts, where: str) -> None:
        if facts.trigger in _REFUSED_TRIGGERS:
            self._refuse(
                where,
                f"{_REFUSED_TRIGGERS[facts.trigger]} is not possible: its tasks run for ever and cannot be rescaled. "
                "Use processingTime, availableNow or once.",
            )
        if facts.format in FILE_SINKS and not facts.path and not facts.table:
            self._refuse(
                where,
                f"the query has no sink: start() without a format is {facts.format}, which needs a path. Give it a "
                "format(...), or start(path), or toTable(name).",
            )
        named = [query for query in self.queries if query.name and query.name == facts.query_name]
        if any(not query.has_ended for query in named):
            self._refuse(
                where, f"a query of the name {facts.query_name} runs already; give each its own name."
            )

    def _goes_on_from(
        self,
        session: SparkSession,
        vertices: Sequence[PlannedVertex],
        checkpoint: str | None,
        own: Path | None,
        facts: WriterFacts,
    ) -> Path | None:
        """The checkpoint that a query would go on from, if there is one. ``own``: the directory of ``checkpoint``, that
        it has chosen.

        Raises:
            DriverError: it cannot.
        """
        sink = vertices[-1].name
        if self._origin is None:
            return self._before(sink) if checkpoint is None else own
        if checkpoint is not None and own is None:
            raise DriverError(
                f"from: the query of {sink} has the checkpointLocation {checkpoint} on another file system, to which "
                "no checkpoint can be copied."
            )
        place = self._origin.checkpoint_of(sink)
        path = facts.path if facts.format in FILE_SINKS and not facts.table else None
        folder = directory_of(session, path) if path else None
        self._origin.check(place, vertices, own, folder)
        return place

    def _refuse(self, where: str, sentence: str, *, conflict: bool = False) -> NoReturn:
        self._done(Planned(error=f"{where}: {sentence}", conflict=conflict))
