"""Into how many parts sources are told to split, before a query starts and while it runs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.driver.sources.opening import Splits, with_split_option
from app.model.jobgraph import SourceSpec

PARTS = "spark.sql.files.minPartitionNum"


@pytest.mark.parametrize(
    ("source", "options"),
    [
        (SourceSpec("kafka", options=(("subscribe", "t"),)), {"subscribe": "t", "minPartitions": "4"}),
        (SourceSpec("kafka", options=(("minpartitions", "9"),)), {"minpartitions": "9"}),
        (SourceSpec("rate-micro-batch"), {"numPartitions": "4"}),
        (SourceSpec("delta", options=(("startingVersion", "1"),)), {"startingVersion": "1"}),
        (SourceSpec("another", options=()), {}),
    ],
)
def test_a_format_that_is_told_before_has_the_parallelism_unless_the_job_says_more(
    source: SourceSpec, options: dict[str, str]
) -> None:
    assert with_split_option(source, 4) == options


def settings_of(monkeypatch: pytest.MonkeyPatch, splits: Splits) -> dict[str, str]:
    """The settings of the session of the source "v", which the test made up."""
    settings: dict[str, str] = {}
    made: Any = SimpleNamespace(conf=SimpleNamespace(set=settings.__setitem__))
    monkeypatch.setattr("app.driver.sources.opening.SparkSession", lambda *_: made)
    java = SimpleNamespace(cloneSession=lambda: None)
    splits.session("v", SimpleNamespace(sparkContext=None, _jsparkSession=java))  # type: ignore[arg-type]
    return settings


def test_up_before_the_next_batch_and_down_only_after_one_at_the_newest_plan(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    splits = Splits({}, {"v": 2, "rate": 1, "other": 1}, tmp_path / "parts")
    settings, file = settings_of(monkeypatch, splits), splits.file("rate")
    assert (settings[PARTS], file.read_text()) == ("2", "1")
    splits.raise_to({"v": 5, "rate": 4, "other": 1})
    assert (settings[PARTS], file.read_text()) == ("5", "4")
    splits.raise_to({"v": 3, "rate": 2, "other": 1})
    assert settings[PARTS] == "5", "a batch that is being planned may be at the plan before"
    splits.settle({"v": 3, "rate": 2, "other": 1})
    assert (settings[PARTS], file.read_text(), splits.wanted("v")) == ("3", "2", 3)


def test_what_the_job_says_of_it_holds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    splits = Splits({PARTS: "7"}, {"v": 2}, tmp_path)
    settings = settings_of(monkeypatch, splits)
    splits.raise_to({"v": 5})
    assert PARTS not in settings
