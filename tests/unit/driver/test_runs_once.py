"""A BATCH program that ends by itself is not run again, unless its job has asked for that."""

from __future__ import annotations

import queue
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.driver.base_attempt import Ending
from app.driver.failures import DriverError, Failure, describe
from app.driver.program import batch
from app.driver.program.batch import BatchProgramAttempt
from app.driver.program.places import Places, failure_of

PLACE = "job.py, line 3"


class Ended(BatchProgramAttempt):
    """Without Spark; ``slots`` None: its program has not had a session."""

    def __init__(self, config: dict[str, str], slots: Any = None) -> None:
        self._graph: Any = SimpleNamespace(config=tuple(config.items()))
        self._inbox = queue.SimpleQueue()
        self._takeover = None
        self._session: Any = None
        self._slots = slots
        self._version = 7
        self.reports: list[dict[str, Any]] = []
        self.failed: Failure | None = None

    def _start_client(self, *_given: Any) -> Any:
        self.reports.clear()

    def _report(self, **fields: Any) -> None:
        self.reports.append(fields)

    def _fail(self, failure: Failure, *, repartition_failed: bool = False) -> Ending:
        self.failed = failure
        return Ending.FAILED


def of_program(error: BaseException) -> Failure:
    found = failure_of(error, Places(Path("/nowhere"), "job.py"), PLACE)
    assert found is not None
    return found


def lost() -> Failure:
    sentence = "ExecutorLostFailure (executor 1 exited unrelated to the running tasks)"
    return of_program(
        type("Py4JJavaError", (Exception,), {"__module__": "py4j.protocol", "errmsg": sentence})()
    )


class Connecting(Exception):
    __module__ = "pyspark.errors.exceptions.captured"


REFUSED = Connecting(
    "It failed.\n\nJVM stacktrace:\norg.a.SparkException: It failed.\nCaused by: java.net.ConnectException: no\n"
)

CRASHED = Connecting(
    "Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent failure: Lost task 0.0: "
    "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)\n\nJVM stacktrace:\n"
    "Caused by: java.io.EOFException\n"
)

OWN = [of_program(SystemExit(1)), of_program(ValueError("no luck"))]
OUTSIDE = [of_program(ConnectionResetError("gone")), of_program(REFUSED), of_program(MemoryError()), lost()]
OUTSIDE.append(of_program(CRASHED))


@pytest.fixture(autouse=True)
def lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "is_stopped", lambda _session: False)


def failed(attempt: Ended, failure: Failure) -> Failure:
    assert attempt._on_ended(failure) is Ending.FAILED
    assert attempt.failed is not None
    return attempt.failed


@pytest.mark.parametrize("failure", OWN, ids=lambda each: each.sentence)
@pytest.mark.parametrize(
    "config", [{}, {"restart-strategy.type": "none"}, {"restart-strategy.type": "off"}], ids=str
)
def test_what_it_ends_itself_with_is_final(failure: Failure, config: dict[str, str]) -> None:
    for slots in (None, object()):
        found = failed(Ended(config, slots), failure)
        assert not found.recoverable and "restart-strategy.type" in found.why


@pytest.mark.parametrize("failure", OWN, ids=lambda each: each.sentence)
def test_a_job_that_sets_a_strategy_has_it(failure: Failure) -> None:
    assert failed(Ended({"restart-strategy.type": "fixed-delay"}), failure).recoverable


@pytest.mark.parametrize("failure", OUTSIDE, ids=lambda each: each.sentence)
def test_what_comes_from_outside_is_for_the_restart_strategy(failure: Failure) -> None:
    assert failed(Ended({}, object()), failure).recoverable


def test_the_end_of_its_spark_is_from_outside_whatever_it_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "is_stopped", lambda _session: True)
    assert failed(Ended({}, object()), OWN[0]).recoverable


def test_one_that_ends_before_its_session_has_run() -> None:
    """Else it would be a start that failed, which is repeated ten times."""
    attempt = Ended({})
    failed(attempt, OWN[0])
    assert attempt.reports == [{"type": "running", "plan_version": 7}]
    for attempt, failure in (
        (Ended({}, object()), OWN[0]),
        (Ended({}), describe(DriverError("Spark could not be started: no.", recoverable=True))),
    ):
        failed(attempt, failure)
        assert attempt.reports == []
