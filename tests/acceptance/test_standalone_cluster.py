"""A real Spark standalone cluster: executors come and go under a query that is never stopped, workers and the master
are lost."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import uuid
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from app.cluster.java import usable_java
from app.cluster.standalone.daemons import ClusterError, DevCluster
from tests.acceptance.chaos_events import children_of, is_executor
from tests.acceptance.clusters import on_executors
from tests.acceptance.deployment import (
    Deployment,
    counting_in_place,
    deployed,
    wait_for,
)

pytestmark = pytest.mark.timeout(900)

MOST = 4
AWAY = "the Spark master is away"
STATELESS = ("numbers", "counts", "store")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    made = DevCluster(tmp_path_factory.mktemp("cluster"), java=usable_java())
    try:
        made.up()
        for _ in range(MOST // 2):
            made.add(cores=2, memory_mb=1024)
        yield made
    finally:
        made.down()


@pytest.fixture(scope="module")
def deployment(cluster: DevCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployed(tmp_path_factory.mktemp("standalone"), cluster=cluster) as made:
        made.start(with_points=False)
        made.submit(on_executors(counting_in_place(made.directory, 2, 2 * MOST)))
        yield made


def require(deployment: Deployment, upper: int) -> None:
    answer = deployment.put(dict.fromkeys(STATELESS, (1, upper)), f"to-{upper}-{uuid.uuid4().hex}")
    assert answer.is_success, answer.text


def executors(cluster: DevCluster) -> int:
    try:
        return sum(one.cores for one in cluster.roster().applications)
    except ClusterError:  # its page took too long, or it is away
        return -1


def executor_processes(cluster: DevCluster) -> list[psutil.Process]:
    return [one for worker in cluster.workers for one in children_of(worker.pid) if is_executor(one)]


def runs_at(deployment: Deployment, parallelism: int) -> None:
    def reached() -> bool:
        ended = all(one["terminalState"] for one in deployment.history())
        return ended and set(deployment.parallelism().values()) == {parallelism}

    try:
        wait_for(f"every vertex runs at {parallelism}", reached)
    except AssertionError as error:
        said = deployment.get(f"/jobs/{deployment.job_id}/explanation")["sentences"]
        offered = [(one["id"], one["slotsNumber"], one["freeSlots"]) for one in managers(deployment)]
        raise AssertionError(f"{error}\n{said}\n{offered}\n{deployment.log_end()}") from None


def times_opened(cluster: DevCluster) -> int:
    """How often executors have opened the database of a state partition."""
    logs = cluster.directory.glob("worker-*/app-*/*/stderr")
    return sum(log.read_text(errors="replace").count("Opened DB with conf") for log in logs)


def managers(deployment: Deployment) -> list[Any]:
    return list(deployment.get("/taskmanagers")["taskmanagers"])


def test_executors_come_and_go_under_a_query_that_runs_on(
    deployment: Deployment, cluster: DevCluster
) -> None:
    require(deployment, 2)
    runs_at(deployment, 2)
    wait_for("there are two executors", lambda: executors(cluster) == 2)

    def counted(number: int) -> bool:
        told = deployment.get(f"/jobs/{deployment.job_id}/explanation")["executors"]
        return bool(told == {"present": number, "wanted": number, "shortSinceInMillis": None})

    wait_for("the explanation counts them", lambda: counted(2))
    run = deployment.job()["queries"][0]["runId"]

    for upper in (MOST, 3):
        require(deployment, upper)
        runs_at(deployment, upper)
        wait_for(f"there are {upper} executors", lambda upper=upper: executors(cluster) == upper)
        # On a slow machine the plan may be in force before the last of them is warmed up.
        wait_for("all have been let in", lambda upper=upper: counted(upper))
        # The newest gets the last quarter of its share in the fourth batch. After that no batch moves state to another
        # executor, where it would be opened anew.
        for _ in range(4):
            deployment.await_progress()
        opened = times_opened(cluster)
        deployment.await_progress()
        deployment.await_progress()
        assert times_opened(cluster) == opened
    assert deployment.job()["queries"][0]["runId"] == run
    assert {one["rung"] for one in deployment.history()[:2]} == {"in-place"}
    said = "".join(log.read_text() for log in deployment.data_dir.glob("run/driver-*.log"))
    assert [number for number in (2, 3) if f"executor {number} is warm" not in said] == []
    assert "was not warmed up" not in said
    assert "Exception in thread" not in said


def jvms(deployment: Deployment, cluster: DevCluster) -> dict[str, int]:
    """The processes of which there are figures: the driver's JVM and the executors, by their ids."""
    driver = psutil.Process(deployment.job()["driverPid"])
    (own,) = [one for one in driver.children(recursive=True) if one.name() == "java"]
    found = {"driver": own.pid}
    for one in executor_processes(cluster):
        line = one.cmdline()
        found[line[line.index("--executor-id") + 1]] = one.pid
    return found


def heap_of(pid: int) -> int:
    """The largest heap of an executor, as its command line has it."""
    (size,) = [word for word in psutil.Process(pid).cmdline() if word[:4] == "-Xmx"]
    return int(size[4:-1]) << {"M": 20, "G": 30}[size[-1].upper()]


def collected_ms(pid: int) -> float:
    """How long the JVM has collected garbage, by its own counters."""
    done = subprocess.run(["jstat", "-gcutil", str(pid)], capture_output=True, text=True, check=True)
    names, values = (line.split() for line in done.stdout.splitlines())
    return 1000 * float(dict(zip(names, values, strict=True))["GCT"].replace(",", "."))


@pytest.mark.long
def test_what_executors_use_and_what_they_write_is_told(deployment: Deployment, cluster: DevCluster) -> None:
    """Each is compared with its own process."""
    path = f"/jobs/{deployment.job_id}"
    for upper in (3, MOST):
        require(deployment, upper)
        runs_at(deployment, upper)
        # The fourth was given up before: it ends a moment after the master has let it go.
        wait_for(f"{upper} executors", lambda upper=upper: len(jvms(deployment, cluster)) == upper + 1)
        pids = jvms(deployment, cluster)
        before = {key: collected_ms(pid) for key, pid in pids.items()}

        # An executor reports to Spark every ten seconds.
        def caught_up(before: dict[str, float] = before) -> Any:
            found = {each["id"]: each for each in deployment.get(f"{path}/executors")["executors"]}
            is_new = found.keys() == before.keys() and all(
                each["heapUsedInBytes"] and each["gcTimeInMillis"] >= 0.9 * before[key]
                for key, each in found.items()
            )
            return found if is_new else None

        found = wait_for("all have reported", caught_up, 90)
        for key, pid in pids.items():
            told = found[key]
            print(
                f"TRUTH ms of garbage collection of {key}: {told['gcTimeInMillis']} of {before[key]} before"
            )
            assert told["gcTimeInMillis"] <= 1.1 * collected_ms(pid)
            assert told["heapUsedInBytes"] <= told["heapMaxInBytes"]
            if key != "driver":
                assert told["heapMaxInBytes"] == heap_of(pid) and told["tasksDone"] > 0
        (heap,) = deployment.get("/taskmanagers/metrics?get=Status.JVM.Memory.Heap.Max&agg=sum")
        assert heap["sum"] == sum(each["heapMaxInBytes"] for each in found.values())
    number = next(key for key in pids if key != "driver")
    newest = deployment.get(f"{path}/attempts")["attempts"][0]["attempt"]
    answer = deployment.call("GET", f"{path}/attempts/{newest}/logs?executor={number}&limit=2000000")
    assert answer.is_success and "Successfully registered with driver" in answer.text, answer.text


def test_a_worker_that_is_lost_and_one_that_comes(deployment: Deployment, cluster: DevCluster) -> None:
    """The third job of the history is a failover that stops nothing; a new worker brings the parallelism back."""
    require(deployment, MOST)
    runs_at(deployment, MOST)
    run = deployment.job()["queries"][0]["runId"]
    records = len(deployment.history())

    deployment.await_progress()
    cluster.kill(cluster.workers[-1].name)
    runs_at(deployment, MOST - 2)
    deployment.await_progress()
    lost = deployment.history()[: len(deployment.history()) - records]
    assert [(one["triggerCause"], one["rung"]) for one in lost] == [("RECOVERABLE_FAILOVER", "in-place")]

    cluster.add(cores=2, memory_mb=1024)
    runs_at(deployment, MOST)
    deployment.await_progress()
    came = deployment.history()[: len(deployment.history()) - records - len(lost)]
    assert [one["triggerCause"] for one in came] == ["NEW_RESOURCE_AVAILABLE"]
    assert deployment.job()["queries"][0]["runId"] == run


@pytest.mark.long
def test_a_worker_that_is_silent_and_speaks_again(deployment: Deployment, cluster: DevCluster) -> None:
    """As if its host could not be reached. What it had begun is done elsewhere; what it does later counts nothing."""
    require(deployment, MOST)
    runs_at(deployment, MOST)
    run = deployment.job()["queries"][0]["runId"]
    worker = psutil.Process(cluster.workers[-1].pid)
    silent = [worker, *worker.children(recursive=True)]
    for process in silent:
        process.suspend()
    runs_at(deployment, MOST - 2)
    deployment.await_progress()
    for process in silent:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()
    runs_at(deployment, MOST)
    deployment.await_progress()
    assert deployment.job()["queries"][0]["runId"] == run
    wait_for("each slot has an executor", lambda: executors(cluster) == MOST)


@pytest.mark.long
def test_a_worker_that_announces_its_end(deployment: Deployment, cluster: DevCluster) -> None:
    require(deployment, MOST)
    runs_at(deployment, MOST)
    pid = deployment.job()["driverPid"]
    leaving = cluster.workers[0].name
    cluster.kill(leaving, how=signal.SIGPWR)
    runs_at(deployment, MOST - 2)
    # As whoever maintains the host would; Spark leaves the process alone.
    cluster.kill(leaving)
    cluster.add(cores=2, memory_mb=1024)
    runs_at(deployment, MOST)
    deployment.await_progress()
    assert deployment.job()["driverPid"] == pid


@pytest.mark.long
def test_the_master_is_lost_and_comes_back(deployment: Deployment, cluster: DevCluster) -> None:
    """Without a master the query goes on, and nothing is started; with it again rescales go on, and who is lost is
    replaced."""
    require(deployment, MOST)
    runs_at(deployment, MOST)
    pid = deployment.job()["driverPid"]
    cluster.kill("master")
    deployment.await_progress()
    assert set(deployment.parallelism().values()) == {MOST}
    # Before the server has found out, or after it: the driver cannot give any up, and goes on.
    require(deployment, 3)
    runs_at(deployment, 3)
    deployment.await_progress()
    cluster.up()
    wait_for("one is given up", lambda: executors(cluster) == len(executor_processes(cluster)) == 3)
    before = executor_processes(cluster)
    before[0].kill()
    wait_for(
        "another one has come",
        lambda: len(set(executor_processes(cluster)) - set(before)) == 1 and executors(cluster) == 3,
    )
    deployment.await_progress()
    require(deployment, 2)
    runs_at(deployment, 2)
    wait_for("there are two executors", lambda: executors(cluster) == 2)
    require(deployment, MOST)
    runs_at(deployment, MOST)
    deployment.await_progress()
    assert deployment.job()["driverPid"] == pid


@pytest.mark.long
def test_a_driver_that_is_killed_while_the_master_is_away_starts_when_it_is_back(
    deployment: Deployment, cluster: DevCluster
) -> None:
    require(deployment, 2)
    runs_at(deployment, 2)
    wait_for("there are two executors", lambda: executors(cluster) == 2)
    pid = deployment.job()["driverPid"]
    restarts = len(deployment.get(f"/jobs/{deployment.job_id}/exceptions")["exceptionHistory"]["entries"])
    away = deployment.log_file.read_text(encoding="utf-8").count(AWAY)
    cluster.kill("master")
    wait_for(
        "the server knows that",
        lambda: deployment.log_file.read_text(encoding="utf-8").count(AWAY) > away,
        60.0,
    )
    deployment.await_progress()
    os.kill(pid, signal.SIGKILL)
    wait_for("the job waits", lambda: deployment.job()["state"] != "RUNNING")

    def says_why() -> bool:
        told = deployment.get(f"/jobs/{deployment.job_id}/explanation")
        waits = any("the job is started when it is reachable again" in one for one in told["sentences"])
        return waits and told["supply"]["outOfSight"] and "cannot be asked since" in told["supply"]["why"][0]

    wait_for("the explanation says why", says_why)
    cluster.up()
    runs_at(deployment, 2)
    deployment.await_progress()
    entries = deployment.get(f"/jobs/{deployment.job_id}/exceptions")["exceptionHistory"]["entries"]
    assert len(entries) == restarts + 1


def test_in_the_end_the_output_is_exact(deployment: Deployment) -> None:
    deployment.stop()
    deployment.rows()
    deployment.check_ends()
