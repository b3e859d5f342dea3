"""What attempts of STREAMING and of BATCH programs share: the program runs in the main thread of the process, the
attempt in another one.

The program calls the methods of the attempt that `takeover.Host` names, in its own threads; everything else happens in
the thread of the attempt, which hears of it through its inbox. An attempt that ends PARKED leaves the program as it is
to the one that follows, which has the same thread.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from pyspark.sql import SparkSession

from app.driver.base_attempt import BaseAttempt, Ending, Terminate
from app.driver.failures import DriverError, Failure, describe
from app.driver.program.places import Places
from app.driver.program.run import run_program
from app.driver.program.takeover import Host, Takeover
from app.driver.session import set_all

log = logging.getLogger(__name__)

_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class SessionOpened:
    """The program has its session."""

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

    def in_process(
        self, leave: Callable[[int], NoReturn], following: Callable[[], BaseAttempt | None]
    ) -> Ending:
        program, artifacts_dir = self._graph.program, Path(self.spec.artifacts_dir)
        assert program is not None

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
            places = Places(artifacts_dir, program.script)
            takeover = self._takeover = Takeover(
                self, places, self.spec.spark_conf, batch=self._graph.is_batch_program
            )
            takeover.install()
            takeover.end(run_program(program, artifacts_dir, self._graph.artifacts, places))
        while True:
            # The attempt decides what follows, and ends the process.
            signal.pause()

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

    def _await_session(self, what: str) -> SparkSession | ProgramEnded:
        """Let the program begin, and wait for its session; it may end without.

        Raises:
            DriverError: the process is to end, before the program has ``what``.
        """
        self._may_run.set()
        while True:
            match self._inbox.get():
                case SessionOpened(session):
                    return session
                case ProgramEnded() as ended:
                    return ended
                case Terminate():
                    raise DriverError(
                        f"The driver was told to end before the program had {what}.", recoverable=True
                    )

    # -- the threads of the program (`takeover.Host`)

    @property
    def is_stopping(self) -> bool:
        return self._over.is_set()

    def program_ended(self, failure: Failure | None) -> None:
        self._inbox.put(ProgramEnded(failure))

    def _session_with(self, conf: Mapping[str, str]) -> SparkSession:
        session = self._open_session(replace(self.spec, spark_conf=dict(conf)))
        set_all(session, conf)
        return session

    def _until_taken_up(self, session: SparkSession) -> None:
        self._inbox.put(SessionOpened(session))
        while not self._taken_up.wait(_POLL_S):
            self._hang_if_over()

    def _hang_if_over(self) -> None:
        """The process is about to end: the program gets no further."""
        while self._over.is_set():
            time.sleep(1.0)
