"""How the driver holds a query that failed: what it says of it, and when, and what it starts on which order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from app.driver import failover
from app.driver.failover import END_S, LocalFailover
from app.driver.failures import DriverError, Failure


class Query:
    """A query whose Spark is the test: it says when nothing of it lives."""

    def __init__(self, run: int) -> None:
        self.query = SimpleNamespace(key="ab", sink=SimpleNamespace(name="store"))
        self.run_id, self.query_id = f"run-{run}", "id"
        self.gone, self.closed = False, False
        self.longest_batch_ms = 1_700
        self.committed_batches = 8

    def close(self) -> None:
        self.closed = True

    def is_gone(self) -> bool:
        return self.gone


class Rig:
    def __init__(self) -> None:
        self.reports: list[dict[str, Any]] = []
        self.started: list[Query] = []
        self.refuses: Exception | None = None
        self.failover = LocalFailover(
            report=lambda **fields: self.reports.append(fields),
            begun_version=lambda: 7,
            restart=self._restart,  # type: ignore[arg-type]
        )

    def _restart(self, _failed: Any) -> Query:
        if self.refuses is not None:
            raise self.refuses
        self.started.append(Query(len(self.started) + 2))
        return self.started[-1]

    def hold(self, query: Query, sentence: str = "boom") -> None:
        self.failover.hold(query, Failure(sentence, "stack", batch_id=3))  # type: ignore[arg-type]

    def proven(self, query: Query) -> bool:
        return self.failover.proven(query)  # type: ignore[arg-type]

    def turn(self, **restarts: int) -> Failure | None:
        if restarts:
            self.failover.take_orders(restarts)
        return self.failover.turn()


def test_nothing_is_said_before_the_last_task_has_ended() -> None:
    rig, query = Rig(), Query(1)
    rig.hold(query)
    assert query.closed and rig.failover._held and not rig.failover.is_quiet
    assert rig.turn(ab=9) is None and rig.reports == [] and rig.started == []
    query.gone = True
    assert rig.failover.is_quiet
    rig.turn()
    (told,) = rig.reports
    assert told["type"] == "query-failed" and (told["query"], told["run"]) == ("ab", 1)
    assert (told["error"], told["batch_id"], told["plan_version"]) == ("boom", 3, 7)
    assert told["longest_batch_ms"] == 1_700


def test_it_is_started_on_the_order_for_this_failure_and_no_other() -> None:
    rig, query = Rig(), Query(1)
    query.gone = True
    rig.hold(query)
    rig.turn()
    rig.turn(other=5)
    assert rig.started == []
    rig.turn(ab=1)
    (second,) = rig.started
    assert not rig.failover._held
    second.gone = True
    rig.hold(second, "boom again")
    for _ in range(3):
        rig.turn(ab=1)
    assert len(rig.started) == 1, "that order was for the failure before"
    assert [told["run"] for told in rig.reports] == [1, 2]
    rig.turn(ab=2)
    assert len(rig.started) == 2


def test_it_is_well_once_and_only_in_its_new_run() -> None:
    rig, query = Rig(), Query(1)
    query.gone = True
    rig.hold(query)
    rig.turn()
    rig.turn(ab=1)
    assert not rig.proven(query)
    assert rig.proven(rig.started[0]) and not rig.proven(rig.started[0])
    assert rig.reports[-1] == {"type": "query-recovered", "query": "ab", "run": 1, "run_id": "run-2"}


def test_one_that_cannot_be_started_has_failed_again() -> None:
    rig, query = Rig(), Query(1)
    query.gone = True
    rig.hold(query)
    rig.turn()
    rig.refuses = DriverError("The directory cannot be written.", vertex="store")
    rig.turn(ab=1)
    rig.turn()
    assert rig.failover._held and not rig.proven(query)
    told = rig.reports[-1]
    assert (told["type"], told["run"], told["recoverable"]) == ("query-failed", 2, False)
    assert told["error"] == "The directory cannot be written."
    assert (told["query_id"], told["batch_id"]) == ("id", 8), (
        "by which it is known whether it has got further"
    )


def test_what_does_not_end_is_a_failure_of_the_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    now = SimpleNamespace(s=100.0)
    monkeypatch.setattr(failover, "time", SimpleNamespace(monotonic=lambda: now.s))
    rig = Rig()
    rig.hold(Query(1))
    now.s += END_S
    assert rig.turn() is None
    now.s += 0.1
    failure = rig.failover.hanging()
    assert failure == rig.turn()
    assert failure is not None and failure.batch_id == 3
    assert failure.sentence == "boom What the query had begun did not end within 20 s."
