"""When a query has nothing more to do: a job must end, and not before a watermark has let out its last rows."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.driver.plans import Plans
from app.driver.progress import Committed
from app.driver.recovery import GapMeter, Past
from app.driver.running_query import RunningQuery
from app.driver.sources.control import ControlFile, SourceSide
from app.driver.sources.splits import Splits

KEY = "q"


class Place:
    """A query whose Spark is the test: it says what was committed and when there was nothing to do."""

    def __init__(self, directory: Path, *, sources: tuple[str, ...] = ("v",), others: int = 0) -> None:
        control = ControlFile(directory)
        self.sides = [SourceSide(directory, name, name, KEY) for name in sources]
        self.gateway = SimpleNamespace(running_batch=None, committed=lambda _batch: None)
        query: Any = RunningQuery.__new__(RunningQuery)
        query.query = SimpleNamespace(key=KEY, own_sources=sources, streams=(*sources, *("x" * others)))
        query.gateway = self.gateway
        query.gaps = GapMeter(Past((), None))
        query.reached = query.applied_version = 0
        query.reprocessed_records = None
        query._control = control
        query._plans = Plans(control, 1, dict.fromkeys(sources, 1))
        query._splits = Splits({}, dict.fromkeys(sources, 1))
        query._past = Past((), None)
        query._idle, query._idle_ms, query._valves = False, 0, None
        self.query: RunningQuery = query

    def exhausted(self, source: int = 0) -> None:
        self.sides[source].report_status(backlog=0, exhausted=True)

    def idle(self) -> None:
        self.query.idle(1_000)

    def committed(self, batch_id: int) -> None:
        self.query.committed(Committed("run", "id", batch_id, 10, None, 5), 2_000)


def test_done_when_the_source_is_exhausted_and_there_was_nothing_to_do(tmp_path: Path) -> None:
    place = Place(tmp_path)
    assert not place.query.is_done
    place.exhausted()
    place.idle()
    assert place.query.is_done


def test_not_done_while_spark_may_still_run_a_batch_without_data(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.idle()
    assert not place.query.is_done, "the source has more"
    # The last data came after a pause. That nothing is left is found before Spark runs what the watermark held back.
    place.committed(4)
    place.exhausted()
    assert not place.query.is_done
    place.committed(5)
    assert not place.query.is_done
    place.idle()
    assert place.query.is_done


def test_not_done_while_a_batch_runs_though_an_earlier_pause_was_told_late(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.exhausted()
    place.idle()
    place.gateway.running_batch = 5
    assert not place.query.is_done


@pytest.mark.parametrize("first", [0, 1])
def test_done_only_when_each_source_is_exhausted(tmp_path: Path, first: int) -> None:
    place = Place(tmp_path, sources=("v", "w"))
    place.idle()
    place.exhausted(first)
    assert not place.query.is_done
    place.exhausted(1 - first)
    assert place.query.is_done


def test_a_source_that_spark_plans_itself_never_ends(tmp_path: Path) -> None:
    place = Place(tmp_path, others=1)
    place.exhausted()
    place.idle()
    assert not place.query.is_done
