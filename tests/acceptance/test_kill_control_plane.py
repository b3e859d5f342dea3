"""kill -9 of the control plane at named points of a rescale, of a restart and of a stop; then it is started again.

One job runs through all of it. After each kill: the driver that was alive is adopted and not restarted, what was
acknowledged is there, what was not is there whole or not at all, a retry acts once, every rescale ends once, the
bounds are reached, and the sink is exact.
"""

from __future__ import annotations

import contextlib
import os
import signal
import uuid
from collections.abc import Iterator

import httpx
import pytest

from tests.acceptance.deployment import OK, Deployment, counting, deployed, is_alive, wait_for

Bounds = dict[str, tuple[int, int]]

pytestmark = pytest.mark.timeout(900)

# In the order in which a PUT passes them. Whether the PUT must be there afterwards: None where it may be or not.
RESCALE_POINTS = {
    "put-received": False,
    "put-uncommitted": False,
    "put-committed": True,
    "plan-not-sent": True,
    "put-answered": True,
    "orders-answered": True,
    "plan-applied-received": True,
    "end-of-rescale-uncommitted": True,
    "end-of-rescale-committed": True,
}
LONG = (
    "put-received",
    "plan-not-sent",
    "orders-answered",
    "plan-applied-received",
    "end-of-rescale-uncommitted",
)
# Each takes a cold driver; `make long` has those that differ least from their neighbours.
START_POINTS = (
    pytest.param("driver-acquired", marks=pytest.mark.long),
    pytest.param("next-attempt-uncommitted", marks=pytest.mark.long),
    pytest.param("next-attempt-committed", marks=pytest.mark.long),
    "attempt-written",
    pytest.param("handed-over", marks=pytest.mark.long),
    pytest.param("register-received", marks=pytest.mark.long),
)
# The driver has the job: it is to be adopted.
ADOPTED = ("handed-over", "register-received")
BOUNDARY_POINTS = (
    pytest.param("boundary-not-answered", marks=pytest.mark.long),
    pytest.param("boundary-answered", marks=pytest.mark.long),
    pytest.param("stopped-received", marks=pytest.mark.long),
    "next-attempt-committed",
)


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    directory = tmp_path_factory.mktemp("control-plane")
    with deployed(directory) as made:
        made.start(with_points=True)
        made.submit(counting(directory))
        yield made


@pytest.fixture
def running(deployment: Deployment) -> Deployment:
    """The job at its bounds, under a server that has the points."""
    if deployment.server is None:
        start_again(deployment)
    deployment.await_settled()
    return deployment


def start_again(deployment: Deployment) -> None:
    """With the points, of which none is armed: the next test uses this server too."""
    deployment.kills.disarm()
    deployment.start(with_points=True)


def other_bounds(deployment: Deployment, *names: str) -> Bounds:
    """Bounds that ask for another parallelism of the named vertices."""
    _, bounds = deployment.requirements()
    other = {2: 4, 4: 2}
    return {name: (1, other[upper]) if name in names else (1, upper) for name, (_, upper) in bounds.items()}


def put_and_die(deployment: Deployment, point: str, wanted: Bounds, key: str) -> bool:
    """PUT with the point armed; whether it was acknowledged. The server is dead when this returns."""
    deployment.kills.arm(point)
    acknowledged = False
    with contextlib.suppress(httpx.TransportError):
        acknowledged = deployment.put(wanted, key).status_code == OK
    if point == "put-answered":
        assert acknowledged
        wait_for("the driver's orders are held back", lambda: deployment.kills.held(point))
        deployment.kill_server()
    else:
        status = deployment.await_end()
        assert status == -signal.SIGKILL, deployment.log_end()
        assert deployment.kills.fired(point)
    return acknowledged


def check_put(deployment: Deployment, before: int, old: Bounds, wanted: Bounds, *, known: bool) -> None:
    """The requirements are the old ones or the wanted ones, whole; and the wanted ones if that is ``known``."""
    version, bounds = deployment.requirements()
    assert (version, bounds) in (
        ((before, old), (before + 1, wanted)) if not known else ((before + 1, wanted),)
    )


def check_retry(deployment: Deployment, before: int, wanted: Bounds, key: str) -> None:
    """The same request again, twice, has the effect of one."""
    for _ in range(2):
        response = deployment.put(wanted, key)
        assert (response.status_code, response.headers["ETag"]) == (OK, f'"{before + 1}"')
    assert deployment.requirements() == (before + 1, wanted)
    found = deployment.query(
        "SELECT version, uuid FROM requirements WHERE job_id = ? AND version > ?", deployment.job_id, before
    )
    assert [version for version, _ in found] == [before + 1]


def check_one_rescale(deployment: Deployment, key: str) -> None:
    """The PUT has one record, and it is complete."""
    records = [one for one in deployment.history() if one["reason"] == key]
    assert [(one["triggerCause"], one["terminalState"]) for one in records] == [
        ("UPDATE_REQUIREMENT", "COMPLETED")
    ]


@pytest.mark.parametrize(
    "point",
    [pytest.param(point, marks=pytest.mark.long) if point in LONG else point for point in RESCALE_POINTS],
)
def test_killed_in_a_rescale_in_place(running: Deployment, point: str) -> None:
    pid, attempt = running.job()["driverPid"], running.job()["attempt"]
    before, old = running.requirements()
    wanted = other_bounds(running, "numbers", "counts")
    key = f"{point}-{uuid.uuid4().hex[:8]}"

    acknowledged = put_and_die(running, point, wanted, key)
    assert is_alive(pid), "the job runs without a control plane"
    running.await_progress()
    start_again(running)

    assert running.job()["driverPid"] == pid, "adopted, not restarted"
    check_put(running, before, old, wanted, known=acknowledged or RESCALE_POINTS[point])
    check_retry(running, before, wanted, key)
    running.await_settled()
    assert (running.job()["driverPid"], running.job()["attempt"]) == (pid, attempt)
    check_one_rescale(running, key)
    (record,) = (one for one in running.history() if one["reason"] == key)
    assert (record["rung"], record["reprocessedRecords"]) == ("in-place", 0)
    running.check_ends()
    running.await_progress()


@pytest.mark.parametrize("point", START_POINTS)
def test_killed_while_a_lost_driver_is_replaced(running: Deployment, point: str) -> None:
    lost = running.job()["driverPid"]
    known = {one["rescaleUuid"] for one in running.history()}
    running.kills.arm(point)
    os.kill(lost, signal.SIGKILL)
    assert running.await_end() == -signal.SIGKILL, running.log_end()
    assert running.kills.fired(point)
    live = running.query("SELECT pid FROM attempts WHERE job_id = ? AND state = 'LIVE'", running.job_id)

    start_again(running)
    running.await_settled()

    pid = running.job()["driverPid"]
    assert pid != lost
    assert is_alive(pid)
    if point in ADOPTED:
        assert live == [(pid,)], "the driver that had got the job kept it"
    new = [one for one in running.history() if one["rescaleUuid"] not in known]
    assert {one["triggerCause"] for one in new} == {"RECOVERABLE_FAILOVER"}
    assert [one["terminalState"] for one in new].count("COMPLETED") == 1
    running.check_ends()
    running.check_no_other_driver()
    running.await_progress()


@pytest.mark.parametrize("point", BOUNDARY_POINTS)
def test_killed_while_the_query_restarts(running: Deployment, point: str) -> None:
    before, old = running.requirements()
    wanted = other_bounds(running, "plain")
    key = f"{point}-{uuid.uuid4().hex[:8]}"

    acknowledged = put_and_die(running, point, wanted, key)
    start_again(running)

    check_put(running, before, old, wanted, known=True)
    assert acknowledged, "it was answered before the driver was told to stop"
    check_retry(running, before, wanted, key)
    running.await_settled()
    check_one_rescale(running, key)
    running.check_ends()
    running.check_no_other_driver()
    running.await_progress()


def test_in_the_end_the_output_is_exact(running: Deployment) -> None:
    """Also when the server is killed while the job drains: the stop goes on, by a server without points."""
    running.kills.arm("drain-not-answered")
    with contextlib.suppress(httpx.TransportError):
        running.call("POST", f"/jobs/{running.job_id}/stop", json={})
    running.await_end()
    running.start(with_points=False)
    running.await_status("FINISHED")
    running.check_ends()
    assert running.rows() == running.committed_rows() > 0
