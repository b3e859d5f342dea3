"""Beyond Flink: whether a job has processed anything, and why its last attempt failed, until it has got over that."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from app.load.reported import Load, QueryLoad, SeenBatch
from app.model.protocol import Report
from app.scheduler.adaptive.draft import status_of
from app.worker.under_way import is_under_way
from app.worker.views import JobView
from tests.contract.drivers import ProtocolDriver
from tests.contract.test_flink_face import JOB_FACES, OVERVIEW, check
from tests.contract.world import GRAPH, RESTART_AT_ONCE, World, eventually
from tests.unit.scheduler.driving import T0_MS
from tests.unit.scheduler.phases import in_phase

SLOWLY = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "1 h"}


async def test_a_job_is_under_way_with_its_first_batch(world: World) -> None:
    world.host.hold()
    job_id = await world.submit(GRAPH)
    await world.status(job_id, "RUNNING")
    assert (await world.get(f"/jobs/{job_id}"))["underWay"] is False
    world.host.release()

    async def under_way() -> Any:
        return (await world.get(f"/jobs/{job_id}"))["underWay"]

    assert await eventually(under_way, "a batch") is True


async def test_a_failure_is_told_until_the_next_attempt_has_had_a_batch(world: World) -> None:
    job_id = await world.running({**GRAPH, "config": RESTART_AT_ONCE})
    assert (await world.get(f"/jobs/{job_id}"))["lastFailure"] is None
    world.host.hold()
    world.driver().die(7)

    async def again() -> Any:
        details = await world.get(f"/jobs/{job_id}")
        return details if details["attempt"] == 2 and details["state"] == "RUNNING" else None

    details = await eventually(again, "the next attempt")
    failure = details["lastFailure"]
    assert failure["attempt"] == 1
    assert failure["message"].endswith("ended with exit status 7.")
    assert details["underWay"] is False
    check(JOB_FACES[0], details)
    overview = await world.get("/jobs/overview")
    check(OVERVIEW, overview)
    assert overview["jobs"][0]["lastFailure"] == failure
    sentences = (await world.get(f"/jobs/{job_id}/explanation"))["sentences"]
    assert any(each.startswith("Attempt 1 failed ") and "exit status 7" in each for each in sentences)
    world.host.release()
    await world.completed(job_id, 2)
    details = await world.get(f"/jobs/{job_id}")
    assert (details["underWay"], details["lastFailure"]) == (True, None)


async def test_between_two_attempts_the_status_is_flinks_and_the_failure_is_told(world: World) -> None:
    job_id = await world.running({**GRAPH, "config": SLOWLY})
    world.driver().fail("ValueError: no airline has the code ZZ")
    await world.status(job_id, "RESTARTING")
    details = await world.get(f"/jobs/{job_id}")
    assert details["lastFailure"]["attempt"] == 1
    assert details["underWay"] is False


async def test_a_start_that_fails_again_and_again_is_told(world: World) -> None:
    world.host.refuse = "A driver process could not be started: no memory."
    job_id = await world.submit(GRAPH)

    async def failed() -> Any:
        return (await world.get("/jobs/overview"))["jobs"][0]["lastFailure"]

    assert (await eventually(failed, "the failure"))["message"] == world.host.refuse
    details = await world.get(f"/jobs/{job_id}")
    assert (details["state"], details["underWay"]) == ("CREATED", False)
    world.host.refuse = None


async def test_what_makes_a_start_slow_is_told_while_a_driver_starts(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.host, "slow_start", "The class data archive is being built.")
    may_start = asyncio.Event()
    acquire = world.host.acquire

    async def slowly(*asked: Any) -> ProtocolDriver:
        await may_start.wait()
        return await acquire(*asked)

    monkeypatch.setattr(world.host, "acquire", slowly)
    job_id = await world.submit(GRAPH)

    async def sentences() -> Any:
        told = (await world.get(f"/jobs/{job_id}/explanation"))["sentences"]
        return told if any("is being started" in each for each in told) else None

    assert world.host.slow_start in await eventually(sentences, "the start")
    may_start.set()
    await world.completed(job_id, 1)
    assert world.host.slow_start not in (await world.get(f"/jobs/{job_id}/explanation"))["sentences"]


@pytest.mark.parametrize(
    ("changes", "seen_s", "expected"),
    [
        ({}, 0, True),
        ({"input_rows": 0}, 9, False),
        ({"input_rows": 0}, 10, True),
        ({"input_rows": 0, "backlog_rows": 5}, 10, False),
        ({"input_rows": 0, "batch_id": 7}, 0, True),
        ({"input_rows": 0, "at_ms": 0}, 9, False),
        ({"input_rows": 0, "at_ms": 2**52}, 10, True),
    ],
    ids=["rows", "none yet", "none came", "some wait", "a later batch", "clock is behind", "clock is ahead"],
)
async def test_an_empty_first_batch_says_nothing_of_the_functions(
    world: World, changes: dict[str, Any], seen_s: int, expected: bool
) -> None:
    """The time is measured by the server's clock: that of the driver's host may differ."""
    job_id = await world.running()
    world.host.hold()
    view = world.control_plane.job(job_id)
    (report,) = view.last_batches.values()
    first = replace(report, **{"batch_id": 0, "input_rows": 3, **changes})
    seen = SeenBatch(first, report.at_ms)
    told = replace(view, load=loaded(seen))
    assert is_under_way(told, seen.seen_ms + seen_s * 1000) is expected


def loaded(seen: SeenBatch) -> Load:
    load = Load()
    load.queries["q"] = QueryLoad(seen)
    return load


@pytest.mark.parametrize(
    ("kind", "expected"), [("Executing", True), ("Rescaling", True), ("Restarting", False)]
)
def test_an_attempt_that_is_being_ended_is_not_under_way_any_more(kind: str, expected: bool) -> None:
    state = in_phase(kind).state
    assert state.plan is not None
    report = Report(1, 1, "batch", plan_version=state.plan.version, batch_id=3, input_rows=9)
    view = JobView(state, status_of(state), T0_MS, None, None, epoch=1, load=loaded(SeenBatch(report, T0_MS)))
    assert is_under_way(view, T0_MS) is expected
