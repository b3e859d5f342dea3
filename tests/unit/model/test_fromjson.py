"""What drivers are told comes back as it was from JSON, and what is something else is refused."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from app.model.batch import Output, RegionOrder, Skew
from app.model.fromjson import from_json
from app.model.jobgraph import Partitioner, Role
from app.model.planned import PlannedVertex
from app.model.protocol import Orders

ORDERS = Orders(
    3,
    {"a": 2},
    "drain",
    7,
    (RegionOrder(0, 1, {"a": 2}, 16, (), (Output("a-0", "a", Partitioner.HASH, ("k",), 8),)),),
    ("/results/a-0",),
    4,
    {"a": 1},
)
COUNTS = PlannedVertex("counts", Role.OPERATOR, "Aggregate", ("rows",), True, 12, fixed="it is")


def told(value: Any) -> Any:
    return json.loads(json.dumps(dataclasses.asdict(value)))


@pytest.mark.parametrize("value", [ORDERS, COUNTS])
def test_a_value_survives_json(value: Any) -> None:
    assert from_json(type(value), told(value)) == value


def test_fields_of_another_version_do_no_harm() -> None:
    order = told(ORDERS)
    order["regions"][0]["later"] = {"x": 1}
    del order["regions"][0]["skew"], order["restarts"]
    found = from_json(Orders, order)
    assert (found.regions[0].skew, found.restarts) == (Skew(), {})


def test_a_whole_number_may_stand_for_any() -> None:
    assert from_json(Skew, {**told(Skew()), "factor": 4}) == Skew(factor=4.0)


@pytest.mark.parametrize(
    "change",
    [
        {"plan_version": "3"},
        {"plan_version": True},
        {"plan_version": None},
        {"stop": "later"},
        {"results": "abc"},
        {"results": [1]},
        {"parallelism": [["a", 2]]},
        {"parallelism": {"a": 2.5}},
        {"regions": [None]},
        {"regions": [{"region": 1}]},
    ],
)
def test_something_else_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        from_json(Orders, {**told(ORDERS), **change})


@pytest.mark.parametrize("value", [None, [], "text", 5])
def test_what_is_no_mapping_is_refused(value: Any) -> None:
    with pytest.raises(TypeError):
        from_json(Orders, value)


def test_an_unknown_name_of_a_choice_is_refused() -> None:
    vertex = told(COUNTS)
    vertex["role"] = "MIDDLE"
    with pytest.raises(ValueError, match="MIDDLE"):
        from_json(PlannedVertex, vertex)
