"""Which plan a batch runs at, and by which its sources were split: the newest of them if there are several."""

from __future__ import annotations

from pathlib import Path

from app.driver.plans import Plans
from app.driver.sources.control import ControlFile, SourceSide


def split(directory: Path, source: str) -> None:
    """The source is split by the plan in force."""
    side = SourceSide(directory, source, source, "query")
    side.report_plan(side.plan()[0])


def test_of_several_sources_the_newest_plan_counts_that_split_one_of_them(tmp_path: Path) -> None:
    plans = Plans(ControlFile(tmp_path), 1, {"quiet": 1, "busy": 1})
    split(tmp_path, "quiet")
    split(tmp_path, "busy")
    assert plans.change(2, {"quiet": 2, "busy": 2})
    split(tmp_path, "busy")
    for sources in (("quiet", "busy"), ("busy", "quiet")):
        assert (found := plans.split_by(sources, "query")) is not None
        assert found.version == 2, "quiet had nothing new, so nothing was split"
    assert (found := plans.split_by(("quiet",), "query")) is not None
    assert found.version == 1


def test_sources_that_do_not_say_how_they_were_split_have_no_plan(tmp_path: Path) -> None:
    plans = Plans(ControlFile(tmp_path), 1, {"foreign": 1})
    assert plans.split_by(("foreign",), "query") is None


def test_an_older_plan_and_one_that_is_known_whole_are_not_taken_up(tmp_path: Path) -> None:
    plans = Plans(ControlFile(tmp_path), 3, {"busy": 1})
    assert not plans.change(2, {"busy": 2})
    assert not plans.change(3, {"busy": 3})
    assert plans.change(4, {"busy": 4}, whole=False)
    assert plans.change(4, {"busy": 5}) and not plans.change(4, {"busy": 6})
    assert (plans.current.version, plans.current.parallelism) == (4, {"busy": 5})


def test_a_plan_of_long_ago_is_forgotten(tmp_path: Path) -> None:
    plans = Plans(ControlFile(tmp_path), 1, {"busy": 1})
    split(tmp_path, "busy")
    for version in range(2, 17):
        plans.change(version, {"busy": version})
    assert (found := plans.split_by(("busy",), "query")) is not None
    assert found.version == 1
    plans.change(17, {"busy": 17})
    assert plans.split_by(("busy",), "query") is None
    assert plans.newest_with({"busy": 1}) is None


def test_a_plan_is_found_by_the_numbers_that_a_query_ran_at(tmp_path: Path) -> None:
    plans = Plans(ControlFile(tmp_path), 1, {"source": 1, "other query": 1})
    plans.change(2, {"source": 2, "other query": 1})
    plans.change(3, {"source": 2, "other query": 3})
    assert (found := plans.newest_with({"source": 2})) is not None
    assert found.version == 3
    assert (found := plans.newest_with({"source": 1})) is not None
    assert found.version == 1
    assert plans.newest_with({"source": 7}) is None
