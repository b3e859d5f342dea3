"""Several servers share one pool of slots: of their host, and of a real Spark cluster."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.cluster.java import usable_java
from app.cluster.standalone.daemons import ClusterError, DevCluster
from tests.acceptance.deployment import wait_for
from tests.acceptance.members import PATIENCE_S, Job, Server, Servers, servers_on

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def servers(postgresql_url: str, tmp_path: Path) -> Iterator[Servers]:
    with servers_on(tmp_path, postgresql_url) as made:
        made.slots, made.max_parallelism = 2, 8
        yield made


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[DevCluster]:
    made = DevCluster(tmp_path / "cluster", java=usable_java())
    try:
        made.up()
        for _ in range(2):
            made.add(cores=3, memory_mb=1536)
        yield made
    finally:
        made.down()


def progress(job: Job) -> None:
    before = job.rows()
    wait_for("more rows are written", lambda: job.rows() > before)


def held(job: Job, server: Server) -> int:
    explained = job.servers.get(server, f"/jobs/{job.job_id}/explanation")
    return int(explained["slots"]["held"])


def held_once(servers: Servers) -> None:
    """In the states of all jobs, which are what their owners go by."""
    slots = [
        slot["id"]
        for (state,) in servers.query("SELECT state::json -> 'slots' FROM job_states WHERE ended_ms IS NULL")
        for slot in state
    ]
    assert len(slots) == len(set(slots)), slots


@pytest.mark.long
def test_a_job_has_the_slots_of_all_and_keeps_them_when_the_arbiter_is_killed(servers: Servers) -> None:
    first, second, third = servers.start(), servers.start(), servers.start()
    wait_for("all have slots", lambda: servers.get(first, "/overview")["slots-total"] == 6)
    job = servers.submit(third)
    pid = job.show(first)["driverPid"]
    job.put(second, 5)
    job.await_parallelism(second, 5)
    assert held(job, third) == 5, "more than one server has, or two"
    assert servers.arbiter() is first
    progress(job)

    killed_s = time.time()
    first.kill()
    wait_for("another one decides", lambda: servers.arbiter() in (second, third))
    took_over_s = time.time() - killed_s
    assert took_over_s < 10, "a death is seen at once"
    assert held(job, third) == 5
    job.put(second, 6)
    job.await_parallelism(second, 6)
    assert held(job, third) == 6, "the slots of the dead are the host's still"
    progress(job)
    found = job.show(second)
    assert (found["driverPid"], found["attempt"]) == (pid, 1)
    assert job.longest_gap(killed_s - 5, time.time()) < 5 + 2 * job.longest_gap(0, killed_s)
    held_once(servers)


@pytest.mark.long
def test_jobs_of_two_servers_get_their_shares_of_one_pool(servers: Servers) -> None:
    first, second = servers.start(), servers.start()
    wait_for("both have slots", lambda: servers.get(first, "/overview")["slots-total"] == 4)
    wide = servers.submit(first, "wide")
    wide.put(first, 4)
    wide.await_parallelism(first, 4)
    # The first owner has it already, so that the other one takes the next.
    narrow = servers.submit(second, "narrow")
    wait_for("the second one has its share", lambda: held(narrow, second) >= 1)
    held_once(servers)
    answer = servers.call(first, "PATCH", f"/jobs/{wide.job_id}", params={"mode": "cancel"})
    assert answer.is_success, answer.text
    narrow.put(first, 4)
    narrow.await_parallelism(first, 4)
    assert held(narrow, second) == 4


@pytest.mark.long
def test_two_servers_run_jobs_on_one_cluster(servers: Servers, cluster: DevCluster) -> None:
    servers.max_parallelism = 4
    servers.settings = {
        "SLOTWISE_CLUSTER_KIND": "spark-standalone",
        "SLOTWISE_CLUSTER_MASTER": cluster.master_url,
        "SLOTWISE_CLUSTER_WEBUI": cluster.webui_url,
    }
    first, second = servers.start(), servers.start()
    for one in (first, second):
        wait_for("it sees the cluster", lambda one=one: servers.get(one, "/overview")["slots-total"] == 6)
    jobs = [servers.submit(first, "one"), servers.submit(second, "two")]
    assert [job.is_of(server) for job, server in zip(jobs, (first, second), strict=True)] == [True, True]
    for job, server, upper in ((jobs[0], second, 3), (jobs[1], first, 3)):
        job.put(server, upper)
        job.await_parallelism(server, upper)
    wait_for("each has its executors", lambda: cores(cluster) == {job.job_id: 3 for job in jobs})
    held_once(servers)
    pids = [job.show(first)["driverPid"] for job in jobs]

    os.kill(first.process.pid, signal.SIGKILL)
    first.process.wait()
    took_s = jobs[0].put_until_answered(second, 2)
    assert took_s < 10
    jobs[0].await_parallelism(second, 2)
    jobs[1].put(second, 4)
    jobs[1].await_parallelism(second, 4)
    wait_for("slots moved", lambda: cores(cluster) == {jobs[0].job_id: 2, jobs[1].job_id: 4}, PATIENCE_S)
    assert [job.show(second)["driverPid"] for job in jobs] == pids, "drivers, and so executors, stayed"
    assert [job.show(second)["attempt"] for job in jobs] == [1, 1]
    for job in jobs:
        progress(job)
    held_once(servers)
    assert not any(one.events("the pool of slots met a defect") for one in servers.all)


def cores(cluster: DevCluster) -> dict[str, int]:
    """The cores that each job has, as the master says."""
    try:
        return {one.name.rpartition(" ")[2].rstrip("]"): one.cores for one in cluster.roster().applications}
    except ClusterError:  # its page took too long
        return {}
