"""What a program asks of PySpark, taken over: its session is the driver's, and its queries are started by the job.

The program is not changed; PySpark's classes are, once, in this process. Whatever does not begin, wait for or end
something stays PySpark's own, also in the handles that a program gets.
"""

from __future__ import annotations

import inspect
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, Protocol

from pyspark import SparkConf, SparkContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery, StreamingQueryManager
from pyspark.sql.streaming.readwriter import DataStreamWriter

from app.driver.failures import DriverError, Failure
from app.driver.program.ending import failure_of
from app.driver.program.places import Places
from app.driver.program.settings import changed_fixed_setting, session_conf, settings_of
from app.model.ownsettings import FIXED_SETTINGS

_context_init: Any = SparkContext.__init__
_stop: Any = SparkSession.stop
_stop_context: Any = SparkContext.stop
_await_any: Any = StreamingQueryManager.awaitAnyTermination
_active: Any = StreamingQueryManager.active.fget  # type: ignore[attr-defined]
_get: Any = StreamingQueryManager.get
_fork = os.fork
_exit = os._exit

_SQL = tuple(name for name in FIXED_SETTINGS if name.startswith("spark.sql."))


class Host(Protocol):
    """What the calls of a program end in. Its methods are called in the threads of the program."""

    @property
    def is_stopping(self) -> bool:
        """Whether queries end because the job is stopped: the program is not to hear of it."""

    def open_session(self, conf: Mapping[str, str]) -> SparkSession:
        """The session of the program. ``conf``: all settings that the job and the program make."""

    def start(
        self, writer: DataStreamWriter, table: str | None, where: str, begin: Callable[[], StreamingQuery]
    ) -> StreamingQuery:
        """Start the query of ``writer``. ``begin`` is Spark's own `start`, or its `toTable` if there is a ``table``;
        ``where`` is the place in the program, for sentences: "job.py, line 12"."""

    def waits(self, where: str) -> None:
        """The program is about to wait for its queries."""

    def program_ended(self, failure: Failure | None) -> None:
        """The program has ended, or has done what ends it."""


class Handle(StreamingQuery):
    """A query as its program has it. What ends because the job is stopped does not end for the program."""

    def __init__(self, taken: Takeover, jsq: Any) -> None:
        super().__init__(jsq)
        self._taken = taken

    @property
    def isActive(self) -> bool:
        return bool(self._taken.unless_stopping(lambda: StreamingQuery.isActive.fget(self)))  # type: ignore[attr-defined]

    def awaitTermination(self, timeout: int | None = None) -> bool | None:
        # Whoever waits for some time only may start another query afterwards.
        if timeout is None:
            self._taken.waits()
        result: bool | None = self._taken.waited(lambda: StreamingQuery.awaitTermination(self, timeout))
        return result

    def processAllAvailable(self) -> None:
        self._taken.waited(lambda: StreamingQuery.processAllAvailable(self))

    def exception(self) -> StreamingQueryException | None:
        error = super().exception()
        if error is not None:
            self._taken.hang_if_stopping()
        return error

    def stop(self) -> None:
        self._taken.hang_if_stopping()
        super().stop()


class Takeover:
    """One program's calls. ``conf`` are the settings of the job, which win. ``batch``: no valves depend on settings."""

    def __init__(self, host: Host, places: Places, conf: Mapping[str, str], *, batch: bool = False) -> None:
        self.host = host
        self.places = places
        self._conf = dict(conf)
        self._batch = batch
        self._session: SparkSession | None = None
        self._lock = threading.RLock()
        self._opening = False

    def install(self) -> None:
        """From here on PySpark is the job's, in this process."""
        ours = self
        builder: Any = SparkSession.Builder
        session: Any = SparkSession
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

        def start(
            self: Any,
            path: str | None = None,
            format: str | None = None,
            outputMode: str | None = None,
            partitionBy: Any = None,
            queryName: str | None = None,
            **options: Any,
        ) -> StreamingQuery:
            if path is not None:
                options["path"] = path
            _set_all(self, format, outputMode, partitionBy, queryName, options)
            return ours.start(self, None, lambda: StreamingQuery(self._jwrite.start()))

        def to_table(
            self: Any,
            tableName: str,
            format: str | None = None,
            outputMode: str | None = None,
            partitionBy: Any = None,
            queryName: str | None = None,
            **options: Any,
        ) -> StreamingQuery:
            _set_all(self, format, outputMode, partitionBy, queryName, options)
            return ours.start(self, tableName, lambda: StreamingQuery(self._jwrite.toTable(tableName)))

        builder.getOrCreate = lambda self: ours.session(self._options)
        builder.create = lambda self: ours.session(self._options).newSession()
        # A session of the driver's own, from its warm-up, is stopped before another is opened.
        session.stop = lambda self: _stop(self) if ours._opening else ours.stop_session()
        context.stop = lambda self: _stop_context(self) if ours._opening else ours.stop_session()
        context.__new__ = new_context
        context.__init__ = init_context
        context.getOrCreate = classmethod(lambda cls, conf=None: ours.context({"conf": conf}))
        writer.start, writer.toTable = start, to_table
        manager.active = property(lambda self: ours.active(self))
        manager.get = lambda self, id: ours.get(self, id)
        manager.awaitAnyTermination = lambda self, timeout=None: ours.await_any(self, timeout)
        system.fork = ours.fork
        system._exit = ours.exit

    # -- sessions

    def session(self, options: Mapping[str, Any]) -> SparkSession:
        """The session, opened if this is the first time."""
        with self._lock:
            try:
                own = settings_of(options, _usual(), self._conf, batch=self._batch)
            except DriverError as error:
                self.refuse(str(error).rstrip("."))
            found = self._session
            if found is None:
                self._opening = True
                try:
                    found = self._session = self.host.open_session(
                        session_conf(own, self._conf, batch=self._batch)
                    )
                finally:
                    self._opening = False
            elif own:
                module: Any = SparkSession._get_j_spark_session_module(found._jvm)
                module.applyModifiableSettings(found._jsparkSession, own)
            return found

    def context(self, asked: Mapping[str, Any]) -> SparkContext:
        """The context of the session, for one that is made by hand with what is ``asked``."""
        conf: SparkConf | None = asked.get("conf")
        options = dict(conf.getAll()) if conf is not None else {}
        if asked.get("master"):
            options["spark.master"] = asked["master"]
        context = self.session(options).sparkContext
        for file in asked.get("pyFiles") or ():
            context.addPyFile(file)
        context.environment.update(asked.get("environment") or {})
        return context

    def stop_session(self) -> None:
        """The session stays for the job, which ends with the program; a program that stops it has ended its queries."""
        if running := self.running():
            name = running[0].name
            called = f"its query {name}" if name else "a query of its own"
            self.refuse(
                f"the program stops its session while {called} runs: wait for it (query.awaitTermination()) "
                "or stop it (query.stop()) before"
            )

    def running(self) -> list[StreamingQuery]:
        """The program's queries that run."""
        if self._session is None:
            return []
        return [StreamingQuery(jsq) for jsq in self._session.streams._jsqm.active()]

    # -- queries

    def start(
        self, writer: DataStreamWriter, table: str | None, begin: Callable[[], StreamingQuery]
    ) -> StreamingQuery:
        where = self.places.here()
        self.hang_if_stopping()
        session = writer._spark
        changed = changed_fixed_setting({name: session.conf.get(name, None) for name in _SQL})
        if changed is not None and not self._batch:
            self.refuse(changed)
        try:
            return self.handle(self.host.start(writer, table, where, begin))
        except DriverError as error:
            # No `except` of the program is to go on behind it.
            self.host.program_ended(failure_of(error, self.places))
            _hang()

    def handle(self, query: StreamingQuery) -> StreamingQuery:
        return Handle(self, query._jsq)

    def active(self, manager: StreamingQueryManager) -> list[StreamingQuery]:
        return [self.handle(each) for each in _active(manager)]

    def get(self, manager: StreamingQueryManager, query_id: str) -> StreamingQuery | None:
        found = _get(manager, query_id)
        return None if found is None else self.handle(found)

    def await_any(self, manager: StreamingQueryManager, timeout: int | None) -> bool | None:
        if timeout is None:
            self.waits()
        result: bool | None = self.waited(lambda: _await_any(manager, timeout))
        return result

    def waits(self) -> None:
        self.host.waits(self.places.here())

    def waited(self, wait: Callable[[], Any]) -> Any:
        """What ``wait`` gives; nothing if it ends because the job is stopped."""
        try:
            result = wait()
        except Exception:
            self.hang_if_stopping()
            raise
        if result is not False:
            self.hang_if_stopping()
        return result

    def unless_stopping(self, ask: Callable[[], Any]) -> Any:
        result = ask()
        if not result:
            self.hang_if_stopping()
        return result

    # -- ends

    def hang_if_stopping(self) -> None:
        """The process is about to end: the program gets no further."""
        if self.host.is_stopping:
            _hang()

    def refuse(self, sentence: str) -> NoReturn:
        """End the program for what it has just done; ``sentence`` has no full stop."""
        self.host.program_ended(Failure(f"{self.places.here()}: {sentence}.", "", recoverable=False))
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


def install(host: Host, places: Places, conf: Mapping[str, str]) -> None:
    """Let PySpark's calls in this process, from the program that ``places`` knows, end in ``host``."""
    Takeover(host, places, conf).install()


def _set_all(
    writer: DataStreamWriter,
    format: str | None,
    mode: str | None,
    by: Any,
    name: str | None,
    options: Mapping[str, Any],
) -> None:
    writer.options(**options)
    if mode is not None:
        writer.outputMode(mode)
    if by is not None:
        writer.partitionBy(by)
    if format is not None:
        writer.format(format)
    if name is not None:
        writer.queryName(name)


def _usual() -> dict[str, str]:
    """What each `SparkConf` of this process has."""
    return dict(SparkConf().getAll())


def _hang() -> NoReturn:
    while True:
        time.sleep(1.0)
