"""Where each micro-batch of a query meets the plan in force and the fence, before its sink has it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from app.driver.failures import BoundaryStop, DriverError, Failure, Fenced, describe
from app.driver.interruption import is_of_interruption
from app.driver.plans import DriverPlan
from app.driver.sinks.base import BatchRef, Sink
from app.driver.valves.query_valves import Valves

if TYPE_CHECKING:
    from app.driver.program.asked import Shared
    from app.driver.started_query import StartedQuery

_START_S = 60.0


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
    """Each micro-batch of one query passes it, in the query's thread: the `app.driver.gate.Passage` before its sink."""

    def __init__(self, query: StartedQuery, shared: Shared) -> None:
        self._query = query
        self._plans = shared.plans
        self._may_commit = shared.may_commit
        self._epoch = shared.epoch
        self._keeps_places = shared.places is not None
        self._lock = threading.Lock()
        self._stopping = False
        self._running: int | None = None
        self._entered_at: float | None = None
        self._runs: dict[int, BatchRun] = {}
        self._latest: DriverPlan | None = None
        self._newest_plan = 0
        self.begun_version = 0
        self.longest_s = 0.0
        self._valves: Valves | None = None
        self._started = threading.Event()
        self.failure: Failure | None = None
        # The sink has ended because its batch was cancelled.
        self.is_cancelled = False

    # -- in the thread of the query

    def open(self, execution: Any) -> None:
        self._query.opens(execution)

    def begin(self, batch_id: int) -> None:
        with self._lock:
            if self._stopping:
                # Before anything is executed: the batch is planned, and will run at the next start with this id.
                raise BoundaryStop
            self._running, self._entered_at = batch_id, time.monotonic()
        with self._failing(batch_id):
            self._runs[batch_id] = self._begun(batch_id)

    def commit(self) -> None:
        self._may_commit()

    def write(self, frame: DataFrame, batch_id: int, sink: Sink) -> None:
        """Let ``sink``, one of ours, have a batch. What fails there is told as it is: Spark would make a text of it."""
        with self._failing(batch_id):
            try:
                batch = BatchRef(self._query.query_id, batch_id, self._epoch())
                written = sink.write(frame, batch, self._may_commit)
            except (DriverError, Fenced):
                raise
            except Exception as error:
                # Spark runs all vertices of the batch within the sink's action: which one failed is in the message.
                raise DriverError.of(describe(error, query=self._query.query.sink.name)) from error
            self._runs[batch_id] = replace(self._runs[batch_id], output_rows=written.rows)

    def end(self, batch_id: int) -> None:
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
            if is_of_interruption(error):
                self.is_cancelled = True
            elif not isinstance(error, Fenced):
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
    def running_batch(self) -> int | None:
        """The batch that was begun and is not known to be committed yet."""
        return self._running

    @property
    def run_in_flight(self) -> BatchRun | None:
        """What is known of that batch; None until its plan is."""
        running = self._running
        return None if running is None else self._runs.get(running)

    @property
    def is_plan_new(self) -> bool:
        """Whether there is another plan than when the newest batch began: the next one is its first."""
        return self._plans.current.number > self._newest_plan

    @property
    def batch_age_s(self) -> float:
        """How long the batch in flight has been running; 0 without one."""
        entered = self._entered_at
        return time.monotonic() - entered if entered is not None else 0.0

    def waited_s(self, vertices: Iterable[str]) -> float:
        """For how long a plan that changes one of ``vertices`` has waited for the batch in flight; 0 if none does."""
        run, wanted = self.run_in_flight, self._plans.current.parallelism
        if run is None or all(wanted.get(each) == run.plan.parallelism.get(each) for each in vertices):
            return 0.0
        # The plan of a batch may not be known exactly; none has waited for it before it was begun.
        return min(self.batch_age_s, self._plans.waited_s(run.plan.number))

    def cancel_batch(self, batch_id: int, cancel: Callable[[], None]) -> bool:
        """``cancel`` what runs for ``batch_id``, if its sink still has it. The next batch waits until that is done."""
        with self._lock:
            if self._running != batch_id or self._entered_at is None:
                return False
            cancel()
            return True

    def committed(self, batch_id: int) -> BatchRun | None:
        """Spark has committed ``batch_id``: what is known of its run."""
        with self._lock:
            if self._running is not None and self._running <= batch_id:
                self._running = None
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
        self._newest_plan = self._plans.current.number
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
