"""Where each micro-batch of a query meets the plan in force and the fence, before its sink has it.

Spark hands a batch to a sink of its own in one of two ways: by ``Sink.addBatch``, and for sinks of its second API by a
``StreamingWrite``, which a ``Table`` makes for each batch. A query gets ones of ours, which call the query's `Gateway`
first and Spark's own then. They are put in while the query is being started, before its first batch.

They are Java (`gate.java`): from one in Python an error of Spark's would come to a program as another. Nothing of all
this is a promise of Spark's: `self_test` looks for it.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from app.driver.failures import BoundaryStop, DriverError, Failure, Fenced, describe, one_line
from app.driver.plans import DriverPlan
from app.driver.progress import Listener
from app.driver.scala import class_loader, java_array, made
from app.driver.valves.query_valves import Valves
from app.driver.valves.spark import java_field, kind_of

if TYPE_CHECKING:
    from app.driver.started_query import Shared, StartedQuery

_START_S = 60.0

_SINK: Final = "org.apache.spark.sql.execution.streaming.Sink"
_CLASSES: Final = ("GatedSink", "GatedFunction", "GatedWrite", "Gated")

# The event of a start belongs to the query that is being started.
_starting = threading.Lock()


def start_behind(
    gateway: Gateway, session: SparkSession, start: Callable[[], StreamingQuery]
) -> StreamingQuery:
    """What ``start`` starts in ``session``: a query with ``gateway`` before its sink.

    Raises:
        DriverError: this version of Spark does not let it be put there; the query has ended.
    """
    starting = _Starting(gateway)
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
    """Puts ``gateway`` before the sink of a query when Spark tells of its start, before the query plans."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self.error: DriverError | None = DriverError("Spark has not told of the start of a query.")

    def onQueryStarted(self, event: Any) -> None:
        try:
            query = self._manager.get(event.id())
            if query is not None:
                _put_before(java_field(query, "_streamingQuery").get(query), self._gateway)
            # Else it has been stopped already.
            self.error = None
        except Exception as error:
            # Spark goes on whatever a listener throws.
            self.error = _missing(error)


def _put_before(execution: Any, gateway: Gateway) -> None:
    """Replace the sink, before the query's own thread makes its plan, which has the sink in it."""
    caller = _Caller(gateway)
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
    """Java's way to a gateway, which must not live for ever because the query does in Java."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = weakref.ref(gateway)

    def accept(self, what: str, batch_id: int) -> None:
        gateway = self._gateway()
        if gateway is None:
            raise BoundaryStop
        if what == "begin":
            gateway.begin(batch_id)
        elif what == "commit":
            gateway.commit()
        else:
            gateway.end(batch_id)

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


@dataclass(frozen=True, slots=True)
class BatchRun:
    """One run of a batch, after its sink has it and before its commit. ``planned``: what Spark planned for it, None if
    that is not known.

    ``state_is_even``: all state is where it belongs from the next batch on.
    """

    batch_id: int
    plan: DriverPlan
    planned: Any
    started_ms: int
    output_rows: int | None
    state_is_even: bool = True


class Gateway:
    """Each micro-batch of one query passes it, in the query's thread: called by ``foreachBatch``, or before a sink of
    Spark's."""

    def __init__(self, query: StartedQuery, shared: Shared) -> None:
        self._query = query
        self._plans = shared.plans
        self._may_commit = shared.may_commit
        self._keeps_places = shared.places is not None
        self._lock = threading.Lock()
        self._stopping = False
        self.running_batch: int | None = None
        """The batch that was begun and is not known to be committed yet."""
        self._entered_at: float | None = None
        self._runs: dict[int, BatchRun] = {}
        self._latest: DriverPlan | None = None
        self.begun_version = 0
        self.longest_s = 0.0
        self._valves: Valves | None = None
        self._started = threading.Event()
        self.failure: Failure | None = None

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Spark's ``foreachBatch``."""
        self.begin(batch_id)
        with self._failing(batch_id):
            try:
                written = self._query.write(frame, batch_id)
            except (DriverError, Fenced):
                raise
            except Exception as error:
                # Spark runs all vertices of the batch within the sink's action: which one failed is in the message.
                raise DriverError.of(describe(error)) from error
            self._runs[batch_id] = replace(self._runs[batch_id], output_rows=written.rows)
        self.ended()

    # -- before a sink of Spark's

    def begin(self, batch_id: int) -> None:
        """The batch is planned. None of its rows reach the sink before this has returned; if it raises, none will."""
        with self._lock:
            if self._stopping:
                # Before anything is executed: the batch is planned, and will run at the next start with this id.
                raise BoundaryStop
            self.running_batch, self._entered_at = batch_id, time.monotonic()
        with self._failing(batch_id):
            self._runs[batch_id] = self._begun(batch_id)

    def commit(self) -> None:
        """The batch's tasks are done, and the sink is about to make their rows visible. Only some sinks tell that."""
        self._may_commit()

    def end(self, batch_id: int) -> None:
        """The sink has the batch."""
        with self._failing(batch_id):
            self._query.written(batch_id)
        self.ended()

    def ended(self) -> None:
        """No batch is with the sink now."""
        self.longest_s = max(self.longest_s, self.batch_age_s)
        self._entered_at = None

    @contextmanager
    def _failing(self, batch_id: int) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            if not isinstance(error, Fenced):
                found = describe(error, vertex=getattr(error, "vertex", None))
                self.failure = replace(found, batch_id=batch_id)
            self.ended()
            raise

    # -- for the attempt

    def started(self, valves: Valves) -> None:
        """The query has been started. Its first batch, which may have begun by then, waits for this."""
        self._valves = valves
        self._started.set()

    def stop_at_boundary(self) -> None:
        """The batch in flight is the last."""
        with self._lock:
            self._stopping = True

    @property
    def batch_age_s(self) -> float:
        """How long the batch in flight has been running; 0 without one."""
        entered = self._entered_at
        return time.monotonic() - entered if entered is not None else 0.0

    def committed(self, batch_id: int) -> BatchRun | None:
        """Spark has committed ``batch_id``: what is known of its run."""
        with self._lock:
            if self.running_batch is not None and self.running_batch <= batch_id:
                self.running_batch = None
        run = self._runs.pop(batch_id, None)
        for older in [number for number in self._runs if number < batch_id]:
            del self._runs[older]
        return run

    # -- inside

    def _begun(self, batch_id: int) -> BatchRun:
        started_ms = time.time_ns() // 1_000_000
        self._may_commit()
        self._query.begins(batch_id)
        self._query.between_batches()
        if not self._started.wait(_START_S) or (valves := self._valves) is None:
            raise DriverError("The start of the query did not come to its end.", recoverable=True)
        planned = valves.planned()
        plan = self._latest = self._plan_of(valves.in_force(planned))
        self.begun_version = max(self.begun_version, plan.version)
        even = not self._keeps_places or self._query.place(valves, planned)
        return BatchRun(batch_id, plan, planned, started_ms, None, even)

    def _plan_of(self, numbers: Mapping[str, int] | None) -> DriverPlan:
        """The plan that a batch runs at which was planned with ``numbers``.

        If they are in part those of a newer plan, it counts for the one before.
        """
        if numbers and (plan := self._plans.newest_with(numbers)):
            return plan
        before = self._latest or self._plans.current
        known = {vertex: number for vertex, number in (numbers or {}).items() if number}
        mixed = {**before.parallelism, **known}
        return DriverPlan(0, before.version, mixed, whole=False)
