"""When a query has nothing more to do: a job must end, and not before a watermark has let out its last rows."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.driver.checkpoints import Past
from app.driver.document_query import DocumentQuery
from app.driver.gap_meter import GapMeter
from app.driver.plans import Plans
from app.driver.progress import Committed
from app.driver.sources.opening import Splits
from app.model.jobgraph import SourceSpec

ENDS = SourceSpec("rate", options=(("rowCount", "5"),))


class Place:
    """A query whose Spark is the test: it says what was committed and when there was nothing to do."""

    def __init__(self, directory: Path, *sources: SourceSpec) -> None:
        self.offsets = directory / "offsets"
        self.commits = directory / "commits"
        self.offsets.mkdir()
        self.commits.mkdir()
        self.gateway = SimpleNamespace(running_batch=None, committed=lambda _batch: None)
        query: Any = DocumentQuery.__new__(DocumentQuery)
        query.query = SimpleNamespace(streams=[SimpleNamespace(operation=each) for each in sources])
        query.checkpoint_dir = directory
        query.gateway = self.gateway
        query.gaps = GapMeter(Past((), None))
        query.reached = query.applied_version = 0
        query.reprocessed_records = None
        query._plans = Plans(1, {})
        query._splits = Splits({}, {}, directory)
        query._past = Past((), None)
        query._begun_in, query._last_batch, query._idle_noted = directory, -1, -1
        query._has_nothing_to_do = False
        query._valves = SimpleNamespace(apply_pending=lambda: True)
        # What Spark says of the query.
        self.status = {"isTriggerActive": False, "isDataAvailable": False, "message": ""}
        query._spark_query = SimpleNamespace(isActive=True, status=self.status)
        self.query: DocumentQuery = query

    def planned(self, *rows: int | None) -> None:
        """A batch is planned, after which so many rows of each source have been read, of five."""
        offsets = [
            "-" if each is None else json.dumps({"1000": {"0": each} | ({"end": 0} if each == 5 else {})})
            for each in rows
        ]
        number = len(list(self.offsets.iterdir()))
        (self.offsets / str(number)).write_text("\n".join(["v1", "{}", *offsets]))

    def read(self, *rows: int | None) -> None:
        """The same, and the batch is in Spark's log of commits."""
        self.planned(*rows)
        (self.commits / str(len(list(self.offsets.iterdir())) - 1)).touch()

    def idle(self, message: str = "Waiting for data to arrive") -> None:
        self.status["message"] = message
        if self.query.waits_for_data:
            self.query.idle(1)

    def committed(self, batch_id: int) -> None:
        self.query.committed(Committed("run", "id", batch_id, 10, None, 5), 2_000)


def test_done_when_all_rows_are_read_and_there_was_nothing_to_do(tmp_path: Path) -> None:
    place = Place(tmp_path, ENDS)
    place.read(5)
    assert not place.query.is_done
    place.idle()
    assert place.query.is_done


def test_not_done_while_the_last_batch_is_planned_and_has_not_begun(tmp_path: Path) -> None:
    place = Place(tmp_path, ENDS)
    place.read(4)
    place.idle()
    place.planned(5)
    assert not place.query.is_done


def test_a_source_that_is_read_twice_is_at_its_end_in_both(tmp_path: Path) -> None:
    place = Place(tmp_path, ENDS)
    place.read(5, 4)
    place.idle()
    assert not place.query.is_done
    place.read(5, 5)
    assert place.query.is_done


def test_a_source_without_rows_is_done_at_once(tmp_path: Path) -> None:
    place = Place(tmp_path, SourceSpec("rate", options=(("ROWCOUNT", "0"),)))
    place.idle()
    assert place.query.is_done


def test_not_done_while_spark_may_still_run_a_batch_without_data(tmp_path: Path) -> None:
    place = Place(tmp_path, ENDS)
    place.read(4)
    place.idle()
    assert not place.query.is_done, "the source has more"
    # The last data came after a pause. Spark may still run what the watermark held back.
    place.read(5)
    place.committed(1)
    assert not place.query.is_done
    place.read(5)
    place.committed(2)
    assert not place.query.is_done
    # So it is behind a batch without data too, whose watermark may let out more at the next trigger.
    place.idle("Waiting for next trigger")
    assert not place.query.is_done
    place.idle()
    assert place.query.is_done


@pytest.mark.parametrize(
    "busy",
    [
        {"message": "Initializing sources"},
        {"isTriggerActive": True},
        {"isDataAvailable": True, "message": "Waiting for next trigger"},
    ],
)
def test_a_query_that_starts_or_has_a_batch_does_not_wait_for_data(
    tmp_path: Path, busy: dict[str, Any]
) -> None:
    place = Place(tmp_path, ENDS)
    place.status.update({"message": "Waiting for data to arrive", **busy})
    assert not place.query.waits_for_data


def test_not_done_while_a_batch_runs_though_an_earlier_pause_was_told_late(tmp_path: Path) -> None:
    place = Place(tmp_path, ENDS)
    place.read(5)
    place.idle()
    place.gateway.running_batch = 5
    assert not place.query.is_done


@pytest.mark.parametrize("rows", [(5, None), (None, 5), (5, 4)])
def test_done_only_when_each_source_is_read(tmp_path: Path, rows: tuple[int | None, ...]) -> None:
    place = Place(tmp_path, ENDS, ENDS)
    place.read(*rows)
    place.idle()
    assert not place.query.is_done
    place.read(5, 5)
    assert place.query.is_done


@pytest.mark.parametrize(
    "other", [SourceSpec("rate"), SourceSpec("rate-micro-batch"), SourceSpec("csv", "/in")]
)
def test_a_source_that_spark_plans_itself_never_ends(tmp_path: Path, other: SourceSpec) -> None:
    place = Place(tmp_path, ENDS, other)
    place.read(5, 0)
    place.idle()
    assert not place.query.is_done
