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
from typing import Any, Final, Protocol

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from app.driver.failures import BoundaryStop, DriverError, one_line
from app.driver.progress import Listener
from app.driver.scala import class_loader, java_array, made
from app.driver.valves.spark import java_field, kind_of

_SINK: Final = "org.apache.spark.sql.execution.streaming.Sink"
_CLASSES: Final = ("GatedSink", "GatedFunction", "GatedWrite", "Gated")

# The event of a start belongs to the query that is being started.
_starting = threading.Lock()


class Passage(Protocol):
    """What a batch passes, in the thread of its query."""

    def open(self, execution: Any) -> None:
        """The query has its gate, and has planned nothing yet. ``execution``: Spark's, of the query."""

    def begin(self, batch_id: int) -> None:
        """The batch is planned. None of its rows reach the sink before this has returned; if it raises, none will."""

    def commit(self) -> None:
        """The batch's tasks are done, and the sink is about to make their rows visible. Only some sinks tell that."""

    def end(self, batch_id: int) -> None:
        """The sink has the batch."""


def start_behind(
    passage: Passage, session: SparkSession, start: Callable[[], StreamingQuery]
) -> StreamingQuery:
    """What ``start`` starts in ``session``: a query with ``passage`` before its sink.

    Raises:
        DriverError: this version of Spark does not let it be put there; the query has ended.
    """
    starting = _Starting(passage)
    with _starting:
        starting.listen(session)
        try:
            query = start()
        finally:
            starting.close()
    if starting.error is not None:
        query.stop()
        raise starting.error
    return query


class _Starting(Listener):
    """Puts ``passage`` before the sink of a query when Spark tells of its start, before the query plans."""

    def __init__(self, passage: Passage) -> None:
        # Java has this object until it collects its garbage, and a passage has all of a run.
        self._passage = weakref.ref(passage)
        self.error: DriverError | None = DriverError("Spark has not told of the start of a query.")

    def onQueryStarted(self, event: Any) -> None:
        try:
            query, passage = self._manager.get(event.id()), self._passage()
            if query is not None and passage is not None:
                execution = java_field(query, "_streamingQuery").get(query)
                _put_before(execution, passage)
                passage.open(execution)
            # Else it has been stopped already.
            self.error = None
        except Exception as error:
            # Spark goes on whatever a listener throws.
            self.error = _missing(error)


def _put_before(execution: Any, passage: Passage) -> None:
    """Replace the sink, before the query's own thread makes its plan, which has the sink in it."""
    caller = _Caller(passage)
    field = java_field(execution, "sink")
    own = field.get(execution)
    if kind_of(own) == "ForeachBatchSink":
        # Spark knows it by its class.
        function = java_field(own, "batchWriter")
        function.set(own, made(_jvm(), _class("GatedFunction"), function.get(own), caller))
    elif _jvm().java.lang.Class.forName(_SINK).isInstance(own):
        field.set(execution, made(_jvm(), _class("GatedSink"), own, caller))
    else:
        (of,) = (each for each in _class("Gated").getMethods() if each.getName() == "of")
        field.set(execution, of.invoke(None, java_array(_jvm(), [own, caller, execution])))


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


def _class(name: str) -> Any:
    """The class ``name`` of `gate.java`."""
    return class_loader(_jvm(), "gate.java", _SINK).loadClass(f"slotwise.{name}")


def _jvm() -> Any:
    return SparkContext._jvm
