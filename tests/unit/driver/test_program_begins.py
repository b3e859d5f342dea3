"""What an attempt of a program does before the program has a session, without Spark; and which failures are final."""

from __future__ import annotations

import queue
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.driver.base_attempt import TOLD_TO_END, BaseAttempt, Ending, Terminate
from app.driver.failures import DriverError, Failure, Fenced, describe
from app.driver.program.beginning import BeginsProgram
from app.driver.program.main_thread import ProgramEnded, SessionOpened
from app.model.protocol import Orders
from tests.unit.driver.test_runs_once import OUTSIDE, OWN

SESSION: Any = object()


class Begun(BeginsProgram):
    """One to which ``messages`` come."""

    def __init__(self, *messages: Any, **config: str) -> None:
        self._graph: Any = SimpleNamespace(config=tuple(config.items()))
        self.spec: Any = SimpleNamespace(plan_version=7)
        self._checkpoint_dir = Path("/c")
        self._early_orders = self._takeover = None
        self._told_to_end = False
        self._may_run = threading.Event()
        self._reported_version = 0
        self._inbox = queue.SimpleQueue()
        for message in messages:
            self._inbox.put(message)
        self.reports: list[Any] = []
        self.failed: Failure | None = None
        self.may_be_its_fault = True

    @property
    def _may_be_its_fault(self) -> bool:
        return self.may_be_its_fault

    def _until_end(self) -> Ending:
        raise AssertionError

    def start(self, *_given: Any) -> Any:
        raise AssertionError

    def _start_client(self, session: Any, *_given: Any) -> Any:
        assert session is None and not self._may_run.is_set()

    def _report(self, **fields: Any) -> None:
        self.reports.append((fields.pop("type"), *fields.values()))

    def _last_word(self, **fields: Any) -> Ending:
        self._report(**fields)
        return Ending.DONE


def order(version: int = 7, stop: Any = "none") -> Orders:
    return Orders(version, {"program": 1}, stop)


BEGUN = ("begun", 7)
STOPPED = ("stopped", False, "/c")


def test_plans_before_the_session_are_in_force_at_once_and_kept() -> None:
    newest = order(9)
    attempt = Begun(order(8), newest, SessionOpened(SESSION))
    assert attempt._begin_program() is SESSION and attempt._may_run.is_set()
    assert attempt.reports == [BEGUN, ("plan-applied", 8), ("plan-applied", 9)]
    assert attempt._early_orders is newest and attempt._reported_version == 9


def test_that_of_the_assignment_waits_for_a_query() -> None:
    attempt = Begun(order(7), SessionOpened(SESSION))
    assert attempt._begin_program() is SESSION
    assert attempt.reports == [BEGUN] and attempt._early_orders is not None


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (order(stop="kill"), []),
        (order(stop="boundary"), [STOPPED]),
        (order(stop="drain"), [("stopped", True, "/c")]),
        (ProgramEnded(None), [("finished",)]),
    ],
    ids=str,
)
def test_the_attempt_may_end_before_there_is_a_session(message: Any, told: list[Any]) -> None:
    attempt = Begun(message)
    assert attempt._begin_program() is Ending.DONE
    assert attempt.reports == [BEGUN, *told]


def test_a_signal_is_no_end_of_the_job(failed: list[Failure]) -> None:
    attempt = Begun(Terminate())
    attempt._begin_program()
    assert failed == [TOLD_TO_END] and TOLD_TO_END.outside and TOLD_TO_END.recoverable


def test_what_is_raised_is_raised() -> None:
    with pytest.raises(Fenced):
        Begun(order(8), Fenced())._begin_program()


@pytest.fixture
def failed(monkeypatch: pytest.MonkeyPatch) -> list[Failure]:
    found: list[Failure] = []

    def fail(_self: Any, failure: Failure, **_fields: Any) -> Ending:
        found.append(failure)
        return Ending.FAILED

    monkeypatch.setattr(BaseAttempt, "_fail", fail)
    return found


@pytest.mark.parametrize("failure", OWN, ids=lambda each: each.sentence)
def test_what_is_wrong_with_the_program_is_final_unless_its_job_says_otherwise(
    failure: Failure, failed: list[Failure]
) -> None:
    for config in ({}, {"restart-strategy.type": "none"}):
        assert Begun(ProgramEnded(failure), **config)._begin_program() is Ending.FAILED
        told = failed.pop()
        assert not told.recoverable and "before its first batch" in told.why
    Begun(ProgramEnded(failure), **{"restart-strategy.type": "fixed-delay"})._begin_program()
    later = Begun(ProgramEnded(failure))
    later.may_be_its_fault = False
    later._begin_program()
    assert failed == [failure] * 2 and failure.recoverable


@pytest.mark.parametrize(
    "failure",
    [
        *OUTSIDE,
        describe(TimeoutError("late"), place="job.py, line 3"),
        describe(DriverError("no", recoverable=True)),
    ],
    ids=lambda each: each.sentence,
)
def test_what_comes_from_outside_may_be_gone_next_time(failure: Failure, failed: list[Failure]) -> None:
    Begun(ProgramEnded(failure))._begin_program()
    assert failed == [failure] and failure.recoverable


def test_what_is_final_anyway_keeps_its_reason(failed: list[Failure]) -> None:
    failure = describe(NotImplementedError("no"), place="job.py, line 3")
    Begun(ProgramEnded(failure))._begin_program()
    assert failed == [failure] and "NotImplementedError" in failure.why and not failure.recoverable
