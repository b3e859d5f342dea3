"""How much a source may give to the next batch, by what the one before took."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.driver.intake import DEFAULT_TARGET_MS, INTAKE_NOTE, Intake, Taken, next_limit
from app.driver.progress import IntakeLimit

TARGET_MS = 10_000


@pytest.mark.parametrize(
    ("count", "limit", "took_ms", "expected"),
    [
        # A heap: what can be worked off in the target.
        (5_000, None, 50_000, 1_000),
        # It gets long, though it is not too long yet: the next one may have so much more.
        (1_000, None, 5_000, 2_000),
        # All is well.
        (1_000, None, 2_000, None),
        (1_000, 5_000, 2_000, 5_000),
        # More was left behind than the limit let through, and it took no time.
        (1_000, 1_000, 1_000, 4_000),
        (950, 1_000, 1_000, 4_000),
        # Slower than it was, or faster.
        (1_000, 1_000, 20_000, 500),
        (1_000, 1_000, 8_000, 1_250),
        # Close enough.
        (1_000, 1_000, 10_500, 1_000),
        (1_000, 1_000, 9_500, 1_000),
        # Never nothing.
        (1, None, 600_000, 1),
        (1, 1, 600_000, 1),
        # Of a sink that reads twice Spark counts twice.
        (2_000, 1_000, 10_000, 1_000),
        # The batch had nothing of this source.
        (0, None, 50_000, None),
        (0, 300, 50_000, 300),
    ],
)
def test_the_next_limit_is_what_fills_the_target(
    count: int, limit: int | None, took_ms: int, expected: int | None
) -> None:
    assert next_limit(Taken("rows", count, None), limit, took_ms, TARGET_MS) == expected


def test_never_beyond_what_the_program_allows() -> None:
    assert next_limit(Taken("files", 100, own=100), None, 5_000, TARGET_MS) is None
    assert next_limit(Taken("files", 100, own=100), None, 20_000, TARGET_MS) == 50
    assert next_limit(Taken("files", 50, own=100), 50, 1_000, TARGET_MS) is None
    assert next_limit(Taken("files", None, own=100), None, 1_000, TARGET_MS) is None


def test_a_source_that_does_not_tell_is_taken_to_have_given_all_that_it_may() -> None:
    limit: int | None = None
    seen = []
    # 40 files of 2.5 s each come for each batch, and there may be 1000.
    for _ in range(4):
        limit = next_limit(Taken("files", None, own=1_000), limit, min(limit or 1_000, 40) * 2_500, TARGET_MS)
        seen.append(limit)
    assert seen == [100, 10, 4, 4]
    assert next_limit(Taken("files", None, own=1_000), 4, 500, TARGET_MS) == 16
    assert next_limit(Taken("files", None, own=1_000), 300, 500, TARGET_MS) is None


class Source:
    """In the place of Java's: one source, or none that can be limited, of a query with an ``interval_ms``."""

    def __init__(self, *, keeps_time: bool = False, interval_ms: int = 0, can: bool = True) -> None:
        self.keeps_time, self.interval_ms, self.can = keeps_time, interval_ms, can
        self.count, self.own = 0, -1
        self.limits: list[int] = []

    def keepsTime(self) -> bool:
        return self.keeps_time

    def intervalMs(self) -> int:
        return self.interval_ms

    def taken(self) -> str:
        return json.dumps([["rows", self.count, self.own] if self.can else []])

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
    assert ran(source, (5_000, 50_000), *quiet[1:], (1_000, 9_800), *quiet[1:]).limit_of(0).most == 1_000
    assert ran(source, (5_000, 50_000)).limit_of(0) == IntakeLimit("rows", 1_000)


def test_quick_batches_do_not_even_ask_java() -> None:
    def never(_: Any) -> Any:
        raise AssertionError

    intake = Intake(Path(INTAKE_NOTE), target_ms=None, make=never)
    intake.batch_ended(DEFAULT_TARGET_MS / 5)
    assert intake.limit_of(0) == IntakeLimit()


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
    assert ran(Source(can=False), (5_000, 5_000)).limit_of(0) == IntakeLimit()


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
    assert (begun(source).limit_of(0), source.limits) == (IntakeLimit("rows", 1_000), [1_000])
    ran(Source(), (5_000, 50_000), *[(100, 1_000)] * 3)
    assert not note.exists()
    assert (begun(source).limit_of(0), source.limits) == (IntakeLimit(), [1_000])


@pytest.mark.parametrize(
    ("changes", "of"),
    [
        ({"own": 500}, {}),
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
