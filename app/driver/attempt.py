"""One attempt of a job in this driver process: from its assignment to its end."""

from __future__ import annotations

import json
import logging
import queue
import time
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING

from app.driver.client import ControlPlaneClient
from app.driver.failures import Failure, Fenced, describe
from app.driver.functions import Functions
from app.driver.locks import claim_checkpoint, is_owner
from app.driver.plans import Plans
from app.driver.progress import Committed, Ended, Happening, Idle
from app.driver.running_query import RunningQuery
from app.driver.session import add_files, check_conf
from app.driver.sources.control import ControlFile
from app.durablefiles import write_whole
from app.model.analysis import queries
from app.model.jobgraph import JobGraph
from app.model.protocol import (
    OUTCOME_FILE,
    DriverSpec,
    Orders,
    Registration,
    Report,
    outcome_document,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_TICK_S = 0.1
_LAST_WORD_S = 10.0


class Ending(IntEnum):
    """How an attempt ended; the value is the exit status of the process, PARKED apart."""

    DONE = 0
    FENCED = 3
    FAILED = 4
    PARKED = -1


@dataclass(frozen=True, slots=True)
class Terminate:
    """The process was asked to end (SIGTERM)."""


@dataclass(frozen=True, slots=True)
class _Fenced:
    pass


class Attempt:
    """Runs the queries of one assignment. Everything that happens arrives in one inbox, in one thread."""

    def __init__(
        self,
        spec: DriverSpec,
        graph: JobGraph,
        *,
        lock_file: str,
        registration: Callable[[str], Registration],
        open_session: Callable[[DriverSpec], SparkSession],
    ) -> None:
        self.spec = spec
        self._graph = graph
        self._lock_file = lock_file
        self._registration = registration
        self._open_session = open_session
        self._checkpoint_dir = Path(spec.checkpoint_dir)
        self._work_dir = Path(spec.work_dir)
        self._inbox: queue.SimpleQueue[Happening | Orders | Terminate | _Fenced] = queue.SimpleQueue()
        self._fenced = False
        self._queries: list[RunningQuery] = []
        self._by_run: dict[str, RunningQuery] = {}
        self._client: ControlPlaneClient | None = None
        self._reported_version = 0
        self._published_ms = 0
        self._drain_ms = 0
        self._stop: Orders | Terminate | None = None
        self._finishing = False

    def terminate(self) -> None:
        """Ask for an end between two batches. Safe in a signal handler."""
        self._inbox.put(Terminate())

    def run(self) -> Ending:
        """Run until the attempt is over. Never raises for what a job can do wrong: that is reported.

        Unless the answer is PARKED, queries may still be running: the process is to end at once.
        """
        try:
            ending = self._until_end()
        except Fenced:
            ending = self._give_up()
        except Exception as error:
            ending = self._fail(describe(error))
        if self._client is not None:
            self._client.close()
        if ending is Ending.PARKED:
            for running in self._queries:
                running.close()
        return ending

    def _until_end(self) -> Ending:
        self._start()
        while True:
            ending = self._turn()
            if ending is not None:
                return ending

    # -- start

    def _start(self) -> None:
        spec = self.spec
        claim_checkpoint(
            self._checkpoint_dir, lock_file=self._lock_file, attempt=spec.attempt, epoch=spec.epoch
        )
        functions = Functions(Path(spec.artifacts_dir), self._graph.artifacts)
        functions.install()
        check_conf(spec.spark_conf)
        session = self._open_session(spec)
        add_files(session, (str(file) for file in functions.files))
        # The job does not wait for the control plane: it may be away, and the assignment says all that is needed.
        client = ControlPlaneClient(
            spec,
            self._registration(session.sparkContext.applicationId),
            on_orders=self._inbox.put,
            on_fenced=self._on_fenced,
        )
        self._client = client
        client.start()
        control = ControlFile(self._work_dir / "control")
        self._control = control
        self._plans = Plans(control, spec.plan_version, spec.parallelism)
        self._published_ms = _now_ms()
        for query in queries(self._graph):
            self._queries.append(
                RunningQuery(
                    query,
                    session=session,
                    control=control,
                    plans=self._plans,
                    functions=functions,
                    checkpoint_dir=self._checkpoint_dir,
                    work_dir=self._work_dir,
                    slots=spec.slots,
                    conf=spec.spark_conf,
                    batch_interval_ms=spec.batch_interval_ms,
                    epoch=lambda: client.epoch,
                    may_commit=self._may_commit,
                    tell=self._inbox.put,
                )
            )
        for running in self._queries:
            running.start()
            self._by_run[running.run_id] = running
        client.report(type="running", plan_version=spec.plan_version)

    def _on_fenced(self) -> None:
        self._fenced = True
        self._inbox.put(_Fenced())

    def _may_commit(self) -> None:
        """Called before anything of a batch becomes visible.

        Raises:
            Fenced: a newer owner or attempt exists.
        """
        if self._fenced or not is_owner(
            self._checkpoint_dir, lock_file=self._lock_file, attempt=self.spec.attempt
        ):
            self._fenced = True
            raise Fenced

    # -- the loop

    def _turn(self) -> Ending | None:
        try:
            message = self._inbox.get(timeout=_TICK_S)
        except queue.Empty:
            return self._tick()
        match message:
            case _Fenced():
                raise Fenced
            case Orders():
                return self._on_orders(message)
            case Terminate():
                self._begin_stop(message)
            case Committed():
                self._on_committed(message)
            case Idle():
                self._on_idle(message)
            case Ended():
                pass
        return self._tick() if isinstance(message, Ended) or self._stop is not None else None

    def _on_orders(self, orders: Orders) -> Ending | None:
        if orders.stop == "kill":
            return Ending.DONE
        if orders.stop in ("boundary", "drain"):
            self._begin_stop(orders)
            return None
        if self._plans.change(orders.plan_version, orders.parallelism):
            self._published_ms = _now_ms()
            for running in self._queries:
                running.gaps.changing(self._published_ms)
        return None

    def _on_committed(self, happening: Committed) -> None:
        running = self._by_run.get(happening.run_id)
        if running is None:
            return
        now_ms = _now_ms()
        run, plan = running.committed(happening, now_ms)
        self._report_applied(idle=False)
        assert self._client is not None
        self._client.report(
            type="batch",
            plan_version=plan.version,
            query_id=running.query_id,
            run_id=happening.run_id,
            batch_id=happening.batch_id,
            started_ms=run.started_ms if run is not None else now_ms - happening.duration_ms,
            input_rows=happening.input_rows,
            output_rows=run.output_rows if run is not None else None,
            state_rows=happening.state_rows,
            backlog_rows=running.backlog,
            reprocessed=running.was_reprocessed(happening.batch_id),
            vertices=running.vertices(run, happening.input_rows) if run is not None else (),
        )

    def _on_idle(self, happening: Idle) -> None:
        running = self._by_run.get(happening.run_id)
        if (
            running is None
            or happening.at_ms <= self._published_ms
            or running.gateway.running_batch is not None
        ):
            return
        running.idle(self._plans.current.version, happening.at_ms)
        self._report_applied(idle=True)
        if self._stop is None and not self._finishing and all(each.is_done for each in self._queries):
            self._finishing = True
            for each in self._queries:
                each.gateway.stop_at_boundary()

    def _report_applied(self, *, idle: bool) -> None:
        """Say once that a plan is in force in every query."""
        version = self._plans.current.version
        if version <= self._reported_version or any(each.applied_version < version for each in self._queries):
            return
        gaps = [gap for each in self._queries if (gap := each.gaps.take()) is not None]
        repeated = [
            each.reprocessed_records for each in self._queries if each.reprocessed_records is not None
        ]
        first = self._reported_version == 0
        self._reported_version = version
        assert self._client is not None
        self._client.report(
            type="plan-applied",
            plan_version=version,
            output_gap_ms=max(gaps) if gaps else None,
            # A change in place reprocesses nothing: no batch is run twice.
            reprocessed_records=(sum(repeated) if repeated else None) if first else 0,
            idle=idle,
        )

    def _tick(self) -> Ending | None:
        if self._fenced:
            raise Fenced
        # Also while the job is being stopped: a batch that hangs would hold up the end for ever.
        for running in self._queries:
            if overdue := running.overdue(self.spec.batch_timeout_ms):
                return self._fail(overdue)
        if self._stop is not None:
            return self._try_stop()
        if self._finishing:
            return self._try_finish()
        for running in self._queries:
            if not running.is_active:
                return self._fail(running.failure() or Failure("A query of the job ended by itself.", ""))
        return None

    # -- ends

    def _begin_stop(self, order: Orders | Terminate) -> None:
        if self._stop is not None:
            return
        self._stop = order
        if isinstance(order, Orders) and order.stop == "drain":
            # The sources stop first, so that nothing stays planned and not committed.
            self._control.set_draining(True)
            self._drain_ms = _now_ms()
            return
        for running in self._queries:
            running.gateway.stop_at_boundary()

    def _try_stop(self) -> Ending | None:
        draining = isinstance(self._stop, Orders) and self._stop.stop == "drain"
        failures = [f for each in self._queries if not each.is_active and (f := each.failure()) is not None]
        if failures:
            return self._fail(failures[0])
        if draining:
            if not all(each.is_drained(self._drain_ms) for each in self._queries):
                return None
            for running in self._queries:
                running.gateway.stop_at_boundary()
        if not all([each.try_stop() for each in self._queries]):
            return None
        assert self._client is not None
        if isinstance(self._stop, Orders) and self._stop.stop == "boundary":
            self._client.report(type="stopped", driver_alive=True)
            # No acknowledgement, no next assignment: then this process is of no use.
            return Ending.PARKED if self._client.flush(_LAST_WORD_S) else Ending.DONE
        return self._last_word(type="stopped", drained=draining, location=str(self._checkpoint_dir))

    def _try_finish(self) -> Ending | None:
        if not all([each.try_stop() for each in self._queries]):
            return None
        for running in self._queries:
            failure = running.failure()
            if failure is not None:
                return self._fail(failure)
        return self._last_word(type="finished")

    def _last_word(self, **fields: object) -> Ending:
        """Report the end, and leave it in a file for a control plane that is away."""
        self._leave(fields)
        assert self._client is not None
        self._client.report(**fields)
        self._client.flush(_LAST_WORD_S)
        return Ending.DONE

    def _leave(self, fields: dict[str, object]) -> None:
        """Write the report of the end where a control plane that is away now will find it."""
        report = Report(seq=0, at_ms=_now_ms(), **fields)  # type: ignore[arg-type]
        write_whole(self._work_dir / OUTCOME_FILE, json.dumps(outcome_document(report)).encode())

    def _fail(self, failure: Failure) -> Ending:
        if self._fenced:
            # The query of a fenced driver fails too, which is nobody's business any more.
            return self._give_up()
        log.error("the attempt failed: %s\n%s", failure.sentence, failure.stack)
        fields: dict[str, object] = {
            "type": "failed",
            "plan_version": self.spec.plan_version,
            "error": failure.sentence,
            "stack": failure.stack,
            "vertex": failure.vertex,
            "recoverable": failure.recoverable,
        }
        try:
            self._leave(fields)
        except OSError as error:
            # A full disk may be what failed; the report is still sent.
            log.warning("the end of the attempt could not be written down: %s", error)
        if self._client is None:
            # Nothing was started yet; the failure must still be told.
            self._client = ControlPlaneClient(
                self.spec, self._registration(""), on_orders=lambda _: None, on_fenced=lambda: None
            )
            self._client.start()
        self._client.report(**fields)
        self._client.flush(_LAST_WORD_S)
        return Ending.FAILED

    def _give_up(self) -> Ending:
        log.error("a newer owner or attempt exists: this driver ends without writing anything more")
        return Ending.FENCED


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
