"""What an attempt of a program says when its query is not the one that was planned."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.driver.program.query import differences
from app.model.analysis import queries
from app.model.graphdoc_program import graph_of, parse_program
from app.model.jobgraph import Role
from app.model.planned import Planned, PlannedVertex

SOURCE = PlannedVertex("words", Role.SOURCE, "kafka")
COUNTS = PlannedVertex("counts", Role.OPERATOR, "Aggregate", ("words",), stateful=True, state_partitions=8)
SINK = PlannedVertex("store", Role.SINK, "parquet", ("counts",))
PLANNED = (SOURCE, COUNTS, SINK)
(QUERY,) = queries(graph_of(parse_program({"name": "job", "script": "job.py"}), Planned(PLANNED)))


def test_the_query_that_was_planned_has_no_differences() -> None:
    assert differences(QUERY, PLANNED) == []


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
    assert sentence in differences(QUERY, found)
