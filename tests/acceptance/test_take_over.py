"""Two servers on one PostgreSQL database: any of them answers, and one that is lost is followed by the other."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.acceptance.deployment import OK, is_alive, wait_for
from tests.acceptance.members import PATIENCE_S, Job, Server, Servers, servers_on

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def servers(postgresql_url: str, tmp_path: Path) -> Iterator[Servers]:
    with servers_on(tmp_path, postgresql_url, lease_seconds=12.0) as made:
        yield made


def await_letting_go(server: Server) -> None:
    """It has found out, by a write that was refused or by renewing its leases."""
    signs = ("ownership lost", "a job is another control plane's now")
    wait_for("it has let go", lambda: any(server.events(sign) for sign in signs), PATIENCE_S)


def progress(job: Job) -> None:
    before = job.rows()
    wait_for("more rows are written", lambda: job.rows() > before)


def test_the_owner_is_killed_and_another_takes_over(servers: Servers) -> None:
    first, second = servers.start(), servers.start()
    job = servers.submit(first)
    pid, attempt = job.show(second)["driverPid"], job.show(second)["attempt"]
    assert job.is_of(first)
    assert [one["state"] for one in servers.members(second)] == ["ALIVE", "ALIVE"]
    # Any process answers, and what it is told reaches the owner with its headers.
    assert job.put(second, 4, key="once").headers["ETag"] == '"2"'
    assert job.put(first, 4, key="once").headers["ETag"] == '"2"'
    job.await_parallelism(second, 4)
    stale = servers.call(
        second, "PUT", f"/jobs/{job.job_id}/resource-requirements", json={}, headers={"If-Match": '"1"'}
    )
    assert stale.status_code in (400, 412)

    progress(job)
    killed_s = time.time()
    first.kill()
    took_s = job.put_until_answered(second, 2)

    assert job.is_of(second)
    assert took_s < 10, "a death is seen at once; only one that is stopped keeps its lease"
    job.await_parallelism(second, 2)
    found = job.show(second)
    assert (found["driverPid"], found["attempt"]) == (pid, attempt), "adopted, not started again"
    progress(job)
    # 1 s is the interval of the batches.
    gap_s = job.longest_gap(killed_s - 5, time.time())
    usual_s = job.longest_gap(0, killed_s)
    assert gap_s < 5 + 2 * usual_s, f"{gap_s:.1f} s without a batch, {usual_s:.1f} s before"
    assert [row[0] for row in servers.query("SELECT state FROM attempts")] == ["LIVE"]

    third = servers.start()
    assert job.put(third, 4).status_code == OK
    job.await_parallelism(third, 4)
    assert job.show(third)["driverPid"] == pid
    assert [one["seat"] for one in servers.members(third)] == [1, 2]


@pytest.mark.long
def test_an_owner_that_was_stopped_changes_nothing_when_it_goes_on(servers: Servers) -> None:
    """While it is stopped its driver dies too, and its successor starts another one: it sees only the death."""
    first, second = servers.start(), servers.start()
    job = servers.submit(first)
    lost = job.show(second)["driverPid"]
    for _ in range(2):
        progress(job)
    first.stop()
    stopped_s = time.time()
    # This one waits for the owner that was: it is connected, and nobody reads.
    answers: list[httpx.Response] = []
    asking = threading.Thread(target=lambda: answers.append(job.put(first, 1)), daemon=True)
    asking.start()
    job.put_until_answered(second, 4)
    assert job.is_of(second)
    job.await_parallelism(second, 4)
    ((version, epoch),) = servers.query(
        "SELECT max(version), max(epoch) FROM requirements, leases WHERE requirements.job_id = %s", job.job_id
    )
    assert (version, epoch) == (2, 2)
    assert (job.show(second)["driverPid"], job.show(second)["attempt"]) == (lost, 1), "adopted"
    assert job.longest_gap(stopped_s - 5, time.time()) < 5 + 2 * job.longest_gap(0, stopped_s)

    os.kill(lost, signal.SIGKILL)
    wait_for("the next attempt runs", lambda: job.show(second)["attempt"] == 2)
    wait_for("it writes", lambda: job.show(second)["state"] == "RUNNING")
    pid = job.show(second)["driverPid"]
    progress(job)

    first.go_on()
    asking.join(PATIENCE_S)
    # It has nothing to say by itself: it is refused, or the new owner was asked.
    assert answers[0].status_code in (OK, 503), answers[0].text
    assert answers[0].status_code == 503 or answers[0].headers["ETag"] == '"3"'
    await_letting_go(first)
    progress(job)
    assert job.put_until_answered(first, 2) < PATIENCE_S
    job.await_parallelism(second, 2)
    assert job.show(first)["driverPid"] == pid == job.show(second)["driverPid"]
    assert is_alive(pid) and not is_alive(lost)
    rows = servers.query("SELECT attempt, state FROM attempts ORDER BY attempt")
    assert rows == [(1, "DEAD"), (2, "LIVE")]
    started = [entry["pid"] for entry in first.events("driver process started")]
    assert [one for one in started if one != lost and psutil.pid_exists(one)] == []


@pytest.mark.long
def test_a_deadline_is_kept_by_the_server_that_is_left(servers: Servers) -> None:
    alive = [servers.start() for _ in range(3)]
    job = servers.submit(alive[0])
    requirements = f"/jobs/{job.job_id}/resource-requirements"
    before, pid = servers.get(alive[0], requirements), job.show(alive[0])["driverPid"]
    upper = {"numbers": 4 * servers.slots, "plain": 2, "counts": servers.max_parallelism, "store": 2}
    body = {name: {"parallelism": {"lowerBound": 1, "upperBound": own}} for name, own in upper.items()}
    headers = {"X-Slotwise-Deadline": "25 s", "X-Slotwise-On-Timeout": "ROLLBACK"}
    answer = servers.call(alive[0], "PUT", requirements, json=body, headers=headers)
    assert (answer.status_code, answer.headers["ETag"]) == (OK, '"2"'), answer.text

    def queued() -> Any:
        return servers.get(alive[0], f"/jobs/{job.job_id}/explanation")["queued"]

    (waits,) = queued()
    assert servers.get(alive[0], requirements) == before, "what waits does not hold"
    for _ in range(2):
        owner = next(server for server in alive if job.is_of(server))
        owner.kill()
        alive.remove(owner)
        wait_for("another server has the job", lambda: any(map(job.is_of, alive)), PATIENCE_S)
    wait_for("it has taken it up", lambda: job.show(alive[0])["state"] == "RUNNING", PATIENCE_S)
    assert queued() == [waits], "the deadline is the one that was given"
    wait_for("the bounds that wait are dropped", lambda: queued() == [], PATIENCE_S)
    assert servers.get(alive[0], requirements) == before
    assert time.time() * 1000 >= waits["deadlineTimestampInMillis"]
    way_back, ended = servers.get(alive[0], f"/jobs/{job.job_id}/rescales/history")[:2]
    assert (way_back["rollbackOf"], ended["terminatedReason"]) == (
        ended["number"],
        "RESOURCE_REQUIREMENTS_UPDATED",
    )
    found = job.show(alive[0])
    assert (found["driverPid"], found["attempt"]) == (pid, 1), "nothing was restarted for it"
    progress(job)
