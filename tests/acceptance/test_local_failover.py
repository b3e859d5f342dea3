"""A job with two sinks of which one breaks: only its query is restarted. What its code always raises ends the job."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.deployment import Deployment, counting, deployed, wait_for

pytestmark = pytest.mark.timeout(600)

SIDE = """
import pathlib
import time

BROKEN = pathlib.Path({broken!r})
HANGING = pathlib.Path({broken!r} + "-hanging")


def store(frame, batch_id):
    rows = frame.count()
    while HANGING.exists():
        time.sleep(0.05)
    if BROKEN.exists():
        raise ConnectionError("the side store is away")
    if rows < 0 or {always!r}:
        raise ZeroDivisionError("it always does")
"""


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployed(tmp_path_factory.mktemp("local")) as made:
        made.start(with_points=False)
        yield made


@pytest.fixture(scope="module")
def two_sinks(deployment: Deployment) -> None:
    # Long enough for what a test does between the failure and the end of its cause.
    submit(deployment, "two-sinks", **{"restart-strategy.fixed-delay.delay": "10 s"})
    wait_for("both queries run", lambda: len(runs(deployment)) == 2)


def flag(deployment: Deployment) -> Path:
    return deployment.directory / "broken"


def submit(deployment: Deployment, name: str, *, always: bool = False, **config: str) -> None:
    """A job that counts numbers, and has each of them go into a side sink as well."""
    deployment.sink = deployment.directory / name / "counts.db"
    deployment.sink.parent.mkdir()
    graph = counting(deployment.sink.parent)
    graph |= {"name": name, "artifacts": ["side.py"]}
    graph["config"] |= {"restart-strategy.fixed-delay.delay": "3 s", **config}
    graph["vertices"].append(
        {"name": "side", "inputs": ["numbers"], "sink": {"python": "side:store"}, "parallelism": 2}
    )
    code = SIDE.format(broken=str(flag(deployment)), always=always)
    files = {
        "graph": ("graph.json", json.dumps(graph).encode(), "application/json"),
        "files": ("side.py", code.encode(), "application/octet-stream"),
    }
    response = deployment.call("POST", "/jobs", files=files)
    assert response.is_success, response.text
    deployment.job_id = response.json()["jobid"]


def runs(deployment: Deployment) -> dict[str, tuple[str, int]]:
    """Run id and newest batch of each query, by its id."""
    return {one["id"]: (one["runId"], one["batchId"]) for one in deployment.job()["queries"]}


def await_batches(deployment: Deployment) -> dict[str, tuple[str, int]]:
    """Wait until each query has committed a batch more; where they are then."""
    before = runs(deployment)

    def further() -> bool:
        now = runs(deployment)
        assert deployment.job()["state"] == "RUNNING"
        return len(now) == 2 and all(now[one][1] > batch for one, (_, batch) in before.items())

    wait_for("each query has committed a batch", further)
    return runs(deployment)


def exceptions(deployment: Deployment) -> list[Any]:
    """Newest first."""
    found = deployment.get(f"/jobs/{deployment.job_id}/exceptions")["exceptionHistory"]["entries"]
    return list(found)


def words(deployment: Deployment) -> str:
    return " ".join(deployment.get(f"/jobs/{deployment.job_id}/explanation")["sentences"])


def await_failure(deployment: Deployment, known: int) -> Any:
    """The failure after the ``known`` ones. The job is RUNNING until then."""

    def failed() -> Any:
        assert deployment.job()["state"] == "RUNNING"
        found = exceptions(deployment)
        return found[0] if len(found) > known else None

    return wait_for("the side query has failed", failed)


@pytest.mark.usefixtures("two_sinks")
def test_only_the_query_of_the_broken_sink_is_restarted(deployment: Deployment) -> None:
    before = await_batches(deployment)
    job, records = deployment.job(), len(deployment.history())

    flag(deployment).touch()
    failure = await_failure(deployment, 0)
    assert failure["failureLabels"] == {"failover": "local"}
    assert "the side store is away" in failure["message"] and failure["concurrentExceptions"] == []
    said = words(deployment)
    assert "The query of sink side failed and is restarted alone, the others run on." in said, said
    deployment.await_progress()
    refused = deployment.call("POST", f"/jobs/{deployment.job_id}/stop", json={})
    assert (refused.status_code, "stop the job once it runs again" in refused.text) == (409, True)

    flag(deployment).unlink()
    after = await_batches(deployment)
    restarted = [one for one in before if before[one][0] != after[one][0]]
    assert len(restarted) == 1, (before, after)
    now = deployment.job()
    assert now["driverPid"] == job["driverPid"] and now["state"] == "RUNNING"
    assert now["timestamps"] == job["timestamps"], "the job was RUNNING all the time"
    assert len(deployment.history()) == records, "no rescale"
    wait_for("nothing is said of it any more", lambda: "restarted alone" not in words(deployment))
    deployment.await_progress()
    deployment.check_ends()


@pytest.mark.long
@pytest.mark.usefixtures("two_sinks")
def test_a_server_that_is_killed_meanwhile_goes_on_with_it(deployment: Deployment) -> None:
    before, job = await_batches(deployment), deployment.job()
    flag(deployment).touch()
    await_failure(deployment, 1)
    deployment.kill_server()
    flag(deployment).unlink()
    deployment.start(with_points=False)
    wait_for("the job is served", lambda: deployment.job()["state"] == "RUNNING")
    wait_for("both queries have told of a batch", lambda: len(runs(deployment)) == 2)
    after = await_batches(deployment)
    assert len([one for one in before if before[one][0] != after[one][0]]) == 1, (before, after)
    assert deployment.job()["driverPid"] == job["driverPid"]
    assert [each["failureLabels"] for each in exceptions(deployment)] == [{"failover": "local"}] * 2
    deployment.await_progress()


@pytest.mark.long
@pytest.mark.usefixtures("two_sinks")
def test_a_sink_that_stays_broken_has_the_whole_job_restarted(deployment: Deployment) -> None:
    driver, known = deployment.job()["driverPid"], len(exceptions(deployment))
    flag(deployment).touch()
    await_failure(deployment, known)
    wait_for("the whole job is restarted", lambda: len(deployment.history()) > 1)
    flag(deployment).unlink()
    deployment.await_settled()
    local, whole = sorted(exceptions(deployment)[:2], key=lambda each: each["timestamp"])
    assert local["failureLabels"] == {"failover": "local"}
    assert "failed again before it had committed a batch" in whole["failureLabels"]["why"]
    assert deployment.history()[0]["triggerCause"] == "RECOVERABLE_FAILOVER"
    assert deployment.job()["driverPid"] != driver
    await_batches(deployment)
    deployment.await_progress()
    deployment.stop()
    deployment.rows()


@pytest.mark.long
def test_one_that_does_not_get_going_is_given_up_in_its_time(deployment: Deployment) -> None:
    submit(deployment, "hanging", **{"slotwise.failure.local-timeout": "4 s"})
    wait_for("both queries run", lambda: len(runs(deployment)) == 2)
    await_batches(deployment)
    driver = deployment.job()["driverPid"]
    flag(deployment).touch()
    await_failure(deployment, 0)
    hanging = flag(deployment).with_name("broken-hanging")
    hanging.touch()
    flag(deployment).unlink()
    began = time.monotonic()
    wait_for("the whole job is restarted", lambda: len(deployment.history()) > 1)
    took_s = time.monotonic() - began
    hanging.unlink()
    deployment.await_settled()
    newest = exceptions(deployment)[0]
    assert newest["taskName"] == "side" and newest["failureLabels"] == {}
    # Twice its longest batch, if that is more: the first one of a cold driver.
    allowed = re.search(r"has not committed a batch within (\d+) ms", newest["message"])
    assert allowed is not None and int(allowed[1]) >= 4_000, newest
    # The backoff, the time that it has, and as much again for a busy machine.
    assert took_s < 2 * (3 + int(allowed[1]) / 1000)
    assert "the side store is away" in newest["message"], "what it had failed with"
    assert deployment.job()["driverPid"] != driver
    await_batches(deployment)
    deployment.await_progress()
    deployment.stop()
    deployment.rows()


@pytest.mark.long
def test_an_error_that_the_code_always_raises_ends_the_job(deployment: Deployment) -> None:
    submit(deployment, "hopeless", always=True, **{"restart-strategy.fixed-delay.delay": "100 ms"})
    deployment.await_status("FAILED")
    found = deployment.get(f"/jobs/{deployment.job_id}/exceptions")["exceptionHistory"]["entries"]
    assert len(found) == 3, found
    said = words(deployment)
    assert "The same error (ZeroDivisionError at side.py:16) came 3 times in a row" in said, said
    assert "(slotwise.failure.user-code-attempts is 3)" in said
    (last,) = deployment.history()[:1]
    assert last["terminatedReason"] == "JOB_FAILED"
