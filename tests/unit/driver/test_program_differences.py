"""Which query of its program a start is, what its vertices are called, and what is said if it is another one."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from app.driver.failures import DriverError
from app.driver.program import known
from app.driver.program.known import KnownQueries, differences
from app.driver.valves.shape import free_name
from app.model.analysis import queries
from app.model.jobgraph import Role
from app.model.planned import PlannedVertex
from tests.program_graphs import grown_program

SOURCE = PlannedVertex("words", Role.SOURCE, "kafka")
COUNTS = PlannedVertex("counts", Role.OPERATOR, "Aggregate", ("words",), stateful=True, state_partitions=8)
SINK = PlannedVertex("store", Role.SINK, "parquet", ("counts",))
PLANNED = (SOURCE, COUNTS, SINK)


def test_the_query_that_was_planned_has_no_differences() -> None:
    assert differences(PLANNED, PLANNED) == []


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        ((SOURCE, replace(SINK, inputs=("words",))), "counts was there before and is not now"),
        ((SOURCE, replace(SINK, inputs=("words",))), "store reads words now, and read counts before"),
        ((*PLANNED[:2], replace(SINK, name="other")), "other (parquet) is there now and was not before"),
        ((SOURCE, replace(COUNTS, stateful=False), SINK), "counts does not keep state now"),
    ],
)
def test_each_difference_is_told(found: tuple[PlannedVertex, ...], sentence: str) -> None:
    assert sentence in differences(PLANNED, found)


class Program:
    """Starts queries that read one source and count, without Spark."""

    def __init__(self, patch: pytest.MonkeyPatch, *stored: Any, on_trial: bool = False) -> None:
        self.noted: dict[str, str] = {}
        self.known = KnownQueries(stored, lambda sink: Noted(self.noted.get(sink)), on_trial=on_trial)  # type: ignore[arg-type,return-value]
        self.lines = 0
        self.runs: list[Run] = []

        def read_query(
            frame: Any, facts: Any, taken: set[str], _partitions: int
        ) -> tuple[PlannedVertex, ...]:
            names = set(taken)
            source = PlannedVertex(free_name(frame.source, names), Role.SOURCE, "kafka")
            found = [source]
            if frame.counts:
                counts = free_name("counts", names)
                found.append(PlannedVertex(counts, Role.OPERATOR, "Aggregate", (source.name,), stateful=True))
            sink = PlannedVertex(free_name(facts.name, names), Role.SINK, "parquet", (found[-1].name,))
            return (*found, sink)

        patch.setattr(known, "read_query", read_query)
        patch.setattr(known, "sink_name", lambda facts: facts.name)
        patch.setattr(known, "plan_digest", lambda frame: frame.plan)
        patch.setattr(known, "identity_of", lambda _session, checkpoint: checkpoint.removeprefix("file:"))

    def start(
        self,
        name: str,
        checkpoint: str | None = None,
        *,
        source: str = "words",
        counts: bool = True,
        plan: str = "",
    ) -> Run:
        frame: Any = SimpleNamespace(source=source, counts=counts, sparkSession=None, plan=plan)
        facts: Any = SimpleNamespace(name=name)
        found = self.known.read(frame, facts, checkpoint)
        self.lines += 1
        run = Run([vertex.name for vertex in found])
        noted = (*found[:-1], replace(found[-1], checkpoint=checkpoint))
        self.runs.append(run)
        self.known.note(noted, f"job.py, line {self.lines}", run)  # type: ignore[arg-type]
        return run


class Noted:
    """A directory of a query, with the note of its plan."""

    def __init__(self, plan: str | None) -> None:
        self._plan = plan

    def __truediv__(self, _name: str) -> Noted:
        return self

    def read_text(self, **_: Any) -> str:
        if self._plan is None:
            raise FileNotFoundError
        return self._plan


class Run:
    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.isActive = True

    def ends(self) -> list[str]:
        self.isActive = False
        return self.names


STORED = ["words", "counts", "store"]
SECOND = ["words 2", "counts 2", "store 2"]


def test_a_query_that_has_ended_is_itself_again_and_one_that_runs_takes_its_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = Program(monkeypatch)
    first = program.start("store")
    second = program.start("store")
    assert (first.names, second.names) == (STORED, SECOND)
    for _ in range(3):
        assert second.ends() == SECOND
        second = program.start("store")
        assert second.names == SECOND
    first.ends()
    assert program.start("store").names == STORED
    assert [vertex.name for vertex in program.known.vertices] == STORED + SECOND


def test_a_query_is_the_one_with_its_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    program = Program(monkeypatch)
    first = program.start("store", "/c/1")
    with pytest.raises(
        DriverError, match=r"a second query under the checkpoint file:/c/1, .* job.py, line 1;"
    ):
        program.start("other", "file:/c/1")
    assert program.start("store", "/c/2").names == SECOND
    first.ends()
    assert program.start("of this run", "file:/c/1").names == STORED
    assert program.start("store").names == ["words 3", "counts 3", "store 3"], "it has none of theirs"


def test_the_vertices_of_a_checkpoint_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    program = Program(monkeypatch)
    program.start("store", "/c/1").ends()
    with pytest.raises(DriverError, match=r"another query than at job.py, line 1: counts was there before"):
        program.start("store", "/c/1", counts=False)


def test_behind_an_end_may_come_another_query_of_that_name(monkeypatch: pytest.MonkeyPatch) -> None:
    program = Program(monkeypatch)
    program.start("store").ends()
    assert program.start("store", source="lines").ends() == ["lines", "counts 2", "store 2"]
    assert program.start("store").names == STORED


def test_what_is_stored_is_found_in_whatever_order_queries_are_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    later = (
        replace(SOURCE, name="words 2"),
        replace(COUNTS, name="counts 2", inputs=("words 2",)),
        replace(SINK, name="late", inputs=("counts 2",)),
        replace(SOURCE, name="words 3"),
        replace(SINK, name="own", inputs=("words 3",), checkpoint="/c/own"),
    )
    stored = queries(grown_program({"name": "job", "script": "job.py"}, PLANNED + later))
    program = Program(monkeypatch, *stored)
    assert program.start("x", "file:/c/own", counts=False).names == ["words 3", "own"]
    assert program.start("late").names == ["words 2", "counts 2", "late"]
    assert program.start("new").names == ["words 4", "counts 3", "new"], "those of absent queries are taken"
    assert program.start("own").names == ["words 5", "counts 4", "own 2"]
    assert program.start("store", counts=False).names == ["words", "store"], "another version has others"


def test_threads_may_start_their_queries_in_another_order_than_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    second = (replace(SOURCE, name="lines"), replace(SINK, name=f"{SINK.name} 2", inputs=("lines",)))
    stored = queries(grown_program({"name": "job", "script": "job.py"}, PLANNED + second))
    program = Program(monkeypatch, *stored)
    assert program.start(SINK.name, source="lines", counts=False).names == ["lines", f"{SINK.name} 2"]
    assert program.start(SINK.name).names == [vertex.name for vertex in PLANNED]


def test_a_query_with_another_checkpoint_is_itself_on_trial_and_else_one_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    vertices = (*PLANNED[:2], replace(SINK, checkpoint="/c/1"))
    stored = queries(grown_program({"name": "job", "script": "job.py"}, vertices))
    for place in ("/c/2", None):
        assert Program(monkeypatch, *stored).start("store", place).names == SECOND
        program = Program(monkeypatch, *stored, on_trial=True)
        assert program.start("store", place).names == STORED
        assert program.start("store", "/c/3").names == SECOND, "what this run has started has its names"


@pytest.mark.parametrize(
    ("plans", "names"),
    [
        (("b", "a"), [SECOND, STORED]),
        (("a", "b"), [STORED, SECOND]),
        (("a", "new"), [STORED, SECOND]),
        # What has none of these plans, because it has changed, is the first one that is free.
        (("new", "newer"), [STORED, SECOND]),
    ],
)
def test_two_of_one_shape_are_told_apart_by_their_plans(
    monkeypatch: pytest.MonkeyPatch, plans: tuple[str, str], names: list[list[str]]
) -> None:
    second = tuple(
        replace(one, name=name, inputs=tuple(f"{each} 2" for each in one.inputs))
        for one, name in zip(PLANNED, SECOND, strict=True)
    )
    stored = queries(grown_program({"name": "job", "script": "job.py"}, PLANNED + second))
    program = Program(monkeypatch, *stored)
    program.noted = {"store": "a", "store 2": "b"}
    assert [program.start("store", plan=plan).names for plan in plans] == names


def test_a_query_of_which_nobody_has_anything_any_more_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    program = Program(monkeypatch)
    program.start("store")
    assert program.start("store").names == SECOND
    program.runs.clear()
    assert program.start("store").names == STORED


def test_a_program_that_runs_on_has_the_queries_that_it_has_started(monkeypatch: pytest.MonkeyPatch) -> None:
    before, program = Program(monkeypatch), Program(monkeypatch)
    before.start("store")
    program.known.go_on_from(before.known)
    assert program.start("store").names == SECOND
