"""What stands before Spark's own sink: each micro-batch passes it between its planning and its tasks.

Spark hands a batch to a sink in one of two ways: by ``Sink.addBatch``, and for sinks of its second API by a
``StreamingWrite``, which a ``Table`` makes for each batch. A query gets ones of ours, which call a `Passage` first and
Spark's own then. They are put in while the query is being started, before its first batch.

They are Java (`gate.java`): from one in Python an error of Spark's would come to a program as another. Nothing of all
this is a promise of Spark's: `self_test` looks for it.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from pyspark import SparkContext
from pyspark.java_gateway import ensure_callback_server_started

from app.driver.failures import BoundaryStop, DriverError, one_line
from app.driver.janino import compiled
from app.driver.scala import java_list
from app.driver.valves.spark import java_field, kind_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_SINK: Final = "org.apache.spark.sql.execution.streaming.Sink"
_CLASSES: Final = ("GatedSink", "GatedFunction", "GatedWrite", "Gated")

# The event of a start belongs to the query that is being started.
_starting = threading.Lock()
_classes: dict[str, Any] = {}


class Passage(Protocol):
    """What a batch passes, in the thread of its query."""

    def begin(self, batch_id: int) -> None:
        """It is planned, and none of its rows reach the sink until this has returned. If it raises, none will."""

    def commit(self) -> None:
        """Its tasks are done, and the sink is about to make their rows visible. Called where the sink tells so much."""

    def end(self, batch_id: int) -> None:
        """The sink has it."""


def start_behind(
    passage: Passage, session: SparkSession, start: Callable[[], StreamingQuery]
) -> StreamingQuery:
    """What ``start`` starts in ``session``: a query with ``passage`` before its sink.

    Raises:
        DriverError: this version of Spark does not let it be put there; the query has ended.
    """
    ensure_callback_server_started(session.sparkContext._gateway)  # type: ignore[no-untyped-call]
    manager: Any = session._jsparkSession.streams()
    starting = _Starting(passage, manager)
    jvm: Any = session._jvm
    listener = jvm.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper(starting)
    with _starting:
        manager.addListener(listener)
        try:
            query = start()
        finally:
            manager.removeListener(listener)
    if starting.error is not None:
        query.stop()
        raise starting.error
    return query


class _Starting:
    """Hears of the start of a query, in its thread and before anything else happens there."""

    def __init__(self, passage: Passage, manager: Any) -> None:
        self._passage = passage
        self._manager = manager
        self.error: DriverError | None = DriverError("Spark has not told of the start of a query.")

    def onQueryStarted(self, event: Any) -> None:
        try:
            query = self._manager.get(event.id())
            if query is not None:
                _put_before(java_field(query, "_streamingQuery").get(query), self._passage)
            # Else it has been stopped already.
            self.error = None
        except Exception as error:
            # Spark goes on whatever a listener throws.
            self.error = _missing(error)

    def onQueryProgress(self, event: Any) -> None:
        pass

    def onQueryIdle(self, event: Any) -> None:
        pass

    def onQueryTerminated(self, event: Any) -> None:
        pass

    class Java:
        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)


def _put_before(execution: Any, passage: Passage) -> None:
    """Before the query's own thread makes its plan, which has the sink in it."""
    caller = _Caller(passage)
    field = java_field(execution, "sink")
    own = field.get(execution)
    if kind_of(own) == "ForeachBatchSink":
        # Spark knows it by its class.
        function = java_field(own, "batchWriter")
        function.set(own, _made("GatedFunction", function.get(own), caller))
    elif _jvm().java.lang.Class.forName(_SINK).isInstance(own):
        field.set(execution, _made("GatedSink", own, caller))
    else:
        (of,) = (each for each in _class("Gated").getMethods() if each.getName() == "of")
        field.set(execution, of.invoke(None, java_list(_jvm(), [own, caller, execution]).toArray()))


class _Caller:
    """Java's way to a passage, which must not live for ever because the query does in Java."""

    def __init__(self, passage: Passage) -> None:
        self._passage = weakref.ref(passage)

    def accept(self, what: str, batch_id: int) -> None:
        passage = self._passage()
        if passage is None:
            raise BoundaryStop
        if what == "begin":
            passage.begin(batch_id)
        elif what == "commit":
            passage.commit()
        else:
            passage.end(batch_id)

    class Java:
        implements = ("java.util.function.ObjLongConsumer",)


def self_test() -> None:
    """Compile the classes: whether this Spark has what they are made of. Its fields are seen when a query starts.

    Raises:
        DriverError: something is missing.
    """
    try:
        for name in _CLASSES:
            _class(name).getMethods()
    except Exception as error:
        raise _missing(error) from error


def _missing(error: Exception) -> DriverError:
    """What ``error`` means, whatever Py4J and Janino make of a class, a method or a field that is not there."""
    return (
        error
        if isinstance(error, DriverError)
        else DriverError(one_line(f"This Spark lets nobody in before its sinks: {error}."))
    )


def _made(name: str, own: Any, caller: _Caller) -> Any:
    (maker,) = _class(name).getConstructors()
    return maker.newInstance(java_list(_jvm(), [own, caller]).toArray())


def _class(name: str) -> Any:
    """One of ours, compiled once for the process."""
    if name not in _classes:
        jvm = _jvm()
        spark_loader = jvm.java.lang.Class.forName(_SINK).getClassLoader()
        loader = compiled(jvm, "gate.java", spark_loader).getClassLoader()
        for each in _CLASSES:
            _classes[each] = loader.loadClass(f"slotwise.{each}")
    return _classes[name]


def _jvm() -> Any:
    return SparkContext._jvm
