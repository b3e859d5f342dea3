"""Interception of a program's PySpark calls: its sessions are in the SparkContext of the driver, with the settings of
program and job merged, and the job starts its queries.

The program is not changed; PySpark's classes are, once, in this process. Whatever does not begin, wait for or end
something stays PySpark's own, also in the handles that a program gets.
"""

from __future__ import annotations

import inspect
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from pyspark import SparkConf, SparkContext
from pyspark.errors import StreamingQueryException
from pyspark.serializers import AutoBatchedSerializer, BatchedSerializer
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery, StreamingQueryManager
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.streaming import StreamingContext

from app.driver.failures import DriverError, Failure
from app.driver.program.handle import Handle, Queries
from app.driver.program.places import Places, failure_of, under_way
from app.driver.program.settings import put_back, session_conf, settings_of
from app.driver.program.term_signal import TermSignal
from app.driver.session import hide_session, unfit_setting
from app.driver.valves.spark import WriterFacts, writer_facts
from app.model.ownsettings import APP_NAME
from app.model.protocol import DriverSpec

if TYPE_CHECKING:
    from app.driver.program.document import DocumentQuery

_context_init: Any = SparkContext.__init__
_stop_context: Any = SparkContext.stop
_fork = os.fork
_exit = os._exit

_POLL_S = 0.05
# The function of Py4J in which a call of Java's runs.
_CALLED = "_call_proxy"
_DSTREAMS = (
    "the program uses DStreams (pyspark.streaming), which have no plan that could be rescaled and no exact restart: "
    "use Structured Streaming (spark.readStream)"
)
_OF_CONTEXT = {"master": "spark.master", "appName": APP_NAME}
"""The arguments of a SparkContext that are settings."""


def _set_serializer(context: SparkContext, asked: Mapping[str, Any]) -> None:
    """As PySpark does it for a new context."""
    size = context._batchSize = asked.get("batchSize", 0)
    kind = context._unbatched_serializer = asked.get("serializer", context._unbatched_serializer)
    context.serializer = BatchedSerializer(kind, size) if size else AutoBatchedSerializer(kind)  # type: ignore[no-untyped-call]


@dataclass(frozen=True, slots=True)
class Start:
    """A query that the program starts. ``table``: that of `toTable`. ``where``: the place
    in the program, for sentences: "job.py, line 12". ``document``: the query of a graph document that it is."""

    writer: DataStreamWriter
    handle: Handle
    table: str | None = None
    where: str = ""
    document: DocumentQuery | None = None

    @property
    def facts(self) -> WriterFacts:
        return writer_facts(self.writer, self.table)


class Host(Protocol):
    """What the calls of a program end in. Its methods are called in the threads of the program."""

    spec: DriverSpec

    @property
    def is_stopping(self) -> bool:
        """Whether queries end because the job is stopped, and are not started again yet: the program is not to hear of
        it."""

    def open_session(self, conf: Mapping[str, str]) -> SparkSession:
        """A new session for the program. ``conf``: all settings that the job and the program make."""

    def start(self, asked: Start) -> StreamingQuery:
        """Start a query, by its handle: with Spark's own `start`, or its `toTable`. The answer is for the program."""

    @property
    def was_stopped(self) -> bool:
        """Whether the queries have ended because the job is stopped: for the program each has ended well."""
        return False

    def restarts(self, error: StreamingQueryException) -> bool:
        """Whether a query that ended with ``error`` is started again: the program is not to hear of it."""
        return False

    def program_ended(self, failure: Failure | None) -> None:
        """The program has ended, or has done what ends it."""


class Takeover:
    """One program's calls. ``conf`` are the settings of the job, which win. ``batch``: no valves depend on settings.
    ``page``: the address that `uiWebUrl` gives where Spark has no page of its own."""

    def __init__(
        self, host: Host, places: Places, conf: Mapping[str, str], *, batch: bool = False, page: str = ""
    ) -> None:
        self.host = host
        self.places = places
        self._conf = dict(conf)
        self._batch = batch
        self._page = page
        self.term = TermSignal()
        self._session: SparkSession | None = None
        # The settings of the first session, which PySpark gives its JVM: further ones begin with them.
        self._first: Mapping[str, str] | None = None
        self._lock = threading.RLock()
        self._telling = threading.Lock()
        self._opening = False
        self.queries = Queries(self)

    def install(self) -> None:
        """From here on PySpark is the job's, in this process."""
        ours = self
        builder: Any = SparkSession.Builder
        context: Any = SparkContext
        writer: Any = DataStreamWriter
        manager: Any = StreamingQueryManager
        system: Any = os

        def new_context(cls: Any, *given: Any, **named: Any) -> Any:
            if ours._opening:
                return object.__new__(cls)
            return ours.context(inspect.signature(_context_init).bind(None, *given, **named).arguments)

        def init_context(self: Any, *given: Any, **named: Any) -> None:
            if ours._opening:
                _context_init(self, *given, **named)

        def started(usual: Any, begin: Callable[[DataStreamWriter, str | None], Any]) -> Any:
            def start(self: Any, *given: Any, **named: Any) -> StreamingQuery:
                asked = inspect.signature(usual).bind(self, *given, **named).arguments
                _set_all(self, asked)
                table = asked.get("tableName")
                return ours.start(self, table, lambda writer: begin(writer, table))

            return start

        builder.getOrCreate = lambda self: ours.session(self._options)
        builder.create = lambda self: ours.session(self._options).newSession()
        # A session of the driver's own, from its warm-up, is stopped before another is opened. That of a program ends
        # by the rest of Spark's own stop().
        context.stop = lambda self: _stop_context(self) if ours._opening else ours.stop_session()
        page: Any = context.uiWebUrl
        context.uiWebUrl = property(lambda self: page.fget(self) or ours._page)
        context.__new__ = new_context
        context.__init__ = init_context
        StreamingContext.__init__ = lambda self, *given, **named: ours.refuse(_DSTREAMS)  # type: ignore[method-assign]
        context.getOrCreate = classmethod(lambda cls, conf=None: ours.context({"conf": conf}))
        writer.start = started(writer.start, lambda writer, _: writer._jwrite.start())
        writer.toTable = started(writer.toTable, lambda writer, table: writer._jwrite.toTable(table))
        manager.active = property(lambda self: ours.queries.active(self))
        manager.get = lambda self, id: ours.queries.get(self, id)
        manager.awaitAnyTermination = lambda self, timeout=None: ours.queries.await_any(self, timeout)
        manager.resetTerminated = lambda self: ours.queries.reset_terminated(self)
        self.term.install()
        system.fork = ours.fork
        system._exit = ours.exit
        # The program is to find nothing of a warm-up.
        hide_session()
        context._active_spark_context = context._jvm = None

    def go_over(self, host: Host) -> None:
        """From here on calls go to ``host``, and the previous one gets no more calls."""
        with self._telling:
            self.host = host

    # -- sessions

    def session(self, options: Mapping[str, Any]) -> SparkSession:
        """The session, opened if there is none, or if it was stopped."""
        with self._lock:
            try:
                usual = {
                    name: value for name, value in SparkConf().getAll() if name not in (self._first or ())
                }
                own = settings_of(options, usual, self._conf, batch=self._batch)
            except DriverError as error:
                self.refuse(str(error).rstrip("."))
            found = self._session
            if found is None:
                found = self._session = self._opened(own)
            elif own:
                module: Any = SparkSession._get_j_spark_session_module(found._jvm)
                module.applyModifiableSettings(found._jsparkSession, own)
            return found

    def _opened(self, own: Mapping[str, str]) -> SparkSession:
        """A session with the settings ``own`` of the program."""
        first = self._first
        if first is not None and (name := unfit_setting(own, first)) is not None:
            self.refuse(
                f"the program sets {name} to {own[name]} for a session after spark.stop(), which is not possible: "
                "the SparkContext of its first session goes on; set it for that one"
            )
        conf = session_conf({**(first or {}), **own}, self._conf, batch=self._batch)
        self._opening = True
        try:
            found = self.host.open_session(conf)
        finally:
            self._opening = False
        if first is None:
            self._first = {name: value for name, value in own.items() if name.startswith("spark.")}
            for name, value in self._first.items():
                found._jvm.java.lang.System.setProperty(name, value)  # type: ignore[union-attr]
        return found

    def context(self, asked: Mapping[str, Any]) -> SparkContext:
        """The context of the session, for one that is made by hand with what is ``asked``."""
        conf: SparkConf | None = asked.get("conf")
        options = dict(conf.getAll()) if conf is not None else {}
        for name, setting in _OF_CONTEXT.items():
            if asked.get(name):
                options[setting] = asked[name]
        if refused := [name for name in asked if name.endswith("profiler_cls")]:
            self.refuse(
                f"the program gives its SparkContext a {refused[0]}, which is not possible: leave it out"
            )
        context = self.session(options).sparkContext
        if "serializer" in asked or "batchSize" in asked:
            _set_serializer(context, asked)
        for file in asked.get("pyFiles") or ():
            context.addPyFile(file)
        context.environment.update(asked.get("environment") or {})
        return context

    def stop_session(self) -> None:
        """The SparkContext stays for the job, which ends with the program; a program that stops its session has ended
        its queries, and gets a new one when it asks for one."""
        if running := self.queries.running():
            if (error := under_way()) is not None and (why := failure_of(error, self.places)):
                # What a `finally` or `with` of the program does is no reason for its end.
                self.end(why)
                _hang()
            name = running[0].name
            called = f"its query {name}" if name else "a query of its own"
            self.refuse(
                f"the program stops its session while {called} runs: wait for it (query.awaitTermination()) "
                "or stop it (query.stop()) before"
            )
        with self._lock:
            self._session = None
            hide_session()

    # -- queries

    def start(
        self, writer: DataStreamWriter, table: str | None, begin: Callable[[DataStreamWriter], Any]
    ) -> StreamingQuery:
        where = self.places.here()
        self.hang_if_stopping()
        session = writer._spark
        if not self._batch and (refused := put_back(session)) is not None:
            self.refuse(refused)
        try:
            return self.host.start(Start(writer, Handle(self, session, begin), table, where))
        except DriverError as error:
            # No `except` of the program is to go on behind it.
            self.end(failure_of(error, self.places, where))
            _hang()

    def restarts(self, error: StreamingQueryException) -> bool:
        return self.host.restarts(error)

    def waited(self, wait: Callable[[], Any]) -> Any:
        """What ``wait`` gives: if it ends because the job is stopped, only when the job goes on in this process."""
        try:
            result = wait()
        except Exception:
            self.hang_if_stopping()
            raise
        if result is not False:
            self.hang_if_stopping()
        return result

    # -- ends

    def end(self, failure: Failure | None) -> None:
        with self._telling:
            self.host.program_ended(failure)

    @property
    def is_stopping(self) -> bool:
        return self.host.is_stopping

    @property
    def was_stopped(self) -> bool:
        return self.host.was_stopped

    def hang_if_stopping(self) -> None:
        """The program gets no further before its queries run again, which they may never do in this process. But for
        what Spark has called, such as a function for each batch: the stop waits for its batch."""
        while self.is_stopping and not _is_called_by_spark():
            time.sleep(_POLL_S)

    def refuse(self, sentence: str) -> NoReturn:
        """End the program for what it has just done; ``sentence`` has no full stop."""
        self.end(Failure.final(f"{self.places.here()}: {sentence}."))
        _hang()

    def fork(self) -> int:
        if self.places.is_inside():
            self.refuse(
                "the program forks (os.fork, or multiprocessing with its start method fork), and two processes cannot "
                "share a JVM: use threads, or multiprocessing.set_start_method('spawn')"
            )
        return _fork()

    def exit(self, status: int) -> NoReturn:
        if self.places.is_inside():
            self.refuse(f"the program ended itself with os._exit({status}): use sys.exit({status})")
        _exit(status)


def _set_all(writer: DataStreamWriter, asked: Mapping[str, Any]) -> None:
    """What `start` and `toTable` are ``asked`` is set at ``writer``, as they do."""
    writer.options(**asked.get("options", {}))
    if asked.get("path") is not None:
        writer.option("path", asked["path"])
    for name in ("format", "outputMode", "partitionBy", "queryName"):
        if asked.get(name) is not None:
            getattr(writer, name)(asked[name])


def _is_called_by_spark() -> bool:
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_name != _CALLED:
        frame = frame.f_back
    return frame is not None


def _hang() -> NoReturn:
    while True:
        time.sleep(1.0)
