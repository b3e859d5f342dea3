"""A query's ``foreachBatch``: where each micro-batch meets the plan in force, the fence and the sink."""

from __future__ import annotations

import re
import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from app.driver.build import QueryBuilder
from app.driver.failures import BoundaryStop, DriverError, Failure, Fenced, describe
from app.driver.plans import DriverPlan, Plans
from app.driver.sinks import BatchRef, Sink
from app.driver.stages import StageReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

_SHUFFLE = re.compile(r"(?<!Broadcast)Exchange (?:hash|range|RoundRobin|SinglePartition|rangepartitioning)")


@dataclass(frozen=True, slots=True)
class BatchRun:
    """One run of a batch, after its sink has it and before its commit. ``job_id`` is the Spark job that wrote it.

    ``state_is_even``: all state is where it belongs from the next batch on.
    """

    batch_id: int
    plan: DriverPlan
    groups: tuple[tuple[str, ...], ...]
    tail_shuffles: int
    started_ms: int
    output_rows: int | None
    job_id: int | None
    state_is_even: bool = True


class Gateway:
    """Called by Spark with each micro-batch of one query, in the query's thread."""

    def __init__(
        self,
        builder: QueryBuilder,
        *,
        query_id: Callable[[], str],
        sink: Sink,
        plans: Plans,
        epoch: Callable[[], int],
        may_commit: Callable[[], None],
        beginning: Callable[[int], None],
        between_batches: Callable[[], None] = lambda: None,
    ) -> None:
        self._builder = builder
        self._query_id = query_id
        self._sink = sink
        self._plans = plans
        self._epoch = epoch
        self._may_commit = may_commit
        self._beginning = beginning
        self._between_batches = between_batches
        self._lock = threading.Lock()
        self._stopping = False
        self._running: int | None = None
        self._entered_at: float | None = None
        self._runs: dict[int, BatchRun] = {}
        self._shuffles: dict[int, int] = {}
        self.begun_version = 0
        self.longest_s = 0.0
        self.stages: StageReader | None = None
        self.failure: Failure | None = None

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        with self._lock:
            if self._stopping:
                # Before anything is executed: the batch is planned, and will run at the next start with this id.
                raise BoundaryStop
            self._running, self._entered_at = batch_id, time.monotonic()
        try:
            self._runs[batch_id] = self._run(frame, batch_id)
        except Fenced:
            raise
        except BaseException as error:
            found = describe(error, vertex=getattr(error, "vertex", None))
            self.failure = replace(found, batch_id=batch_id)
            raise
        finally:
            self.longest_s = max(self.longest_s, self.batch_age_s)
            self._entered_at = None

    # -- for the attempt

    def stop_at_boundary(self) -> None:
        """The batch in flight is the last."""
        with self._lock:
            self._stopping = True

    @property
    def running_batch(self) -> int | None:
        """The batch that was begun and is not known to be committed yet."""
        return self._running

    @property
    def batch_age_s(self) -> float:
        """How long the batch in flight has been running; 0 without one."""
        entered = self._entered_at
        return time.monotonic() - entered if entered is not None else 0.0

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

    def _run(self, frame: DataFrame, batch_id: int) -> BatchRun:
        started_ms = time.time_ns() // 1_000_000
        self._may_commit()
        self._beginning(batch_id)
        self._between_batches()
        plan = self._plans.for_batch(self._builder.query.own_sources, self._builder.query.key)
        self.begun_version = max(self.begun_version, plan.version)
        output, groups = self._builder.tail(frame, plan.parallelism)
        shuffles = self._tail_shuffles(output, plan.number, len(groups))
        batch = BatchRef(self._query_id(), batch_id, self._epoch())
        try:
            written = self._sink.write(output, batch, self._may_commit)
        except (DriverError, Fenced):
            raise
        except Exception as error:
            # Spark runs all vertices of the batch within the sink's action: which one failed is in the message.
            raise DriverError.of(describe(error)) from error
        job_id = self.stages.batch_job() if self.stages is not None else None
        even = self._builder.state_is_even
        return BatchRun(batch_id, plan, tuple(groups), shuffles, started_ms, written.rows, job_id, even)

    def _tail_shuffles(self, output: DataFrame, number: int, groups: int) -> int:
        """Shuffles of the tail that its vertices make by themselves; looked up once per plan."""
        if number not in self._shuffles:
            text = output._jdf.queryExecution().executedPlan().toString()
            own = groups - self._builder.head_groups
            self._shuffles = {number: max(0, len(_SHUFFLE.findall(text)) - own)}
        return self._shuffles[number]
