"""The limits of a run of a query: when Spark is told of them, and what the next run knows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.driver.intake import INTAKE_NOTE, Intake
from app.driver.progress import IntakeLimit


class Source:
    """In the place of Java's: one source, or none that can be limited, of a query with an ``interval_ms``."""

    def __init__(self, *, keeps_time: bool = False, interval_ms: int = 0, can: bool = True) -> None:
        self.keeps_time, self.interval_ms, self.can = keeps_time, interval_ms, can
        self.count, self.own, self.name = 0, -1, "files"
        self.asked = 0
        self.limits: list[int] = []

    def keepsTime(self) -> bool:
        return self.keeps_time

    def intervalMs(self) -> int:
        return self.interval_ms

    def names(self) -> str:
        return json.dumps([self.name])

    def taken(self) -> str:
        self.asked += 1
        return json.dumps([["rows", self.count, self.own, 0, self.count] if self.can else []])

    def limit(self, place: int, most: int) -> None:
        assert place == 0
        self.limits.append(most)


@pytest.fixture(autouse=True)
def note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Notes are written into a directory of the test."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / INTAKE_NOTE


def begun(source: Source, **of: Any) -> Intake:
    intake = Intake(Path(INTAKE_NOTE), make=lambda _: source, **{"target_ms": None, **of})
    intake.begin(None)
    return intake


def ran(source: Source, *batches: tuple[int, int], **of: Any) -> Intake:
    """``batches``: how many rows each has, and how long it takes."""
    Path(INTAKE_NOTE).unlink(missing_ok=True)
    intake = begun(source, **of)
    for source.count, took_ms in batches:
        intake.batch_ended(took_ms)
    return intake


def test_a_limit_is_told_to_spark_when_it_changes_and_goes_when_nothing_is_left() -> None:
    source = Source()
    quiet = ((100, 1_000),) * 3
    intake = ran(source, (5_000, 50_000), (1_000, 10_000), *quiet, *quiet)
    assert (source.limits, intake.limit_of(0)) == ([1_000, -1], IntakeLimit())
    source = Source()
    ran(source, (5_000, 50_000), *quiet[1:], (1_000, 9_800), *quiet[1:])
    assert source.limits == [1_000], "not three in a row"
    assert ran(source, (5_000, 50_000)).limit_of(0) == IntakeLimit("rows", 1_000)


def test_quick_batches_do_not_even_ask_java() -> None:
    source = Source()
    ran(source, (5_000, 10_000), (5_000, 100))
    assert source.asked == 0
    ran(source, (5_000, 10_001))
    assert source.asked == 1


@pytest.mark.parametrize("of", [{"target_ms": 0}, {"may_limit": False}])
def test_no_limits_where_the_job_or_its_trigger_wants_none(of: dict[str, Any]) -> None:
    source = Source()
    assert (ran(source, (5_000, 50_000), **of).limit_of(0), source.limits) == (IntakeLimit(), [])


def test_of_a_query_that_keeps_time_only_if_the_job_asks_for_it() -> None:
    source = Source(keeps_time=True)
    assert ran(source, (5_000, 50_000)).limit_of(0) == IntakeLimit(why="keeps-time")
    assert source.limits == []
    assert ran(source, (5_000, 50_000), (100, 1_000)).limit_of(0) == IntakeLimit(), (
        "its batches are quick again"
    )
    assert ran(source, (5_000, 50_000), target_ms=10_000).limit_of(0) == IntakeLimit("rows", 1_000)


def test_a_source_that_cannot_be_limited_is_told_while_batches_are_long() -> None:
    assert ran(Source(can=False), (5_000, 50_000)).limit_of(0) == IntakeLimit(why="no-admission-control")
    assert ran(Source(can=False), (5_000, 50_000), (5_000, 5_000)).limit_of(0) == IntakeLimit()


def test_a_limit_is_told_while_it_leaves_something_behind() -> None:
    """A job that keeps up is not said to fall behind."""
    assert ran(Source(), (5_000, 50_000), (1_000, 9_800)).limit_of(0) == IntakeLimit("rows", 1_000)
    assert ran(Source(), (5_000, 50_000), (700, 7_000)).limit_of(0) == IntakeLimit()


def test_batches_that_begin_at_an_interval_fill_it() -> None:
    source = Source(interval_ms=60_000)
    assert ran(source, (5_000, 150_000)).limit_of(0) == IntakeLimit("rows", 2_500)


def test_the_first_batch_of_a_plan_is_shorter() -> None:
    """A plan is in force when its first batch is committed."""
    source = Source()
    intake = ran(source, (5_000, 50_000))
    source.count = 1_000
    intake.batch_ended(10_000, is_changing=True)
    assert intake.limit_of(0).most == 300
    source.count = 300
    intake.batch_ended(1_500)
    assert intake.limit_of(0).most == 1_200, "with more tasks it took half of the time"


def test_a_spark_without_such_limits_runs_on() -> None:
    def missing(_: Any) -> Any:
        raise RuntimeError("no such class")

    intake = Intake(Path(INTAKE_NOTE), target_ms=None, make=missing)
    intake.batch_ended(50_000)
    assert intake.limit_of(0) == IntakeLimit()


def test_the_next_run_begins_with_the_limits_of_the_one_before(note: Path) -> None:
    ran(Source(), (5_000, 50_000))
    source = Source()
    begun(source)
    assert source.limits == [1_000]
    ran(Source(), (5_000, 50_000), *[(100, 1_000)] * 3)
    assert not note.exists()
    begun(source)
    assert source.limits == [1_000], "nothing more"


@pytest.mark.parametrize(
    ("changes", "of"),
    [
        ({"own": 500}, {}),
        ({"name": "other files"}, {}),
        ({"can": False}, {}),
        ({"keeps_time": True}, {}),
        ({}, {"target_ms": 0}),
        ({}, {"may_limit": False}),
    ],
)
def test_but_not_where_they_have_no_place(changes: dict[str, Any], of: dict[str, Any]) -> None:
    ran(Source(), (5_000, 50_000))
    source = Source()
    for name, value in changes.items():
        setattr(source, name, value)
    assert (begun(source, **of).limit_of(0), source.limits) == (IntakeLimit(), [])


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '[["rows", 7], ["rows", 7]]', '[["files", 7]]', "[[1, 2, 3, 4]]"]
)
def test_a_note_that_says_nothing_of_this_query_is_passed_over(note: Path, text: str) -> None:
    note.write_text(text, encoding="utf-8")
    source = Source()
    assert (begun(source).limit_of(0), source.limits) == (IntakeLimit(), [])
