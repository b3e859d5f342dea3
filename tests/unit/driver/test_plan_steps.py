"""How a plan is taken up with the executors that come, without Spark: the test says how many are ready."""

from __future__ import annotations

from typing import Any

import pytest

from app.driver.plans import Plans, PlanSteps
from app.model.protocol import Orders


class Executors:
    """What `PlanSteps` asks and tells."""

    def __init__(self, ready: int) -> None:
        self.ready = self.wanted = ready
        self.have_had_time = False
        self.let_in = 0
        self.has_settled = False

    def settled(self) -> None:
        self.has_settled = True

    def request(self, count: int) -> None:
        self.wanted = count

    def let_in_ready(self) -> None:
        if self.let_in < self.ready:
            self.has_settled = False
        self.let_in = self.ready

    def let_in_all(self) -> None:
        self.let_in = max(self.ready, self.wanted)


class Place:
    def __init__(self, ready: int | None, program: str | None = None, /, **parallelism: int) -> None:
        self.plans = Plans(1, parallelism, program)
        self.executors: Any = Executors(ready) if ready is not None else None
        self.changes = 0
        # Whether executors that are too many were to stay whenever something was changed.
        self.waited: list[bool] = []
        self.reached = 1
        self.steps = PlanSteps(self.plans, self.executors, changed=self.changed, settled=lambda: self.reached)

    def changed(self) -> None:
        self.changes += 1
        self.waited.append(self.steps.is_waiting)

    def order(self, version: int, slots: int, **parallelism: int) -> None:
        self.steps.order(Orders(version, parallelism, "none", 1, slots=slots))

    def come(self, ready: int) -> None:
        self.executors.ready = ready
        self.steps.turn()

    @property
    def now(self) -> tuple[int, dict[str, int], bool]:
        plan = self.plans.current
        return plan.version, dict(plan.parallelism), plan.whole


def test_each_that_comes_is_a_step() -> None:
    place = Place(2, a=2, b=2)
    place.order(2, 5, a=5, b=5)
    assert place.now == (1, {"a": 2, "b": 2}, True) and place.changes == 0
    place.come(3)
    assert place.now == (2, {"a": 3, "b": 3}, False)
    assert place.executors.let_in == 3
    place.steps.turn()
    assert place.changes == 1, "nobody has come"
    place.come(4)
    assert place.now == (2, {"a": 4, "b": 4}, False) and place.steps.is_waiting
    place.come(5)
    assert place.now == (2, {"a": 5, "b": 5}, True) and not place.steps.is_waiting
    assert place.changes == 3


def test_the_next_ones_may_come_when_the_step_has_run_a_batch() -> None:
    place = Place(2, a=2)
    place.order(2, 4, a=4)
    place.come(3)
    place.steps.turn()
    assert not place.executors.has_settled
    place.reached = place.plans.current.number
    place.steps.turn()
    assert place.executors.has_settled


def test_each_vertex_goes_its_share_of_the_way_and_down_with_the_last_step() -> None:
    place = Place(4, source=1, counts=4, store=4)
    place.order(2, 8, source=2, counts=8, store=2)
    place.come(5)
    assert place.now[1] == {"source": 1, "counts": 5, "store": 4}
    place.come(7)
    assert place.now[1] == {"source": 1, "counts": 7, "store": 4}
    place.come(8)
    assert place.now == (2, {"source": 2, "counts": 8, "store": 2}, True)


def test_fewer_or_as_many_as_there_are_is_one_step() -> None:
    place = Place(5, a=5)
    place.order(2, 3, a=3)
    assert place.now == (2, {"a": 3}, True)
    place.order(3, 5, a=5)
    assert place.now == (3, {"a": 5}, True)


def test_without_a_cluster_nothing_is_waited_for() -> None:
    place = Place(None, a=1)
    place.order(2, 4, a=4)
    assert place.now == (2, {"a": 4}, True)


def test_those_that_do_not_come_are_not_waited_for() -> None:
    place = Place(2, a=2)
    place.order(2, 5, a=5)
    place.come(3)
    place.executors.have_had_time = True
    place.steps.turn()
    assert place.now == (2, {"a": 5}, True)
    assert place.executors.let_in == 5, "one that comes late may work at once"


def test_one_that_is_lost_on_the_way_takes_nothing_back_but_its_step() -> None:
    place = Place(2, a=2)
    place.order(2, 5, a=5)
    place.come(4)
    place.come(1)
    assert place.now == (2, {"a": 2}, False), "never below what it ran at before"
    place.come(5)
    assert place.now == (2, {"a": 5}, True)


@pytest.mark.parametrize(("slots", "expected"), [(3, {"a": 3}), (8, {"a": 4})])
def test_another_plan_on_the_way_goes_on_from_there(slots: int, expected: dict[str, int]) -> None:
    place = Place(2, a=2)
    place.order(2, 5, a=5)
    place.come(4)
    place.order(3, slots, a=slots)
    assert place.plans.current.parallelism == expected
    place.come(slots)
    assert place.now == (3, {"a": slots}, True)


def test_the_same_plan_again_begins_nothing_anew() -> None:
    place = Place(2, a=2)
    place.order(2, 4, a=4)
    place.come(3)
    place.order(2, 4, a=4)
    assert place.now == (2, {"a": 3}, False) and place.changes == 1
    place.come(4)
    place.order(2, 4, a=4)
    assert place.now == (2, {"a": 4}, True) and place.changes == 2


def test_a_batch_runs_at_the_step_whose_numbers_it_was_planned_with() -> None:
    place = Place(2, a=2)
    place.order(2, 5, a=5)
    place.come(3)
    place.come(5)
    assert (step := place.plans.newest_with({"a": 3})) is not None
    assert (step.version, step.whole) == (2, False)
    assert (last := place.plans.newest_with({"a": 5})) is not None
    assert last.whole


@pytest.mark.parametrize("to_come", [1, 3, 49])
def test_none_of_those_that_have_come_is_left_out(to_come: int) -> None:
    place = Place(1, a=1)
    place.order(2, 1 + to_come, a=1 + to_come)
    for ready in range(2, 2 + to_come):
        place.come(ready)
        assert place.now[1] == {"a": ready}


def test_until_a_lower_plan_is_in_force_none_is_given_up() -> None:
    """A query asks in its own thread, at any moment."""
    place = Place(5, a=5)
    request = place.executors.request

    def fewer(count: int) -> None:
        place.waited.append(place.steps.is_waiting)
        request(count)

    place.executors.request = fewer
    place.order(2, 2, a=2)
    assert place.waited == [True, True] and not place.steps.is_waiting
    assert place.now == (2, {"a": 2}, True)


def test_a_vertex_that_comes_on_the_way_is_no_step() -> None:
    place = Place(2, a=2)
    place.order(2, 4, a=4)
    place.come(3)
    place.plans.grow({"late": 12})
    changes = place.changes
    place.come(3)
    assert place.changes == changes and place.now == (2, {"a": 3, "late": 3}, False)
    place.come(4)
    assert place.now == (2, {"a": 4, "late": 3}, True)


@pytest.mark.parametrize("name", ["program", "counts"])
def test_the_first_query_of_a_program_comes_on_the_way(name: str) -> None:
    """One of its vertices may have the id of the one that stood for the program."""
    place = Place(2, name, **{name: 2})
    place.order(2, 5, **{name: 5})
    place.come(3)
    assert place.now == (2, {name: 3}, False)
    place.plans.grow({"source": 12, "counts": 1})
    for ready, whole in ((4, False), (5, True)):
        place.come(ready)
        assert place.now == (2, {"source": 3, "counts": 1}, whole)
