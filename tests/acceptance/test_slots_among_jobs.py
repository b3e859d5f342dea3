"""Two jobs on the slots of one: who runs gives slots back in place for who comes, and gets them again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.deployment import SLOTS, Deployment, counting_in_place, deployed, wait_for

pytestmark = pytest.mark.timeout(600)

STATELESS = ("numbers", "counts", "store")


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployed(tmp_path_factory.mktemp("among")) as made:
        made.start(with_points=False)
        yield made


def explained(deployment: Deployment, job_id: str) -> str:
    return " ".join(deployment.get(f"/jobs/{job_id}/explanation")["sentences"])


def test_a_job_that_comes_gets_its_lower_bound_from_one_that_runs(
    deployment: Deployment, tmp_path: Path
) -> None:
    document = counting_in_place(deployment.directory, SLOTS, SLOTS)
    deployment.submit(document)
    deployment.await_settled()
    first, sink = deployment.job_id, deployment.sink
    before = deployment.job()
    records = len(deployment.history())

    other = {**counting_in_place(tmp_path, SLOTS, SLOTS), "name": "other"}
    for vertex in other["vertices"]:
        vertex |= {"parallelism": 2, "lowerBound": 2}
    deployment.submit(other)
    second = deployment.job_id
    assert set(deployment.parallelism().values()) == {2}

    deployment.job_id, deployment.sink = first, sink
    wait_for("the first one has given slots back", lambda: set(deployment.parallelism().values()) == {2})
    assert "Its share of the slots is 2" in explained(deployment, first)
    now = deployment.job()
    assert (now["driverPid"], now["state"]) == (before["driverPid"], "RUNNING")
    gave = deployment.history()[: len(deployment.history()) - records]
    assert [(one["triggerCause"], one["rung"]) for one in gave] == [("NEW_RESOURCE_AVAILABLE", "in-place")]
    assert (
        "given back, for other jobs"
        in deployment.get(f"/jobs/{first}/rescales/details/{gave[0]['rescaleUuid']}")["message"]
    )
    deployment.await_progress()

    deployment.call("PATCH", f"/jobs/{second}?mode=cancel")
    deployment.await_settled()
    assert set(deployment.parallelism().values()) == {SLOTS}
    assert deployment.job()["driverPid"] == before["driverPid"]
    deployment.stop()
    deployment.rows()
    deployment.check_ends()
