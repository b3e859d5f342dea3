"""When a query of a document has nothing more to do: a job must end, and not before a watermark has let out its last
rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.driver.program import document
from app.driver.program.document import DocumentQuery
from app.driver.program.handle import Handle
from app.driver.started_query import StartedQuery
from app.model.jobgraph import SourceSpec

ENDS = SourceSpec("rate", options=(("rowCount", "5"),))


class Place:
    """A query whose Spark is the test. Each time it is waited for, the next thing ``happens``."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, *sources: SourceSpec) -> None:
        self.offsets, self.commits = directory / "offsets", directory / "commits"
        self.offsets.mkdir()
        self.commits.mkdir()
        query: Any = DocumentQuery.__new__(DocumentQuery)
        query.query = SimpleNamespace(streams=[SimpleNamespace(operation=each) for each in sources])
        query.checkpoint = directory
        self.query: DocumentQuery = query
        self.happens: list[Callable[[], object]] = []
        self.log: list[str] = []
        self.handle: Any = SimpleNamespace(isActive=True, processAllAvailable=lambda: self.log.append("all"))
        monkeypatch.setattr(document, "time", SimpleNamespace(sleep=self._sleep))

    def _sleep(self, _s: float) -> None:
        assert self.happens, "it waits for what does not come"
        self.log.append("waited")
        self.happens.pop(0)()

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

    def await_end(self) -> None:
        self.query.await_end(self.handle)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Place]:
    return lambda *sources: Place(tmp_path, monkeypatch, *sources)


def test_it_ends_behind_its_last_rows_and_what_the_watermark_held_back(place: Callable[..., Place]) -> None:
    query = place(ENDS)
    query.happens = [lambda: query.read(4), lambda: query.planned(5), (query.commits / "1").touch]
    query.await_end()
    assert query.log == ["waited", "waited", "waited", "all"]


def test_a_source_without_rows_is_done_at_once(place: Callable[..., Place]) -> None:
    query = place(SourceSpec("rate", options=(("ROWCOUNT", "0"),)))
    query.await_end()
    assert query.log == ["all"]


@pytest.mark.parametrize("rows", [(5, None), (None, 5), (5, 4)])
def test_each_source_is_read_also_one_that_is_read_twice(
    place: Callable[..., Place], rows: tuple[int | None, ...]
) -> None:
    query = place(ENDS, ENDS)
    query.happens = [lambda: query.read(*rows), lambda: query.read(5, 5)]
    query.await_end()
    assert not query.happens


def test_a_query_that_has_failed_is_not_waited_for(place: Callable[..., Place]) -> None:
    query = place(ENDS)

    def fail() -> None:
        query.handle.isActive = False

    query.happens = [fail]
    query.await_end()
    assert query.log == ["waited", "all"]


def test_a_checkpoint_that_another_takes_the_place_of_is_looked_at_again(place: Callable[..., Place]) -> None:
    query = place(ENDS)
    query.happens = [lambda: (query.offsets / "0").write_text("v1"), lambda: query.read(5)]
    query.commits.joinpath("0").touch()
    query.await_end()
    assert not query.happens


@pytest.mark.parametrize(
    "other", [SourceSpec("rate"), SourceSpec("rate-micro-batch"), SourceSpec("csv", "/in")]
)
def test_a_source_that_spark_plans_itself_never_ends(place: Callable[..., Place], other: SourceSpec) -> None:
    assert place(ENDS).query.has_end
    query: Any = DocumentQuery.__new__(DocumentQuery)
    query.query = SimpleNamespace(streams=[SimpleNamespace(operation=each) for each in (ENDS, other)])
    assert not query.has_end


@pytest.mark.parametrize(
    ("busy", "waits"),
    [
        ({}, True),
        ({"message": "Waiting for next trigger"}, True),
        ({"message": "Initializing sources"}, False),
        ({"isTriggerActive": True}, False),
        ({"isDataAvailable": True, "message": "Waiting for next trigger"}, False),
    ],
)
def test_a_query_that_starts_or_has_a_batch_does_not_wait_for_data(busy: dict[str, Any], waits: bool) -> None:
    run: Any = StartedQuery.__new__(StartedQuery)
    run.gateway = SimpleNamespace(running_batch=None)
    run._valves = SimpleNamespace(apply_pending=lambda: True)
    status = {"isTriggerActive": False, "isDataAvailable": False, "message": "Waiting for data to arrive"}
    run._spark_query = SimpleNamespace(isActive=True, status={**status, **busy})
    assert run.waits_for_data is waits
    run.gateway.running_batch = 5
    assert not run.waits_for_data


class Ended:
    """A handle that ends when it was waited for so often."""

    def __init__(self, waits: int) -> None:
        self.waits = waits

    def awaitTermination(self, _s: int) -> bool:
        self.waits -= 1
        return self.waits < 0


def test_all_that_may_end_are_waited_for() -> None:
    handles: Any = [Ended(1), Ended(3), Ended(0)]
    document._await(handles, may_end=True)
    assert [each.waits for each in handles] == [-1, -1, -1]


def test_one_that_should_run_for_ever_fails_the_job() -> None:
    handles: list[Handle] = [Ended(5), Ended(2)]  # type: ignore[list-item]
    with pytest.raises(document.DriverError, match="ended by itself") as caught:
        document._await(handles, may_end=False)
    assert caught.value.recoverable
