"""What every attempt of a job in this driver process shares: its inbox, its fence, and how it ends."""

from __future__ import annotations

import json
import logging
import queue
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from pyspark.sql import SparkSession

from app.driver.causes import use_rules
from app.driver.client import ControlPlaneClient
from app.driver.executor_sight import ExecutorSight
from app.driver.executor_warmup import look_at_executor, warm_up_executor
from app.driver.executors import Executors, WarmUp
from app.driver.failures import DriverError, Failure, Fenced, describe
from app.driver.host_slots import HostSlots
from app.driver.locks import claim_checkpoint, is_owner
from app.driver.repartition import RepartitionFailed
from app.driver.scala import jvm_runs
from app.driver.session import add_files, check_cluster_conf
from app.driver.vertices import Functions
from app.durablefiles import is_within, is_written_within, write_whole
from app.model.jobgraph import JobGraph
from app.model.localpaths import local_paths, refusal_of
from app.model.protocol import OUTCOME_FILE, DriverSpec, Orders, Registration, Report, outcome_document

log = logging.getLogger(__name__)

LAST_WORD_S = 10.0
_JVM_END_S = 10.0
_LOOK_EVERY_S = 2.0


class Ending(IntEnum):
    """How an attempt ended; the value is the exit status of the process, PARKED apart."""

    DONE = 0
    FENCED = 3
    FAILED = 4
    PARKED = -1


TOLD_TO_END = Failure("The driver was told to end by a signal (SIGTERM), not by its server.", "", killed=True)


@dataclass(frozen=True, slots=True)
class Terminate:
    """The process was asked to end (SIGTERM): that is no end of its job."""


class BaseAttempt(ABC):
    """Runs one assignment. Everything that happens arrives in one inbox, in one thread."""

    _batch: ClassVar[bool] = False
    """Whether it has no micro-batches, which newcomers among the executors are kept from until they are warm."""

    def __init__(
        self,
        spec: DriverSpec,
        graph: JobGraph,
        *,
        lock_file: str,
        registration: Callable[[SparkSession | None], Registration],
        open_session: Callable[[DriverSpec], SparkSession],
        jvm_end: Callable[[float], Failure | None],
    ) -> None:
        self.spec = spec
        self._graph = graph
        self._lock_file = lock_file
        self._registration = registration
        self._open_session = open_session
        self._jvm_end = jvm_end
        self._checkpoint_dir = Path(spec.checkpoint_dir)
        self._work_dir = Path(spec.work_dir)
        self._inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._fenced = False
        self._client: ControlPlaneClient | None = None
        self._executors: Executors | None = None
        self._sight: ExecutorSight | None = None
        self._host_slots = None if spec.executors else HostSlots(spec.held_slots)
        use_rules(spec)

    def terminate(self) -> bool:
        """Ask for an end as soon as it does no harm; whether it comes. For the handler of the signal."""
        self._inbox.put(Terminate())
        return True

    def in_process(
        self, leave: Callable[[int], NoReturn], following: Callable[[], BaseAttempt | None]
    ) -> Ending:
        """`run` it, in the main thread of the process.

        One that needs this thread ends the process by ``leave``, and behind its end PARKED runs the ``following`` ones
        itself: the call waits for the next assignment; it gives None if there is to be none.
        """
        return self.run()

    def run(self) -> Ending:
        """Run until the attempt is over. Never raises for what a job can do wrong: that is reported.

        Unless the answer is PARKED, Spark may still be at work: the process is to end at once.
        """
        try:
            ending = self._until_end()
        except Fenced:
            ending = self._give_up()
        except Exception as error:
            ending = self._fail(describe(error), repartition_failed=isinstance(error, RepartitionFailed))
        if self._sight is not None:
            self._sight.close()
        if self._executors is not None:
            self._executors.close()
        if self._client is not None:
            self._client.close()
        return ending

    @abstractmethod
    def _until_end(self) -> Ending: ...

    # -- start

    def _begin(self) -> SparkSession:
        """Claim the checkpoint, make the job's functions known, and open a session."""
        self._prepare()
        session = self._open_session(self.spec)
        self._equip(session)
        return session

    def _prepare(self) -> None:
        """What comes before a session."""
        spec = self.spec
        claim_checkpoint(
            self._checkpoint_dir, lock_file=self._lock_file, attempt=spec.attempt, epoch=spec.epoch
        )
        self._functions = Functions(Path(spec.artifacts_dir), self._graph.artifacts)
        self._functions.install()
        self._check_paths()
        if spec.executors:
            check_cluster_conf(spec.spark_conf, spec.master)

    def _equip(self, session: SparkSession) -> None:
        """Wait for the executors of ``session``, and give it the job's files."""
        spec = self.spec
        if spec.executors:
            self._sight = ExecutorSight(session.sparkContext, self._work_dir)
            warm_up: WarmUp = partial(warm_up_executor, session, self._work_dir, self._sight)
            if self._batch:
                warm_up = partial(look_at_executor, session.sparkContext, self._sight)
            self._executors = Executors(
                session.sparkContext,
                spec.executors,
                warm_up,
                kept=self._sight.kept,
                all_at_once=self._batch,
            )
            self._executors.await_first()
            self._sight.check(self._executors.active)
        add_files(session, (str(file) for file in self._functions.files))

    def _keep_to_slots(self, session: SparkSession) -> None:
        """Let ``session`` run as many tasks at once as the job holds slots."""
        if self._host_slots is not None:
            self._host_slots.take_up(session.sparkContext)

    def _check_paths(self) -> None:
        """Check the paths of sources and sinks again: a link may have been made since the job was submitted.

        A path that is there without any link was refused at submission. A stored job that has one is of a version that
        allowed it, and goes on.

        Raises:
            DriverError: a source or a sink lies among the server's own files.
        """
        for name, path in local_paths(self._graph):
            if is_within(path, self.spec.private) and not is_written_within(path, self.spec.private):
                raise DriverError(refusal_of(name, path), vertex=name)

    def _connect(self, session: SparkSession) -> ControlPlaneClient:
        # The job does not wait for the control plane: it may be away, and the assignment says all that is needed.
        if (client := self._client) is None:
            client = self._start_client(session, self._inbox.put, self._on_fenced)
        else:
            # It was started before there was a session.
            client.register(self._registration(session))
        self._news = ExecutorNews(self._executors, client.report, self._sight)
        return client

    def _start_client(
        self,
        session: SparkSession | None,
        on_orders: Callable[[Orders], None],
        on_fenced: Callable[[], None],
    ) -> ControlPlaneClient:
        self._client = ControlPlaneClient(
            self.spec,
            self._registration(session),
            on_orders=on_orders,
            on_fenced=on_fenced,
            # A JVM that stands still makes the driver silent.
            before_orders=jvm_runs,
        )
        self._client.start()
        return self._client

    def _report(self, **fields: Any) -> None:
        assert self._client is not None
        self._client.report(**fields)

    def _report_tasks(self, region: int, run: int, news: Callable[[], tuple[int, int] | None]) -> None:
        """How many tasks of a run of a region are done, and how many are known, where ``news`` has any. It is for
        people, so nothing fails if Spark cannot tell."""
        try:
            found = news()
        except Exception as error:
            log.debug("the tasks of region %d cannot be counted: %s", region, error)
            return
        if found is not None:
            done, total = found
            self._report(type="region-progress", region=region, run=run, tasks_done=done, tasks_total=total)

    def _on_fenced(self) -> None:
        self._fenced = True
        self._inbox.put(Fenced())

    def _may_commit(self) -> None:
        """Called before anything becomes visible.

        Raises:
            Fenced: a newer owner or attempt exists.
        """
        if self._fenced or not is_owner(
            self._checkpoint_dir, lock_file=self._lock_file, attempt=self.spec.attempt
        ):
            self._fenced = True
            raise Fenced

    # -- ends

    def _last_word(self, **fields: object) -> Ending:
        """Report the end, and leave it in a file for a control plane that is away."""
        leave_word(self._work_dir, fields)
        self._deliver(fields)
        return Ending.DONE

    def _deliver(self, fields: dict[str, object]) -> None:
        # Nothing may have been started yet; the end must still be told.
        client = self._client or self._start_client(None, lambda _: None, lambda: None)
        client.report(**fields)
        client.flush(LAST_WORD_S)

    def _fail(self, failure: Failure, *, repartition_failed: bool = False) -> Ending:
        if self._fenced:
            # Failures of a fenced driver are not reported.
            return self._give_up()
        failure = self._first_cause(failure)
        log.error("the attempt failed: %s\n%s", failure.sentence, failure.stack)
        fields: dict[str, object] = {
            "type": "failed",
            "plan_version": self._begun_version(),
            "repartition_failed": repartition_failed,
            "by_cluster": failure.by_cluster,
            **told_of(failure),
        }
        try:
            leave_word(self._work_dir, fields)
        except OSError as error:
            # A full disk may be what failed; the report is still sent.
            log.warning("the end of the attempt could not be written down: %s", error)
        self._deliver(fields)
        return Ending.FAILED

    def _first_cause(self, failure: Failure) -> Failure:
        """``failure``, or the end of the JVM, from which whatever failed since follows."""
        is_ending = failure.is_of_jvm and not jvm_runs()
        end = self._jvm_end(_JVM_END_S if is_ending else 0.0)
        return failure if end is None else replace(end, stack=failure.stack)

    def _begun_version(self) -> int:
        """The newest plan that anything was begun with."""
        return self.spec.plan_version

    def _give_up(self) -> Ending:
        log.error("a newer owner or attempt exists: this driver ends without writing anything more")
        return Ending.FENCED


def leave_word(work_dir: Path, fields: Mapping[str, object]) -> None:
    """Write the report of the end where a control plane that is away now, or was never called, will find it."""
    report = Report(seq=0, at_ms=epoch_ms(), **fields)  # type: ignore[arg-type]
    write_whole(work_dir / OUTCOME_FILE, json.dumps(outcome_document(report)).encode())


def told_of(failure: Failure) -> dict[str, object]:
    """The fields of a report that say what the failure was."""
    return {
        "error": failure.sentence,
        "stack": failure.stack,
        "vertex": failure.vertex,
        "recoverable": failure.recoverable,
        "outside": failure.outside,
        "why": failure.why,
        "user_error": failure.user_error,
        "query_id": failure.query_id,
        "batch_id": failure.batch_id,
        "by_files": failure.by_files,
    }


def epoch_ms() -> int:
    return time.time_ns() // 1_000_000


class ExecutorNews:
    """Reports how many executors the job has. ``executors`` None: it has none. For the attempt's own thread."""

    def __init__(
        self, executors: Executors | None, report: Callable[..., None], sight: ExecutorSight | None = None
    ) -> None:
        self._executors = executors
        self._sight = sight
        self._report = report
        self._looked_at = time.monotonic()
        self.known: dict[str, Any] = {}
        """The fields of a report, by the last look."""

    def figures(self) -> dict[str, Any]:
        """The fields of a report, read now."""
        if self._executors is not None:
            self.known = {"executors": self._executors.ready, "executors_wanted": self._executors.wanted}
            if self._sight is not None and (why := self._sight.why):
                self.known["executors_why"] = why
        return self.known

    def turn(self) -> None:
        """Look now and then, and say so if there are more or fewer than was told last, or should be."""
        now = time.monotonic()
        if self._executors is None or now - self._looked_at < _LOOK_EVERY_S:
            return
        self._looked_at, before = now, self.known
        if self.figures() != before:
            self._report(type="executors", **self.known)
