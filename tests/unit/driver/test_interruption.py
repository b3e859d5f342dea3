"""Which batch is interrupted for a plan that waits for it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.driver import gateway, interruption, plans
from app.driver.gateway import BatchRun, Gateway
from app.driver.interruption import MARK, NOTE, Interrupter, Interruption, is_of_interruption, takes_again
from app.driver.plans import Plans
from app.driver.started_query import StartedQuery
from app.driver.valves.spark import WriterFacts


class Clock:
    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.s = 100.0
        for module in (gateway, interruption, plans):
            patch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.s))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


class Rig:
    """A query of the vertices in and out, in whose batch the test decides what is done."""

    def __init__(self, directory: Path, *, max_wait_ms: int = 30_000) -> None:
        self.directory = directory
        self.plans = Plans(1, {"in": 1, "out": 1, "of another query": 1})
        shared: Any = SimpleNamespace(plans=self.plans, may_commit=None, epoch=None, places=None)
        self.gateway = Gateway(SimpleNamespace(), shared)  # type: ignore[arg-type]
        self.tasks = (0, 4)
        self.asked = 0
        self.cancelled: list[str] = []
        self.max_wait_ms = max_wait_ms
        self.interrupter = self.new_run()

    def new_run(self) -> Interrupter:
        def tasks(_batch: int) -> tuple[int, int]:
            self.asked += 1
            return self.tasks

        return Interrupter(
            self.directory,
            self.gateway,
            sink="out",
            vertices=("in", "out"),
            max_wait_ms=self.max_wait_ms,
            tasks=tasks,
            cancel=self.cancelled.append,
        )

    def begin(self, batch_id: int, at: float) -> None:
        self.gateway._running, self.gateway._entered_at = batch_id, at
        self.gateway._runs[batch_id] = BatchRun(batch_id, self.plans.current, None, 0, None)

    def look(self) -> Interruption | None:
        return self.interrupter.look()


def test_a_batch_with_more_before_it_than_behind_it_is_interrupted_after_the_wait(
    tmp_path: Path, clock: Clock
) -> None:
    rig = Rig(tmp_path)
    rig.begin(5, clock.s)
    clock.s += 100
    assert rig.look() is None, "no plan waits"
    rig.plans.change(2, {"in": 4, "out": 4})
    clock.s += 30
    assert rig.look() is None and not rig.asked
    clock.s += 0.1
    made = rig.look()
    assert made is not None and (made.batch_id, made.done, made.known, round(made.ran_s)) == (5, 0, 4, 130)
    assert [text.startswith(MARK) for text in rig.cancelled] == [True]
    assert (tmp_path / NOTE).read_text() == "5"


@pytest.mark.parametrize(
    ("tasks", "is_interrupted"),
    [((1, 4), True), ((12, 80), True), ((2, 4), False), ((3, 4), False), ((4, 4), False), ((0, 0), False)],
)
def test_what_is_done_is_weighed_against_what_is_left(
    tmp_path: Path, clock: Clock, tasks: tuple[int, int], is_interrupted: bool
) -> None:
    """Of a batch that has no task yet nothing could be cancelled."""
    rig = Rig(tmp_path)
    rig.begin(5, clock.s)
    rig.plans.change(2, {"in": 4, "out": 4})
    clock.s += 31
    rig.tasks = tasks
    assert (rig.look() is not None) is is_interrupted
    assert bool(rig.cancelled) is is_interrupted and (tmp_path / NOTE).exists() is is_interrupted


def test_spark_is_not_asked_at_each_look(tmp_path: Path, clock: Clock) -> None:
    rig = Rig(tmp_path)
    rig.begin(5, clock.s)
    rig.plans.change(2, {"in": 4, "out": 4})
    clock.s += 31
    rig.tasks = (3, 4)
    for _ in range(20):
        assert rig.look() is None
        clock.s += 0.1
    assert rig.asked <= 3


def test_a_batch_is_interrupted_once_in_whichever_run_of_the_query(tmp_path: Path, clock: Clock) -> None:
    rig = Rig(tmp_path)
    rig.begin(5, clock.s)
    rig.plans.change(2, {"in": 4, "out": 4})
    clock.s += 31
    assert rig.look() is not None
    rig.interrupter = rig.new_run()
    rig.begin(5, clock.s)
    rig.plans.change(3, {"in": 2, "out": 2})
    clock.s += 1_000
    assert rig.look() is None and len(rig.cancelled) == 1
    rig.begin(6, clock.s)
    rig.plans.change(4, {"in": 1, "out": 1})
    clock.s += 31
    assert rig.look() is not None, "another one is"


def test_several_plans_in_a_row_have_waited_since_the_first(tmp_path: Path, clock: Clock) -> None:
    rig = Rig(tmp_path)
    rig.begin(5, clock.s)
    for version in (2, 3, 4):
        rig.plans.change(version, {"in": version, "out": version})
        clock.s += 11
    assert rig.look() is not None


def test_a_plan_that_changes_nothing_of_the_query_interrupts_nothing(tmp_path: Path, clock: Clock) -> None:
    """Its batch would run again as it ran before."""
    rig = Rig(tmp_path)
    rig.begin(5, clock.s)
    rig.plans.change(2, {"of another query": 4})
    clock.s += 1_000
    assert rig.look() is None and not rig.asked
    rig.plans.change(3, {"in": 4})
    rig.plans.change(4, {"in": 1})
    assert rig.look() is None, "it runs at the numbers of the newest plan"


def test_none_is_interrupted_that_the_sink_has_or_that_was_begun_at_the_plan(
    tmp_path: Path, clock: Clock
) -> None:
    rig = Rig(tmp_path)
    rig.plans.change(2, {"in": 4, "out": 4})
    rig.begin(5, clock.s)
    clock.s += 1_000
    assert rig.look() is None
    rig.plans.change(3, {"in": 5, "out": 5})
    clock.s += 31
    assert not rig.gateway.cancel_batch(4, lambda: rig.cancelled.append("another batch"))
    rig.gateway.ended()
    assert rig.look() is None and not rig.cancelled
    assert not rig.gateway.cancel_batch(5, lambda: rig.cancelled.append("it is with Spark's commit"))
    assert not rig.cancelled


def test_a_batch_that_was_planned_while_the_plan_came_has_been_waited_for_since_it_began(
    tmp_path: Path, clock: Clock
) -> None:
    """Its numbers are those of no plan."""
    rig = Rig(tmp_path)
    clock.s += 1_000
    rig.plans.change(2, {"in": 4, "out": 4})
    rig.begin(5, clock.s)
    mixed = gateway.DriverPlan(0, 1, {"in": 4, "out": 1}, whole=False)
    rig.gateway._runs[5] = BatchRun(5, mixed, None, 0, None)
    clock.s += 29
    assert rig.look() is None
    clock.s += 2
    assert rig.look() is not None


def test_none_is_interrupted_if_that_cannot_be_noted(tmp_path: Path, clock: Clock) -> None:
    rig = Rig(tmp_path / "gone")
    rig.begin(5, clock.s)
    rig.plans.change(2, {"in": 4, "out": 4})
    clock.s += 31
    assert rig.look() is None and not rig.cancelled


def test_no_wait_is_for_ever(tmp_path: Path, clock: Clock) -> None:
    rig = Rig(tmp_path, max_wait_ms=0)
    rig.begin(5, clock.s)
    rig.plans.change(2, {"in": 4, "out": 4})
    clock.s += 100_000
    assert rig.look() is None


@pytest.mark.parametrize(
    ("facts", "own_format", "expected"),
    [
        (WriterFacts("parquet", path="/out"), None, True),
        (WriterFacts("json", path="/out"), "json", True),
        (WriterFacts("delta", path="/out"), None, True),
        (WriterFacts("Delta", table="lake.t"), None, True),
        (WriterFacts("noop"), "noop", True),
        (WriterFacts("memory", output_mode="complete"), None, True),
        (WriterFacts(None, foreach="foreachBatch"), "sqlite", True),
        (WriterFacts(None, foreach="foreachBatch"), "postgresql", True),
        (WriterFacts(None, foreach="foreachBatch"), "python", False),
        (WriterFacts(None, foreach="foreachBatch"), None, False),
        (WriterFacts(None, foreach="foreach"), None, False),
        (WriterFacts("kafka"), None, False),
        (WriterFacts("iceberg", table="t"), "iceberg", False),
        (WriterFacts("console"), None, False),
        (WriterFacts("org.example.Sink"), None, False),
        # What has the table is not known, and a table in memory would begin with nothing.
        (WriterFacts("parquet", table="t"), None, False),
        (WriterFacts("memory", query_name="t"), None, False),
    ],
)
def test_only_sinks_that_take_a_batch_once_are_interrupted_unasked(
    facts: WriterFacts, own_format: str | None, expected: bool
) -> None:
    assert takes_again(facts, own_format) is expected


@pytest.mark.parametrize("asked_for", [True, False])
def test_a_job_may_say_so_whatever_its_sink_is(asked_for: bool) -> None:
    for facts in (WriterFacts("kafka"), WriterFacts("noop")):
        query = StartedQuery.__new__(StartedQuery)
        query._shared = SimpleNamespace(interruptible=asked_for)  # type: ignore[assignment]
        query.asked = SimpleNamespace(facts=facts)  # type: ignore[assignment]
        assert query._may_interrupt is asked_for


def test_the_end_of_an_interrupted_query_is_known_by_a_cause_however_deep() -> None:
    class OfJava:
        def __init__(self, message: str, cause: OfJava | None = None) -> None:
            self._message, self._cause = message, cause

        def getMessage(self) -> str:
            return self._message

        def getCause(self) -> OfJava | None:
            return self._cause

    inner = OfJava(f"Job 3 cancelled {MARK}: a plan has waited")
    error = RuntimeError("The batch failed")
    error.__cause__ = cause = ValueError("Writing job aborted")
    assert not is_of_interruption(error)
    cause.java_exception = OfJava("Writing job aborted", inner)  # type: ignore[attr-defined]
    assert is_of_interruption(error)
