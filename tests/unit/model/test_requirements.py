"""Bounds of a PUT: production Flink's rules, all errors at once, and -1 resolved before anything is kept."""

from __future__ import annotations

import pytest

from app.documents.graph import parse_document
from app.model.jobgraph import JobGraph
from app.model.requirements import Bounds, Requirements, validate_bounds
from tests.unit.model.documents import COUNTS, FLIGHTS, STORE, changed, document

GRAPH: JobGraph = parse_document(document(FLIGHTS, changed(COUNTS, maxParallelism=8), STORE))
IDS = {vertex.name: vertex.id for vertex in GRAPH.vertices}
COUNTS_LABEL = f"job vertex {IDS['counts']} (counts)"


def wanted(lower: int, upper: int) -> dict[str, tuple[int, int]]:
    """Bounds for every vertex: these for the stateful one."""
    return {IDS["flights"]: (1, 1), IDS["counts"]: (lower, upper), IDS["store"]: (1, 1)}


@pytest.mark.parametrize(
    ("lower", "upper", "expected"),
    [(1, 8, (1, 8)), (8, 8, (8, 8)), (-1, 4, (1, 4)), (2, -1, (2, 8)), (-1, -1, (1, 8))],
)
def test_bounds_are_resolved(lower: int, upper: int, expected: tuple[int, int]) -> None:
    resolved, errors = validate_bounds(GRAPH, wanted(lower, upper))
    assert errors == []
    assert resolved[IDS["counts"]] == Bounds(*expected)
    assert set(resolved) == set(IDS.values())


@pytest.mark.parametrize(
    ("lower", "upper", "parts"),
    [
        (0, 4, ["must both be greater than zero"]),
        (1, 0, ["must both be greater than zero"]),
        (-2, 4, ["must both be greater than zero"]),
        (1, -2, ["must both be greater than zero"]),
        (5, 4, [f"lower bound 5 for {COUNTS_LABEL} is higher than its upper bound 4."]),
        (1, 9, [f"upper bound 9 for {COUNTS_LABEL} exceeds its maximum parallelism 8."]),
        (10, 9, ["is higher than its upper bound", "exceeds its maximum parallelism"]),
        (9, -1, [f"lower bound 9 for {COUNTS_LABEL} is higher than its upper bound 8."]),
    ],
)
def test_bounds_that_are_wrong(lower: int, upper: int, parts: list[str]) -> None:
    _, errors = validate_bounds(GRAPH, wanted(lower, upper))
    assert len(errors) == len(parts)
    for error, part in zip(errors, parts, strict=True):
        assert part in error


def test_missing_and_unknown_vertices_are_all_named() -> None:
    unknown = "f" * 32
    _, errors = validate_bounds(GRAPH, {IDS["flights"]: (2, 1), unknown: (1, 1)})
    assert len(errors) == 3
    assert "is higher than its upper bound" in errors[0]
    assert errors[1] == f"Job vertex {unknown} was not found in the job graph."
    assert errors[2] == (
        "The request is incomplete: bounds are missing for job vertices "
        f"{IDS['counts']} (counts), {IDS['store']} (store)."
    )


def test_nothing_wanted_is_incomplete() -> None:
    assert len(validate_bounds(GRAPH, {})[1]) == 1


def test_requirements_are_looked_up_and_compared() -> None:
    bounds = {IDS["flights"]: Bounds(1, 2), IDS["counts"]: Bounds(1, 8)}
    requirements = Requirements("0" * 32, 1, tuple(bounds.items()))
    assert requirements[IDS["counts"]] == Bounds(1, 8)
    with pytest.raises(KeyError):
        requirements["0" * 32]
