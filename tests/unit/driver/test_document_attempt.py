"""The attempt of a document runs when all of its queries were started, and nothing that comes before is lost."""

from __future__ import annotations

import queue
from types import SimpleNamespace
from typing import Any

import pytest

from app.driver.base_attempt import Ending, Terminate
from app.driver.failures import Failure
from app.driver.program.document_attempt import DocumentAttempt
from app.driver.program.main_thread import ProgramEnded
from app.driver.progress import Committed, Ended
from app.model.protocol import Orders


class Starting(DocumentAttempt):
    """Without Spark: what happened comes from the test."""

    def __init__(self, *messages: Any) -> None:
        self._inbox = queue.SimpleQueue()
        for message in messages:
            self._inbox.put(message)
        self._stored: Any = {"one": None, "other": None}
        self._first, self._early, self._early_orders = None, [], None
        self._queries, self._by_run, self._stop, self._noted = [], {}, None, 0
        self.told: list[Any] = []

    def start(self, run_id: str) -> None:
        self._inbox.put(lambda: self._on_start_of_program(SimpleNamespace(run_id=run_id)))  # type: ignore[arg-type]

    def _tell_of_run(self) -> None:
        self.told.append("running")

    def _add(self, running: Any) -> None:
        self.told.append(running.run_id)
        self._by_run[running.run_id] = running

    def _on_committed(self, happening: Committed) -> None:
        self.told.append(f"batch of {happening.run_id}")

    def _on_ended(self, happening: Ended) -> None:
        self.told.append(f"end of {happening.run_id}")

    def _fail(self, failure: Failure, *, repartition_failed: bool = False) -> Ending:
        self.told.append(failure.sentence)
        return Ending.FAILED


def batch(run_id: str) -> Committed:
    return Committed(run_id, "id", 0, 5, None)


def test_it_runs_when_all_are_started_and_what_came_of_each_before_counts() -> None:
    newest = Orders(7, {"v": 2})
    starting = Starting(batch("a"), Orders(6, {"v": 3}))
    starting.start("a")
    starting._inbox.put(batch("b"))
    starting._inbox.put(Ended("a"))
    starting._inbox.put(newest)
    starting.start("b")
    starting._inbox.put(batch("a"))
    assert starting._await_queries() is None
    # What all have reached counts, so none of them is told of before all are there.
    assert starting.told == ["running", "a", "b", "batch of a", "batch of b", "end of a"]
    assert starting._early_orders is newest
    assert not starting._inbox.empty(), "what comes later is for the loop"


@pytest.mark.parametrize(
    ("message", "ending"),
    [
        (Orders(6, {}, stop="kill"), Ending.DONE),
        (Terminate(), Ending.FAILED),
        (ProgramEnded(Failure.final("A vertex cannot be built.")), Ending.FAILED),
    ],
    ids=["killed", "told to end", "refused"],
)
def test_what_ends_it_before_is_its_end(message: Any, ending: Ending) -> None:
    starting = Starting()
    starting.start("a")
    starting._inbox.put(message)
    assert starting._await_queries() is ending
    assert "running" not in starting.told


def test_an_error_of_another_thread_is_raised() -> None:
    with pytest.raises(RuntimeError, match="no luck"):
        Starting(RuntimeError("no luck"))._await_queries()
