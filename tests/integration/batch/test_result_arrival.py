"""On a cluster, a result of which something is not where the driver looks is none: its region fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.driver import arrivals
from app.driver.batch import results, storage
from app.driver.batch.region import RegionDone
from app.driver.batch.results import MANIFEST
from app.driver.batch.storage import DataFile, Storage
from app.model.batch import Output
from app.model.jobgraph import Partitioner
from tests.integration.batch.harness import REMOTE, ROWS, Regions, written
from tests.integration.batch.test_regions import COUNTS

COUNT = ("counts", ["left[k]"], "SELECT k, count(*) AS n FROM left GROUP BY k")


@pytest.fixture(autouse=True)
def as_on_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "is_on_this_host", lambda _frame: False)
    monkeypatch.setattr(arrivals, "APPEARS_S", 0.0)


def see(monkeypatch: pytest.MonkeyPatch, visible: Callable[[list[DataFile]], list[DataFile]]) -> None:
    """Of what lies in a directory, the driver sees what is ``visible``."""
    for kind in (storage.LocalStorage, storage.HadoopStorage):
        listed = kind.data_files

        def data_files(self: Storage, place: str, listed: Any = listed) -> list[DataFile]:
            return visible(listed(self, place))

        monkeypatch.setattr(kind, "data_files", data_files)


def first_run(job: Regions) -> RegionDone:
    job.begin()
    (order,) = job.job.orders.values()
    return job.alone(order)


@pytest.mark.parametrize(("rule", "root"), [("even-data", None), ("flip-187", REMOTE)])
def test_results_that_are_whole_are_as_ever(
    regions: Callable[..., Regions], rule: str, root: str | None
) -> None:
    job = regions(COUNT, rule=rule, root=root)
    job.run()
    assert written(job) == COUNTS
    assert sum(job.done[0].results[0].rows_of) == ROWS


@pytest.mark.parametrize("root", [None, REMOTE])
def test_a_result_of_which_a_file_is_elsewhere_fails_its_region(
    regions: Callable[..., Regions], monkeypatch: pytest.MonkeyPatch, root: str | None
) -> None:
    gone = 0

    def without_the_first(found: list[DataFile]) -> list[DataFile]:
        nonlocal gone
        gone = found[0].rows
        return found[1:]

    see(monkeypatch, without_the_first)
    job = regions(COUNT, root=root)
    ended = first_run(job)
    assert ended.results == () and ended.lost == ()
    failure = ended.failure
    assert failure is not None and failure.recoverable and failure.user_error is None
    assert failure.vertex == "left"
    result_dir = failure.sentence.partition(" row(s) into ")[2].partition(",")[0]
    assert failure.sentence == (
        f"Vertex left: Tasks wrote {ROWS} row(s) into {result_dir}, and {ROWS - gone} of them are there: the driver "
        "and all executors have to see the same directory under this path (the server's settings jobs_dir and "
        "results_url say where it is)."
    )
    assert gone and result_dir.startswith(job.results)
    assert not list(Path(job.directory).rglob(MANIFEST))


def test_a_result_that_nobody_sees_is_not_an_empty_one(
    regions: Callable[..., Regions], monkeypatch: pytest.MonkeyPatch
) -> None:
    see(monkeypatch, lambda _found: [])
    ended = first_run(regions(COUNT))
    assert ended.failure is not None and "and 0 of them are there" in ended.failure.sentence


@pytest.mark.parametrize("partitioner", [Partitioner.HASH, Partitioner.REBALANCE, Partitioner.BROADCAST])
def test_a_result_that_is_on_its_way_is_waited_for(
    session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partitioner: Partitioner
) -> None:
    looks = 0

    def one_by_one(found: list[DataFile]) -> list[DataFile]:
        nonlocal looks
        looks += 1
        return found[: looks - 1]

    monkeypatch.setattr(arrivals, "APPEARS_S", 60.0)
    monkeypatch.setattr(arrivals, "_LOOK_S", 0.01)
    see(monkeypatch, one_by_one)
    hashed = partitioner is Partitioner.HASH
    output = Output("d" * 32, "p" * 32, partitioner, ("id",) if hashed else (), 3)
    frame = session.range(0, 100, 1, 2)
    made = results.write_result(
        storage.LocalStorage(), frame, output, str(tmp_path / "result"), 1, table=f"on_its_way_{partitioner}"
    )
    files = {Partitioner.HASH: 6, Partitioner.REBALANCE: 2, Partitioner.BROADCAST: 1}[partitioner]
    assert looks == files + 1
    assert sum(made.rows_of) == 100
    assert len(results.check_result(storage.LocalStorage(), made)["files"]) == files


def test_an_empty_result_is_whole(regions: Callable[..., Regions]) -> None:
    job = regions(
        ("none", ["left"], "SELECT k, n FROM left WHERE n < 0"),
        ("counts", ["none[k]"], "SELECT k, count(*) AS n FROM none GROUP BY k"),
    )
    job.run()
    assert sum(job.done[0].results[0].rows_of) == 0
    assert written(job) == []
