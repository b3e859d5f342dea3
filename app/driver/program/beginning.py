"""From the beginning of a program with streaming queries to its session, which it may take its time for."""

from __future__ import annotations

import queue
from abc import abstractmethod
from typing import Any, Final

from pyspark.sql import SparkSession

from app.driver.base_attempt import TOLD_TO_END, Ending, Terminate
from app.driver.failures import Failure
from app.driver.program.main_thread import InMainThread, ProgramEnded, SessionOpened
from app.model.protocol import Orders

_POLL_S = 0.1
_ONCE: Final = (
    "A job that fails by its own code before its first batch runs once, unless it sets restart-strategy.type."
)


class BeginsProgram(InMainThread):
    """An attempt that follows orders before its program has a session."""

    _reported_version: int

    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(*args, **fields)
        # The newest plan that came before the session, to be taken up with that.
        self._early_orders: Orders | None = None

    def _begin_program(self) -> SparkSession | Ending:
        """Let the program begin. Its first session, or the end of the attempt, if that comes before."""
        self._start_client(None, self._inbox.put, self._on_fenced)
        self._tell_of_beginning()
        self._may_run.set()
        while True:
            try:
                message = self._inbox.get(timeout=_POLL_S)
            except queue.Empty:
                self._may_commit()
                continue
            match message:
                case SessionOpened(session):
                    return session
                case Exception():
                    raise message
                case ProgramEnded(failure):
                    return self._last_word(type="finished") if failure is None else self._fail(failure)
                case Orders(stop="kill"):
                    return Ending.DONE
                case Orders(stop="none"):
                    self._early_orders = message
                    self._note_plan(message.plan_version)
                case Orders():
                    drained, place = message.stop == "drain", str(self._checkpoint_dir)
                    return self._last_word(type="stopped", drained=drained, location=place)
                case Terminate():
                    return self._fail(TOLD_TO_END)

    def _tell_of_beginning(self) -> None:
        # Which queries will come, and when, only the program knows.
        self._report(type="begun", plan_version=self.spec.plan_version)

    def _note_plan(self, version: int) -> None:
        # There is nothing yet that does not run at it.
        if version > self.spec.plan_version:
            self._reported_version = version
            self._report(type="plan-applied", plan_version=version)

    @property
    @abstractmethod
    def _may_be_its_fault(self) -> bool:
        """Whether nothing has shown yet that the program, or the document, can run."""

    def _fail(self, failure: Failure, *, repartition_failed: bool = False) -> Ending:
        if self._may_be_its_fault:
            failure = self._final_if_own(failure, _ONCE)
        return super()._fail(failure, repartition_failed=repartition_failed)
