"""The life of a driver process: get ready, wait for a job, run its attempts, end.

Until it has a job it hangs on its standard input (`app.driver.rope`). A job that runs does not care who started the
process.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Mapping
from os import _exit
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import urlsplit

from app.driver.assignment import read_assignment
from app.driver.failures import DriverError, describe
from app.driver.jvm import GATEWAY_VARIABLES, START_TIMEOUT_S, Jvm, start_jvm
from app.driver.locks import take_driver_lock
from app.driver.rope import Rope
from app.durablefiles import is_within
from app.model.jobgraph import JobGraph, JobType
from app.model.ownsettings import APP_NAME
from app.model.protocol import WORKING_DIR, DriverSpec, Registration
from app.model.sparkui import LOOPBACK
from app.model.variables import VARIABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from app.driver.base_attempt import BaseAttempt

log = logging.getLogger(__name__)

_USAGE = "usage: python -m app.driver [--warm]"
_UNUSABLE = 2
_WARM_MASTER = "local[2]"
_WARM_START_TIMEOUT_S = 600.0
"""A warm-up has what time of the processors is left over."""
_START_TICKS = 19
"""Of the fields of /proc/self/stat behind the name of the program, which may have blanks in it."""


class DriverProcess:
    """One JVM, one job at a time."""

    def __init__(self, lock_file: str, lock_fd: int, rope: Rope, *, warm: bool) -> None:
        self._lock_file = lock_file
        self._rope = rope
        self._attempt: BaseAttempt | None = None
        self._terminated = False
        self._session: SparkSession | None = None
        self._started_with: Mapping[str, str] = {}
        self._job_id = ""
        self._working_dir = ""
        # The environment variables of the job, and those that executors get; None before they are known.
        self._variables: dict[str, str] | None = None
        self._executor_variables: dict[str, str] | None = None
        # What starts Python workers in the working directory, if a JVM that is elsewhere does.
        self._worker_python: Path | None = None
        # What Spark spills; it goes with the process.
        self._scratch_dir = Path(lock_file).with_suffix(".scratch")
        self._socket_dir = _make_socket_dir()
        self._warm = warm
        self._link = self._scratch_dir / "home" if warm else None
        self.jvm: Jvm = start_jvm(
            scratch_dir=self._scratch_dir, inherited_fds=(lock_fd,), archive=_archive(), link=self._link
        )
        rope.let_go = lambda: self.leave(0)

    def run(self) -> int:
        """Until there is nothing more to do; the exit status."""
        signal.signal(signal.SIGTERM, self._on_sigterm)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if not self._warm:
            # The job is chosen while the JVM starts.
            _say_ready()
        # What imports PySpark, which takes as long as the JVM does: side by side. So nothing above imports any of it.
        import app.driver.program.document_attempt
        from app.driver.base_attempt import Ending

        with contextlib.suppress(ImportError):
            # The environment of a program need not have what sources of ours are made with.
            import app.driver.batch.attempt
            import app.driver.sources.rate  # noqa: F401
        try:
            self.jvm.wait_for_gateway(_WARM_START_TIMEOUT_S if self._warm else START_TIMEOUT_S)
        except DriverError as error:
            self._tell_job(error)
            raise
        from app.driver.session import connect

        connect()
        for name in GATEWAY_VARIABLES:
            # A process that a program starts has a JVM of its own.
            os.environ.pop(name, None)
        if self._warm:
            from app.driver.warmup import warm_up

            self._session = warm_up(
                self._scratch_dir,
                self._socket_dir,
                os.environ.get("_SLOTWISE_DRIVER_WARM_MASTER", _WARM_MASTER),
            )
            _say_ready()
        ending = Ending.DONE
        while (attempt := self._next()) is not None:
            ending = attempt.in_process(self.leave, self._next)
            if ending is not Ending.PARKED:
                break
        return max(0, int(ending))

    def leave(self, status: int) -> NoReturn:
        """End the process, from whichever of its threads.

        Nothing is left to do in an orderly way: committed batches are on disk, an aborted one runs again. Threads that
        still talk to the JVM will find it gone, which py4j would report with a traceback.
        """
        logging.disable()
        self.close()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        _exit(status)

    def close(self) -> None:
        """End the JVM and remove what it spilled."""
        self.jvm.kill()
        shutil.rmtree(self._scratch_dir, ignore_errors=True)
        shutil.rmtree(self._socket_dir, ignore_errors=True)

    def _next(self) -> BaseAttempt | None:
        """The attempt of the next assignment, when it is there; None if this process is to end."""
        self._attempt = None
        assignment = None if self._terminated else self._rope.next()
        if assignment is None:
            return None
        spec, graph = read_assignment(assignment)
        self._set_variables(spec.graph)
        self._go_to_working_dir(spec.working_dir)
        self._attempt = self._attempt_of(spec, graph)
        return None if self._terminated else self._attempt

    def _tell_job(self, error: DriverError) -> None:
        """Leave ``error`` as the last word of the attempt that was given to this process, which cannot begin it."""
        from app.driver.base_attempt import leave_word, told_of

        assignment = None if self._warm else self._rope.next()
        if assignment is not None:
            spec, _ = read_assignment(assignment)
            self._link_log(Path(spec.work_dir))
            told = {"type": "failed", "plan_version": spec.plan_version, **told_of(describe(error))}
            leave_word(Path(spec.work_dir), told)

    def _set_variables(self, document: Mapping[str, Any]) -> None:
        """Set the environment variables of the job: once, for its program may have set others since."""
        if self._variables is None:
            from app.driver.variables import set_variables

            self._variables = dict(document.get(VARIABLES, {}))
            set_variables(self._variables)

    def _go_to_working_dir(self, working_dir: str) -> None:
        """Go to the working directory of the job: once, for its program may have gone on from there."""
        if working_dir and not self._working_dir:
            os.chdir(working_dir)
            self._working_dir = os.getcwd()
            if self._link is not None:
                self._take_jvm()

    def _follow_program(self, artifacts_dir: str) -> None:
        """Take the JVM to where the program is: plain Python starts its JVM now, and there. Files of a job are another
        directory in its next version, so what is written below them would be lost. A job that has no working directory
        of its own ran before, and has its state where Spark was."""
        where, is_own = os.getcwd(), Path(self._working_dir).name == WORKING_DIR
        if is_own and self._working_dir != where and not is_within(where, (artifacts_dir,)):
            self._working_dir = where
            self._take_jvm()

    def _take_jvm(self) -> None:
        from app.driver.working_dir import python_in, take_jvm

        take_jvm(self._link, self._working_dir)
        self._worker_python = python_in(self._scratch_dir, self._working_dir)

    def _attempt_of(self, spec: DriverSpec, graph: JobGraph) -> BaseAttempt:
        self._link_log(Path(spec.work_dir))
        kind: type[BaseAttempt]
        if graph.is_batch_program:
            from app.driver.program.batch import BatchProgramAttempt

            kind = BatchProgramAttempt
        elif graph.type is JobType.BATCH:
            from app.driver.batch.attempt import BatchAttempt

            kind = BatchAttempt
        elif graph.program is not None:
            from app.driver.program.attempt import ProgramAttempt

            kind = ProgramAttempt
        else:
            from app.driver.program.document_attempt import DocumentAttempt

            kind = DocumentAttempt
        return kind(
            spec,
            graph,
            lock_file=self._lock_file,
            registration=_registration,
            open_session=self._session_for,
            jvm_end=self.jvm.end,
        )

    def _session_for(self, spec: DriverSpec) -> SparkSession:
        """A new session, in the SparkContext of the warm-up or of the session before, if that fits: it saves the start
        of one and of its workers."""
        from app.driver.session import close_session, local_master, open_session, unfit_setting
        from app.driver.variables import changed_since, for_executors, tell_jvm

        if self._executor_variables is None:
            self._follow_program(spec.artifacts_dir)
            changed = changed_since(self.jvm.environment)
            tell_jvm(changed)
            self._executor_variables = for_executors(self._variables or {}, changed)
        conf = {APP_NAME: str(spec.graph["name"]), **spec.spark_conf}
        master = local_master(spec.master, conf)
        before = self._session
        if before is None or not (
            self._job_id in ("", spec.job_id)
            and before.sparkContext.master == master
            and unfit_setting(conf, self._started_with) is None
        ):
            self._started_with = conf
            if before is not None:
                close_session(before)
                before = None
        self._session, self._job_id = None, spec.job_id
        self._session = open_session(
            app_name=spec.job_name,
            master=master,
            work_dir=str(self._scratch_dir),
            socket_dir=self._socket_dir,
            conf=conf,
            before=before,
            working_dir=self._working_dir,
            variables=self._executor_variables,
            executors=spec.executors,
            executor_conf=spec.executor_conf,
            archive=_archive(),
        )
        if self._worker_python is not None and not spec.executors:
            self._session.sparkContext.pythonExec = str(self._worker_python)
        return self._session

    def _on_sigterm(self, _signal: int, _frame: FrameType | None) -> None:
        if self._attempt is None:
            self._terminated = True
            self._rope.pull()
        elif self._attempt.terminate():
            self._terminated = True

    def _link_log(self, work_dir: Path) -> None:
        """Link to the log of this process from the attempt's directory."""
        log_file = Path(self._lock_file).with_suffix(".log")
        work_dir.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):
            (work_dir / "driver.log").symlink_to(log_file)


def _archive() -> str:
    """The class data that JVMs start from, or nothing."""
    return os.environ.get("_SLOTWISE_DRIVER_ARCHIVE", "")


def _make_socket_dir() -> str:
    """The directory for Unix sockets; the parent process may have chosen it, in order to remove it."""
    chosen = os.environ.get("_SLOTWISE_DRIVER_SOCKETS")
    if not chosen:
        return tempfile.mkdtemp(prefix="slotwise-")
    os.mkdir(chosen, 0o700)
    return chosen


def _registration(session: SparkSession | None) -> Registration:
    """``session``: None if there is none yet, or it is gone."""
    import pyspark

    from app.driver.scala import scala_context

    context = None if session is None else session.sparkContext
    # Not as PySpark says it: a program is told another address if Spark has no page.
    found = None if context is None else scala_context(context).uiWebUrl()
    page = str(found.get()) if found is not None and found.isDefined() else ""
    return Registration(
        pid=os.getpid(),
        pid_started_at=started_at(),
        host=socket.gethostname(),
        spark_version=pyspark.__version__,
        spark_app_id="" if context is None else context.applicationId,
        # Spark names the host that executors call.
        ui_url="" if not page else f"http://{LOOPBACK}:{urlsplit(page).port}",
    )


def started_at() -> float:
    """When this process started, in the words of psutil, with which control planes find it again: epoch seconds, from
    the boot of the host and the clock ticks since then (see proc(5))."""
    booted = next(
        line.split()[1] for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime ")
    )
    behind_name = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    return float(booted) + int(behind_name[_START_TICKS]) / os.sysconf("SC_CLK_TCK")


def _say_ready() -> None:
    """The control plane reads this one line and closes its end: everything after it goes to the log."""
    # One write: what is unbuffered (PYTHONUNBUFFERED) prints the line break apart, into a pipe that may be closed then.
    os.write(sys.stdout.fileno(), b"READY\n")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())


def _set_up_logging() -> None:
    """The driver's own loggers, and no others: what a program logs is for the program to set up."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    own = logging.getLogger(__name__.rpartition(".")[0])
    own.addHandler(handler)
    own.setLevel(logging.WARNING)
    own.propagate = False


def main(rope: Rope) -> int:
    """The driver program. Its standard input, output and environment are set up by `app.cluster.processes`."""
    _set_up_logging()
    arguments = sys.argv[1:]
    lock_file = os.environ.get("_SLOTWISE_DRIVER_LOCK", "")
    if arguments not in ([], ["--warm"]) or not lock_file:
        print(
            f"{_USAGE}\nA driver is started by the control plane, with _SLOTWISE_DRIVER_LOCK set.",
            file=sys.stderr,
        )
        return _UNUSABLE
    try:
        driver = DriverProcess(lock_file, take_driver_lock(lock_file), rope, warm=bool(arguments))
    except DriverError as error:
        print(error, file=sys.stderr)
        return _UNUSABLE
    try:
        status = driver.run()
    except Exception as error:
        log.error("%s", describe(error).stack)
        status = 1
    driver.leave(status)
