"""Redistribution of state on a real server with real drivers: there and back, and kill -9 at every point of it.

After each: the number that was asked for, one driver at a time, and a sink that is exact at every instant that is
looked at. `benchmarks/state_repartition.py` does the same with a million keys.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from app.driver.repartition import why_impossible
from tests.acceptance.commit_files import await_steady, check_gap
from tests.acceptance.deployment import Deployment, counting, deployed, is_alive, wait_for
from tests.acceptance.repartition_points import POINTS
from tests.acceptance.test_kill_driver import check_one_writer_at_a_time

pytestmark = pytest.mark.timeout(900)

MORE, FEWER = 6, 3
NAMES = ("numbers", "plain", "store")
WHY_NOT = why_impossible() or ""

redistributes = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    directory = tmp_path_factory.mktemp("repartition")
    with deployed(directory, points_in_drivers=True) as made:
        made.start(with_points=True)
        made.submit(counting(directory))
        yield made


def partitions(deployment: Deployment) -> int:
    (found,) = (one["maxParallelism"] for one in deployment.job()["vertices"] if one["name"] == "counts")
    return int(found)


def ask_for(deployment: Deployment, number: int) -> None:
    body: dict[str, Any] = {name: {"parallelism": {"lowerBound": 1, "upperBound": 2}} for name in NAMES}
    body["counts"] = {"parallelism": {"lowerBound": 1, "upperBound": number}}
    if number < partitions(deployment):
        body["counts"]["statePartitions"] = number
    answer = deployment.call("PUT", f"/jobs/{deployment.job_id}/resource-requirements", json=body)
    assert answer.is_success, answer.text


def ask_until(deployment: Deployment, point: str) -> tuple[int, int]:
    """Ask for the other number until a redistribution is seen at the armed ``point``: some are passed between two
    looks. The number, and that of the newest record before."""
    fired = partial(deployment.kills.fired, point)
    for _ in range(5):
        number = MORE if partitions(deployment) == FEWER else FEWER
        known = deployment.history()[0]["number"]
        ask_for(deployment, number)
        wait_for(f"{point} is reached", lambda number=number: fired() or partitions(deployment) == number)
        if fired():
            return number, known
        await_partitions(deployment, number, known)
    raise AssertionError(f"{point} was passed unseen five times")


def await_partitions(deployment: Deployment, number: int, known: int) -> list[dict[str, Any]]:
    """Wait until the job runs with so many; the records since ``known``, oldest first."""

    def there() -> bool:
        newest = deployment.history()[0]
        return (
            deployment.job()["state"] == "RUNNING"
            and partitions(deployment) == number
            and newest["number"] > known
            and newest["terminalState"] == "COMPLETED"
        )

    wait_for(f"the state has {number} partitions", there)
    return [one for one in reversed(deployment.history()) if one["number"] > known]


def state_directories(deployment: Deployment) -> set[str]:
    """The partitions of the newest version of the state, by the names of their directories."""
    (commits,) = (deployment.data_dir / "jobs" / deployment.job_id / "checkpoint").glob("*/commits")
    newest = max(int(entry.name) for entry in commits.iterdir() if entry.name.isdigit())
    versions = {str(newest), str(newest + 1)}
    files = (commits.parent / "state" / "0").glob("*/*.*")
    return {file.parent.name for file in files if file.name.split(".")[0] in versions}


@redistributes
def test_more_and_fewer(deployment: Deployment) -> None:
    before = deployment.job()["driverPid"]
    for number in (MORE, FEWER):
        await_steady(deployment)
        known = deployment.history()[0]["number"]
        ask_for(deployment, number)
        (record,) = await_partitions(deployment, number, known)[:1]
        assert record["rung"] == "state-repartition"
        assert f"to {number} partitions" in record["message"]
        check_gap(deployment, record)
        deployment.await_progress()
        wait_for(
            "the state is written in so many parts",
            lambda number=number: state_directories(deployment) == {str(one) for one in range(number)},
        )
    assert deployment.job()["driverPid"] == before, "in the same process"


def completed(deployment: Deployment, known: int) -> dict[str, Any]:
    """The first record after ``known`` that is completed."""

    def found() -> Any:
        records = [one for one in reversed(deployment.history()) if one["number"] > known]
        return next((one for one in records if one["terminalState"] == "COMPLETED"), None)

    record: dict[str, Any] = wait_for("a rescale is complete", found)
    return record


@pytest.mark.parametrize(
    ("vertex", "rung"),
    [("store", "in-place"), pytest.param("plain", "query-restart", marks=pytest.mark.long)],
)
def test_the_gap_of_a_rescale_is_that_of_the_commit_files(
    deployment: Deployment, vertex: str, rung: str
) -> None:
    await_steady(deployment)
    bounds = {**deployment.requirements()[1], vertex: (1, 1)}
    known = deployment.history()[0]["number"]
    answer = deployment.put(bounds, f"{vertex}-to-1")
    assert answer.is_success, answer.text
    record = completed(deployment, known)
    assert record["rung"] == rung
    check_gap(deployment, record)


@pytest.mark.long
@pytest.mark.parametrize("starts", [1, 3])
def test_the_gap_of_a_failover_has_the_starts_that_failed_in_it(deployment: Deployment, starts: int) -> None:
    await_steady(deployment)
    known, killed = deployment.history()[0]["number"], 0

    def another() -> int:
        pid = int(deployment.job()["driverPid"] or 0)
        return pid if pid != killed else 0

    for _ in range(starts):
        killed = wait_for("a driver is there", another)
        os.kill(killed, signal.SIGKILL)
    record = completed(deployment, known)
    assert record["rung"] == "new-driver"
    check_gap(deployment, record)


# Next to another one that shows nearly the same.
LONG = (
    "repartition-ordered",
    "repartition-copied",
    "repartition-begun",
    "repartition-half-written",
    "repartition-complete",
    "repartition-ready",
    "repartition-reported",
)


@redistributes
@pytest.mark.parametrize(
    "point", [pytest.param(point, marks=pytest.mark.long) if point in LONG else point for point in POINTS]
)
def test_killed_in_a_redistribution(deployment: Deployment, point: str) -> None:
    pid = int(deployment.job()["driverPid"])
    deployment.kills.arm(point)
    number, known = ask_until(deployment, point)
    wait_for("the driver is dead", lambda: not is_alive(pid))
    records = await_partitions(deployment, number, known)
    assert any(f"to {number} partitions" in (one["message"] or "") for one in records), records
    assert [one["terminalState"] for one in records if one["terminalState"] == "FAILED"] == []
    deployment.await_progress()
    deployment.check_ends()
    check_one_writer_at_a_time(deployment)


@redistributes
def test_the_server_dies_with_it(deployment: Deployment) -> None:
    deployment.kills.arm("repartition-half-written")
    number, known = ask_until(deployment, "repartition-half-written")
    deployment.kill_server()
    deployment.start(with_points=False)
    await_partitions(deployment, number, known)
    deployment.await_progress()


def test_after_all_of_them_the_output_is_exact(deployment: Deployment) -> None:
    deployment.stop()
    deployment.check_ends()
    assert deployment.rows() == deployment.committed_rows() > 0
