"""What is kept of single subtasks: sums since their number is what it is, and how they differed lately."""

from __future__ import annotations

import pytest

from app.load.subtasks import within_limit
from app.model.measured import TASKS_TOLD, TaskWork, VertexBatch
from tests.unit.load.reporting import Reporting


def batch(told: Reporting, *tasks: int, parallelism: int = 4) -> VertexBatch:
    """Of a source whose tasks had so many rows each, at 10 ms a row."""
    busy_ms = tuple(10 * rows for rows in tasks)
    work = TaskWork(busy_ms, tasks, tasks, (), ())
    rows = sum(tasks)
    return VertexBatch(
        told.source,
        parallelism,
        len(tasks),
        rows,
        rows,
        busy_ms=sum(busy_ms),
        by_task=work if tasks else None,
    )


def test_a_subtask_has_what_its_task_did_and_one_without_a_task_has_nothing() -> None:
    told = Reporting()
    told.batch(0, 1, 1, vertices=(batch(told, 90),))
    told.batch(1, 2, 1, vertices=(batch(told, 10, 20),))
    found = told.load.subtasks(told.source)
    assert found is not None
    assert list(found.total("records_in")) == [100, 20, 0, 0]
    assert list(found.total("busy_ms")) == [1_000, 200, 0, 0] and found.whole_ms == 2_000
    # Nothing was told of bytes.
    assert found.unknown == {"bytes_in", "bytes_out"} and found.shares("bytes_in") is None


def test_another_parallelism_and_another_attempt_begin_at_0() -> None:
    told = Reporting()
    told.batch(0, 1, 1, vertices=(batch(told, 90, 1),))
    told.batch(1, 2, 1, vertices=(batch(told, 5, 5, parallelism=2),))
    found = told.load.subtasks(told.source)
    assert found is not None and list(found.total("records_in")) == [5, 5]
    told.attempt += 1
    told.batch(2, 3, 1, vertices=(batch(told, parallelism=2),))
    assert told.load.subtasks(told.source) is None


def test_a_batch_whose_tasks_were_not_noted_makes_sums_incomplete() -> None:
    told = Reporting()
    told.batch(0, 1, 1, vertices=(batch(told, 1, 1, 1, 1),))
    told.batch(1, 2, 1, vertices=(batch(told),))
    found = told.load.subtasks(told.source)
    assert found is not None and "records_in" in found.unknown and list(found.total("records_in")) == [1] * 4


def test_so_does_one_before_any_was_noted() -> None:
    told = Reporting()
    told.batch(0, 1, 1, vertices=(batch(told),))
    told.batch(1, 2, 1, vertices=(batch(told, 1, 1, 1, 1),))
    found = told.load.subtasks(told.source)
    assert found is not None and "records_in" in found.unknown and list(found.total("records_in")) == [1] * 4


def test_there_is_room_for_so_many_subtasks_of_a_job() -> None:
    told = Reporting()
    half = TASKS_TOLD // 2 + 1
    for query in ("a", "b"):
        told.batch(0, 1, 1, query=query, vertices=(batch(told, 1, parallelism=half),))
    assert [each.subtasks.count for each in told.load.queries.values()] == [half, 0]


def test_how_subtasks_differ_is_told_of_the_last_minutes() -> None:
    told = Reporting()
    for second in range(200):
        rows = (30, 10, 0, 0) if second < 60 else (0, 10, 0, 30)
        told.batch(second, second + 1, 1, vertices=(batch(told, *rows),))
    found = told.load.subtasks(told.source)
    assert found is not None and found.shares("records_in") == pytest.approx([0.0, 0.25, 0.0, 0.75])
    assert list(found.total("records_in")) == [1_800, 2_000, 0, 4_200]


@pytest.mark.parametrize(
    ("work", "is_kept"),
    [
        ([TaskWork((1, 2), (3, 4))], True),
        ([TaskWork((1, 2), (3,))], False),
        ([TaskWork(tuple([1] * TASKS_TOLD))], True),
        ([TaskWork(tuple([1] * TASKS_TOLD)), TaskWork((1,))], False),
        ([], True),
    ],
)
def test_of_too_many_tasks_nothing_is_kept(work: list[TaskWork], is_kept: bool) -> None:
    assert within_limit(work, TASKS_TOLD) is is_kept
