"""What attempts of STREAMING jobs and of BATCH programs share: the program, which may be a graph document, runs in the
main thread of the process, as ``python script.py args...`` would run it, the attempt in another one.

The program calls the methods of the attempt that `takeover.Host` names, in its own threads; everything else happens in
the thread of the attempt, which hears of it through its inbox. An attempt that ends PARKED leaves the program as it is
to the one that follows, which has the same thread.

A program may have a module `app`: the driver's own package of that name gets out of its way.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import logging
import os
import pkgutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from pyspark.sql import SparkSession

from app.driver.base_attempt import TOLD_TO_END, BaseAttempt, Ending
from app.driver.causes import WORKER_CRASHED
from app.driver.client import address_in
from app.driver.failures import Failure, describe
from app.driver.program.document import run_document
from app.driver.program.places import Places, failure_of
from app.driver.program.takeover import Host, Takeover
from app.driver.program.term_signal import send_to_main_thread
from app.driver.vertices import Functions
from app.model.jobgraph import ProgramSpec
from app.model.options import JobOptions

log = logging.getLogger(__name__)

_POLL_S = 0.1

_LIBRARIES = ("py4j", "pyspark")
_OWN = __name__.partition(".")[0]
_PARTS = ("driver", "model")
"""Of the driver's package: what a driver may import while a program runs."""


def run_program(
    program: ProgramSpec, artifacts_dir: Path, artifacts: Sequence[str], places: Places
) -> Failure | None:
    """Run ``program`` and its threads to the end. Why it failed; None if it ended well.

    What it leaves behind in this process stays: its module is `__main__` from here on, so that its functions are
    pickled by value also when Spark needs them later.
    """
    before = set(threading.enumerate())
    try:
        module, code = _prepare(program, artifacts_dir, artifacts)
        exec(code, module.__dict__)  # noqa: S102 - this is what the job is
    except BaseException as error:  # a program may end in any way, sys.exit included
        failure = failure_of(error, places)
        if failure is not None:
            return failure
    finally:
        _flush()
    _join_threads(before)
    _flush()
    return None


def _prepare(program: ProgramSpec, artifacts_dir: Path, artifacts: Sequence[str]) -> tuple[ModuleType, Any]:
    """The module of the program and its code, with everything of the process as Python would set it."""
    functions = Functions(artifacts_dir, tuple(artifacts))
    functions.install()
    if PathFinder.find_spec(_OWN, list(functions.paths)) is not None:
        _hide_own_package()
    script = os.path.abspath(artifacts_dir / program.script)
    sys.argv = [script, *program.args]
    # Its lines are to be in the log when they are printed, not when a buffer is full.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(line_buffering=True)
    # The driver's own input has its assignments.
    sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115 - for as long as the process lives
    module = ModuleType("__main__")
    module.__dict__.update(__file__=script, __builtins__=__builtins__, __cached__=None, __spec__=None)
    sys.modules["__main__"] = module
    importlib.invalidate_caches()
    return module, compile(Path(script).read_bytes(), script, "exec", dont_inherit=True)


def _join_threads(before: set[threading.Thread]) -> None:
    """Python ends when the last thread has ended that is no daemon."""
    while True:
        left = [each for each in threading.enumerate() if each not in before and is_of_program(each)]
        if not left:
            return
        left[0].join()


def is_of_program(thread: threading.Thread) -> bool:
    """Whether a thread keeps Python alive and is not one of PySpark's."""
    module = getattr(getattr(thread, "_target", None), "__module__", None) or type(thread).__module__
    return (
        thread is not threading.current_thread()
        and not thread.daemon
        and not str(module).startswith(_LIBRARIES)
    )


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        # The program may have closed it.
        with contextlib.suppress(OSError, ValueError):
            stream.flush()


def _hide_own_package() -> None:
    """Let `import app` mean the program's from here on, but in the driver's own code."""
    _import_all()
    own = {
        name: module for name, module in sys.modules.items() if name == _OWN or name.startswith(f"{_OWN}.")
    }
    directory = str(Path(__file__).resolve().parents[2])
    for name in own:
        del sys.modules[name]
    usual = builtins.__import__

    def import_module(
        name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
    ) -> ModuleType:
        if level == 0 and name in own and str((globals or {}).get("__file__", "")).startswith(directory):
            return own[name] if fromlist else own[_OWN]
        return usual(name, globals, locals, fromlist, level)

    builtins.__import__ = import_module


def _import_all() -> None:
    root = sys.modules[_OWN]
    for part in _PARTS:
        package = importlib.import_module(f"{_OWN}.{part}")
        for found in pkgutil.walk_packages(package.__path__, f"{root.__name__}.{part}."):
            if not found.name.endswith("__main__"):
                # Some need what an environment may lack (pyarrow); a program does not use these.
                with contextlib.suppress(ImportError):
                    importlib.import_module(found.name)


@dataclass(frozen=True, slots=True)
class SessionOpened:
    """The program has its first session."""

    session: SparkSession


@dataclass(frozen=True, slots=True)
class ProgramEnded:
    """The program has ended; ``failure`` is why, if it did not end well."""

    failure: Failure | None


class InMainThread(BaseAttempt, Host):
    """An attempt whose program runs in the main thread. `run` is for a thread of its own: see `in_process`."""

    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(*args, **fields)
        # Set in the thread of the attempt: the program may begin, its session is taken up, and it gets no further.
        self._may_run, self._taken_up, self._over = (threading.Event() for _ in range(3))
        # The program's calls, once it runs.
        self._takeover: Takeover | None = None
        self._program_ended: ProgramEnded | None = None
        # Somebody else than its server has told the process to end, and the program handles that.
        self._told_to_end = self._ends_by_order = False
        # Of an end of a query the program hears nothing.
        self._hides_ends = False

    def in_process(
        self, leave: Callable[[int], NoReturn], following: Callable[[], BaseAttempt | None]
    ) -> Ending:
        program, artifacts_dir = self._graph.program, Path(self.spec.artifacts_dir)

        def run_attempts() -> None:
            try:
                leave(max(0, int(self._run_all(following))))
            except Exception as error:
                log.error("%s", describe(error).stack)
                leave(1)

        threading.Thread(target=run_attempts, name="attempt", daemon=True).start()
        while not self._may_run.wait(_POLL_S) and not self._over.is_set():
            pass
        if not self._over.is_set():
            places = Places(artifacts_dir, "the document" if program is None else program.script)
            batch, page = self._graph.is_batch_program, self._page()
            takeover = self._takeover = Takeover(self, places, self.spec.spark_conf, batch=batch, page=page)
            takeover.install()
            if program is None:
                takeover.end(run_document(self._graph, self._functions, takeover))
            else:
                takeover.end(run_program(program, artifacts_dir, self._graph.artifacts, places))
        while True:
            # The attempt decides what follows, and ends the process.
            signal.pause()

    def _page(self) -> str:
        """The page of the job, at its server."""
        address = ""
        with contextlib.suppress(OSError):
            address = address_in(Path(self.spec.address_file))
        return f"{address}/#/jobs/{self.spec.job_id}"

    def _run_all(self, following: Callable[[], BaseAttempt | None]) -> Ending:
        """Run this attempt, and those that go on with what it has left."""
        attempt: InMainThread = self
        while (ending := attempt.run()) is Ending.PARKED and (after := following()) is not None:
            assert isinstance(after, InMainThread)
            after._go_on_from(attempt)
            attempt = after
        return ending

    def _go_on_from(self, before: InMainThread) -> None:
        """Take the program over from an attempt that ended PARKED."""
        raise AssertionError(before)

    def run(self) -> Ending:
        ending = super().run()
        if ending is not Ending.PARKED:
            # Whatever the program waits for, it will not come.
            self._over.set()
        return ending

    def terminate(self) -> bool:
        """In the main thread. What ends the program ends the attempt, too, whatever the program makes of it."""
        term = None if self._takeover is None else self._takeover.term
        if term is None or not (term.is_handled or term.is_ignored):
            return super().terminate()
        if term.is_handled:
            self._told_to_end = not self._ends_by_order
            term.call()
        return term.is_handled

    def _last_word(self, **fields: object) -> Ending:
        if self._told_to_end and fields["type"] == "finished":
            return self._fail(TOLD_TO_END)
        ending = super()._last_word(**fields)
        if fields.get("drained") and self._takeover is not None and self._takeover.term.is_handled:
            self._let_program_end()
        return ending

    def _let_program_end(self) -> None:
        """The job is stopped: its queries have ended, also for the program, which handles that as with `spark-submit`.
        The server ends what takes too long."""
        if self._program_ended is not None:
            return
        # No query is started any more.
        self._taken_up.clear()
        self._ends_by_order, self._hides_ends = True, False
        send_to_main_thread()
        while not isinstance(self._inbox.get(), ProgramEnded):
            pass

    def _fail(self, failure: Failure, *, repartition_failed: bool = False) -> Ending:
        if self._told_to_end:
            failure = replace(TOLD_TO_END, stack=failure.stack)
        return super()._fail(failure, repartition_failed=repartition_failed)

    def _final_if_own(self, failure: Failure, why: str) -> Failure:
        """``failure``, which is final, by ``why``, if the program has ended itself by it and its job sets no restart
        strategy."""
        options, _ = JobOptions.from_config(self._graph.config)
        strategy = options.restart_strategy
        # Who ended a Python worker cannot be known.
        is_own = not (failure.user_error or WORKER_CRASHED).startswith(WORKER_CRASHED) and not failure.outside
        if not (is_own and failure.recoverable) or (strategy.is_set and strategy.type != "none"):
            return failure
        return replace(failure, recoverable=False, why=why)

    # -- the threads of the program (`takeover.Host`)

    @property
    def is_stopping(self) -> bool:
        return self._hides_ends or self._over.is_set()

    @property
    def was_stopped(self) -> bool:
        return self._ends_by_order

    def program_ended(self, failure: Failure | None) -> None:
        self._inbox.put(ProgramEnded(failure))

    def open_session(self, conf: Mapping[str, str]) -> SparkSession:
        session = self._open_session(replace(self.spec, spark_conf=dict(conf)))
        self._keep_to_slots(session)
        if not self._taken_up.is_set():
            self._inbox.put(SessionOpened(session))
        self._await_taken_up()
        return session

    def _await_taken_up(self) -> None:
        while not self._taken_up.wait(_POLL_S):
            self._hang_if_over()

    def _hang_if_over(self) -> None:
        """The process is about to end: the program gets no further."""
        while self._over.is_set():
            time.sleep(1.0)
