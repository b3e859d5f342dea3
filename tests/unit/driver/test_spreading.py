"""When the rows of a source are spread over tasks, and when they are left where they are read."""

from __future__ import annotations

import pytest

from app.driver.load import Stage, StageTasks
from app.driver.valves.query_valves import Rows
from app.driver.valves.spark import WriterFacts
from app.driver.valves.spreading import SourceRun, Spreader, Spreading, goes_by_no_order, source_run
from app.model.analysis import Query, queries
from app.model.jobgraph import Role
from app.model.planned import PlannedVertex
from tests.program_graphs import grown_program

OWN, FRONT = Rows("files", 1, 1), Rows("work", 2, 4, is_front=True)
SPREAD = Rows("work", 2, 4, shuffles=True, is_front=True)


def narrow(ms: float, *, parts: int = 1, rows: int = 1_000, parallelism: int = 4) -> SourceRun:
    return SourceRun(parallelism, parts, rows, ms)


def spread(reading_ms: float, behind_ms: float, *, parts: int = 1, rows: int = 1_000) -> SourceRun:
    """Over four tasks that take as long as each other."""
    return SourceRun(4, parts, rows, reading_ms, behind_ms, 4 * behind_ms)


def noted(one: Spreading, *runs: SourceRun) -> list[bool]:
    found = []
    for run in runs:
        one.note(run)
        found.append(one.is_on)
    return found


def test_it_is_tried_after_two_long_batches_with_too_few_parts_and_stays_where_it_pays() -> None:
    one = Spreading()
    assert noted(one, narrow(2_000), narrow(2_000)) == [False, True]
    # One more was planned before. The first spread ones may take as long as without.
    assert noted(one, narrow(2_000), spread(100, 1_950), spread(100, 1_950), spread(100, 500)) == [True] * 4
    assert noted(one, *[spread(100, 500)] * 20) == [True] * 20


@pytest.mark.parametrize(
    "run",
    [
        narrow(2_000, parts=4),
        narrow(2_000, parts=0),
        narrow(100),
        narrow(2_000, rows=0),
        # So many rows take longer to be moved than they take in one task.
        narrow(1_000, rows=1_000_000),
        # One task more than seven is worth no shuffle.
        SourceRun(8, 7, 1_000, 2_000),
        SourceRun(1, 1, 1_000, 2_000),
    ],
)
def test_it_is_not_tried_where_it_cannot_pay(run: SourceRun) -> None:
    one = Spreading()
    assert not any(noted(one, *[run] * 20))
    # One long batch among others is none in a row.
    assert not any(noted(one, *[narrow(2_000), narrow(50)] * 10))


@pytest.mark.parametrize(
    "useless",
    [
        # What takes the time is the reading.
        spread(1_990, 100),
        # The tasks take turns on one core: by their own times they would save much.
        spread(10, 2_000),
    ],
)
def test_it_ends_where_it_does_not_pay_and_is_tried_again_later_each_time(useless: SourceRun) -> None:
    one = Spreading()
    waits = []
    for _ in range(6):
        wait = 0
        while not one.is_on:
            one.note(narrow(2_000))
            wait += 1
        waits.append(wait)
        assert noted(one, *[useless] * 3) == [True, True, False]
        # One that was planned before that.
        assert noted(one, useless) == [False]
    assert waits == [2, 8, 32, 128, 512, 512]
    # At other numbers of tasks it may be different.
    assert noted(one, *[narrow(2_000, parallelism=8)] * 2) == [False, True]


def test_it_ends_once_there_are_parts_enough_and_begins_as_soon_when_there_are_not() -> None:
    one = Spreading()
    noted(one, narrow(2_000), narrow(2_000), spread(100, 500))
    whole = spread(100, 500, parts=4)
    assert noted(one, whole, whole, spread(100, 500), whole, whole, whole) == [True] * 5 + [False]
    assert noted(one, narrow(600, parts=4), narrow(2_000), narrow(2_000)) == [False, False, True]


def test_it_ends_where_batches_get_small_and_begins_as_soon_when_they_grow() -> None:
    one = Spreading()
    noted(one, narrow(2_000), narrow(2_000), spread(100, 500))
    assert noted(one, *[spread(5, 12, rows=5)] * 3)[-1] is False
    assert noted(one, narrow(10, rows=5), narrow(2_000), narrow(2_000)) == [False, False, True]


def test_rows_that_have_become_cheap_end_it() -> None:
    one = Spreading()
    noted(one, narrow(2_000), narrow(2_000), spread(100, 500))
    assert noted(one, *[spread(90, 10)] * 3)[-1] is True, "alone they would take 130 ms, and not 2 s"
    assert noted(one, *[spread(100, 3)] * 3)[-1] is False


def test_the_work_of_a_source_is_read_from_the_stages_of_its_valves() -> None:
    def run(front: Rows, *stages: Stage) -> SourceRun | None:
        return source_run(OWN, front, stages, parallelism=4, rows=10)

    assert run(FRONT, Stage(0, 1, 900, frozenset({1, 2, 5}))) == SourceRun(4, 1, 10, 900)
    reads = Stage(0, 1, 50, frozenset({1}), by_task=StageTasks([60]))
    works = Stage(1, 4, 800, frozenset({2, 5}), by_task=StageTasks([300, 200, 200, 100]))
    # A function for each batch may work on it twice, and Spark reads it once.
    again = Stage(2, 4, 400, frozenset({2, 6}))
    assert run(SPREAD, reads, works, again) == SourceRun(4, 1, 10, 60, 400, 1_200)
    assert run(SPREAD, reads) is None and run(SPREAD, works) is None and run(FRONT) is None


def test_of_sources_that_are_united_in_a_stage_nothing_is_known() -> None:
    stage = Stage(0, 2, 900, frozenset({1, 7}))
    assert source_run(OWN, FRONT, [stage], {8}, parallelism=4, rows=10) is not None
    assert source_run(OWN, FRONT, [stage], {7}, parallelism=4, rows=10) is None


def test_sources_are_spread_each_by_itself() -> None:
    spreader = Spreader()
    for expected in (set(), {"a"}):
        assert spreader.note({"a": narrow(2_000), "b": narrow(20)}) == expected
    assert spreader.note({"b": narrow(20)}) == {"a"}, "one without rows stays as it is"


SOURCE = PlannedVertex("in", Role.SOURCE, "json")
COUNTS = PlannedVertex("counts", Role.OPERATOR, "Aggregate", ("in",), True, 4)


def query_of(*planned: PlannedVertex) -> Query:
    program = {"name": "p", "script": "job.py", "artifacts": ["job.py"]}
    sink = PlannedVertex("out", Role.SINK, "noop", (planned[-1].name,))
    (query,) = queries(grown_program(program, (*planned, sink)))
    return query


@pytest.mark.parametrize(
    ("facts", "own_format", "expected"),
    [
        (WriterFacts("parquet"), None, True),
        (WriterFacts("noop"), None, True),
        (WriterFacts("kafka"), None, False),
        (WriterFacts("console"), None, False),
        (WriterFacts("parquet", table="t"), None, False),
        (WriterFacts(None, foreach="foreachBatch"), None, False),
        (WriterFacts(None, foreach="foreach"), None, False),
        (WriterFacts(None, foreach="foreachBatch"), "sqlite", True),
        (WriterFacts(None, foreach="foreachBatch"), "python", False),
        (WriterFacts("kafka"), "kafka", False),
    ],
)
def test_a_sink_that_may_go_by_the_order_of_rows_is_left_alone(
    facts: WriterFacts, own_format: str | None, expected: bool
) -> None:
    assert goes_by_no_order(query_of(SOURCE), facts, own_format) is expected


def test_so_is_state_which_may_keep_what_comes_last() -> None:
    assert not goes_by_no_order(query_of(SOURCE, COUNTS), WriterFacts("parquet"), None)
