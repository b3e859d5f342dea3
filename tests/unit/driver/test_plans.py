"""Which plan is in force, and which one a batch has run at."""

from __future__ import annotations

from app.driver.plans import Plans


def test_an_older_plan_and_one_that_is_known_whole_are_not_taken_up() -> None:
    plans = Plans(3, {"busy": 1})
    assert not plans.change(2, {"busy": 2})
    assert not plans.change(3, {"busy": 3})
    assert plans.change(4, {"busy": 4}, whole=False)
    assert plans.change(4, {"busy": 5}) and not plans.change(4, {"busy": 6})
    assert (plans.current.version, plans.current.parallelism) == (4, {"busy": 5})


def test_a_plan_of_long_ago_is_forgotten() -> None:
    plans = Plans(1, {"busy": 1})
    for version in range(2, 17):
        plans.change(version, {"busy": version})
    assert (found := plans.newest_with({"busy": 1})) is not None
    assert found.version == 1
    plans.change(17, {"busy": 17})
    assert plans.newest_with({"busy": 1}) is None


def test_a_plan_is_found_by_the_numbers_that_a_query_ran_at() -> None:
    plans = Plans(1, {"source": 1, "other query": 1})
    plans.change(2, {"source": 2, "other query": 1})
    plans.change(3, {"source": 2, "other query": 3})
    assert (found := plans.newest_with({"source": 2})) is not None
    assert found.version == 3
    assert (found := plans.newest_with({"source": 1})) is not None
    assert found.version == 1
    assert plans.newest_with({"source": 7}) is None


def test_new_vertices_are_in_the_plans_without_a_new_one() -> None:
    plans = Plans(1, {"source": 2, "busy": 5})
    plans.change(2, {"source": 3, "busy": 4})
    before = plans.current
    assert plans.grow({"source": 12, "late": 12, "narrow": 2}) == {"source": 3, "late": 4, "narrow": 2}
    now = plans.current
    assert (now.number, now.version, now.whole) == (before.number, before.version, before.whole)
    assert now.parallelism == {"source": 3, "busy": 4, "late": 4, "narrow": 2}
    assert (found := plans.newest_with({"late": 4})) is not None and found is now
    assert (found := plans.newest_with({"busy": 5})) is not None and found.version == 1
    assert Plans(1, {}).grow({"first": 12}) == {"first": 1}


def test_a_plan_without_vertices_that_came_meanwhile_leaves_them_as_they_are() -> None:
    plans = Plans(1, {"source": 2})
    plans.grow({"late": 12})
    assert plans.change(2, {"source": 4})
    assert plans.current.parallelism == {"source": 4, "late": 2}
    assert plans.change(3, {"source": 4, "late": 1})
    assert plans.current.parallelism == {"source": 4, "late": 1}


def test_a_plan_of_fewer_slots_without_vertices_that_came_meanwhile_keeps_them_within_these() -> None:
    plans = Plans(1, {"source": 4, "busy": 2})
    plans.grow({"late": 12})
    assert plans.change(2, {"source": 1, "busy": 2})
    assert plans.current.parallelism == {"source": 1, "busy": 2, "late": 2}


def test_the_first_query_of_a_program_runs_within_its_slots_and_the_vertex_of_the_program_is_gone() -> None:
    plans = Plans(1, {"program": 2}, "program")
    assert plans.change(2, {"program": 4}) and plans.of_vertices({"program": 4}) == {"program": 4}
    assert plans.grow({"source": 3, "counts": 12}) == {"source": 3, "counts": 4}
    assert plans.current.parallelism == {"source": 3, "counts": 4} and plans.current.version == 2
    assert (found := plans.newest_with({"counts": 4})) is plans.current and found is not None
    # From a control plane that has not heard of the query.
    assert plans.change(3, {"program": 3})
    assert plans.current.parallelism == {"source": 3, "counts": 3} and plans.current.version == 3
    assert plans.change(4, {"source": 1, "counts": 6})
    assert plans.grow({"late": 12}) == {"late": 6}, "a later one is one more"
    assert plans.current.parallelism == {"source": 1, "counts": 6, "late": 6}


def test_a_vertex_of_the_first_query_may_have_the_id_of_the_program() -> None:
    plans = Plans(1, {"counts": 4}, "counts")
    assert plans.grow({"source": 12, "counts": 2}) == {"source": 4, "counts": 2}
    assert plans.change(2, {"counts": 8})
    assert plans.current.parallelism == {"source": 4, "counts": 2}, "it was said of the program"
    assert plans.change(3, {"source": 4, "counts": 3})
    assert plans.current.parallelism == {"source": 4, "counts": 3}
