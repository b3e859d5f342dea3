"""A query that fails, as its driver and the API see it: the order to start it again outlives a server."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from pathlib import Path
from typing import Any

from app.api.render.jobs import exception_history
from app.documents.graph import parse_document
from app.model.graphdoc import to_document
from tests.unit.worker.fakes import Rig, graph, rig_on


async def run(rig: Rig, **config: str) -> tuple[str, str]:
    """A job with two sinks, and the vertex id of the second one."""
    document = to_document(graph(2, **config))
    vertices: Any = document["vertices"]
    vertices.append({"name": "side", "inputs": ["events"], "sink": {"format": "noop"}, "parallelism": 2})
    whole = parse_document(json.loads(json.dumps(document)))
    job = await rig.plane.submit(whole, {})
    await rig.bring_up(job, 1)
    return job, whole.vertices[-1].id


async def fails(rig: Rig, job: str, side: str, number: int = 1, **more: Any) -> None:
    error = f"failure {number} of the side query"
    await rig.report(job, "query-failed", query=side, run=number, error=error, **more)


async def test_the_order_comes_when_the_backoff_is_over(sqlite_url: str, tmp_path: Path) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        job, side = await run(rig, **{"restart-strategy.exponential-delay.initial-backoff": "200 ms"})
        first = await rig.orders(job)
        waiting = asyncio.create_task(rig.orders(job, plan=first.plan_version, wait_ms=10_000))
        await fails(rig, job, side, why="It is tried again because x names y.", longest_batch_ms=70)
        (local,) = rig.plane.job(job).state.recovery.local
        assert not local.ordered and local.longest_batch_ms == 70
        orders = await waiting
        assert orders.restarts == {side: 1} and orders.stop == "none"
        assert dataclasses.replace(orders, restarts={}) == first
        await rig.report(job, "query-recovered", query=side, run=1)
        assert rig.kind(job) == "Executing" and len(rig.host.drivers) == 1
        (entry,) = exception_history(rig.plane.job(job).state).exception_history.entries
        assert entry.failure_labels == {
            "failover": "local",
            "why": "It is tried again because x names y.",
        }
        # The order stays: a driver that asks anew is not told to do it again, since it knows the number.
        assert (await rig.orders(job)).restarts == {side: 1}


async def test_a_server_that_takes_over_goes_on_with_it(sqlite_url: str, tmp_path: Path) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        job, side = await run(rig, **{"restart-strategy.exponential-delay.initial-backoff": "500 ms"})
        await fails(rig, job, side)
    async with rig_on(sqlite_url, tmp_path, host=rig.host) as again:
        assert again.kind(job) == "Executing"
        await again.until(lambda: again.plane.job(job).state.recovery.local[0].ordered, "the order")
        assert (await again.orders(job)).restarts == {side: 1}
        await again.report(job, "query-recovered", query=side, run=1)
        assert again.plane.job(job).state.recovery.local[0].over
        assert len(again.host.drivers) == 1


async def test_a_server_that_comes_back_late_hears_the_driver_first(sqlite_url: str, tmp_path: Path) -> None:
    timeout = {"slotwise.failure.local-timeout": "20 s"}
    async with rig_on(sqlite_url, tmp_path) as rig:
        job, side = await run(rig, **timeout)
        await fails(rig, job, side)
        await rig.until(lambda: rig.plane.job(job).state.recovery.local[0].ordered, "the order")
    # It was away for longer than the query may take, and the query has recovered meanwhile.
    async with rig_on(sqlite_url, tmp_path, host=rig.host, ahead_ms=60_000) as again:
        await again.until(lambda: again.plane.job(job).state.recovery.local[0].unheard, "the job is taken up")
        assert again.kind(job) == "Executing"
        await again.report(job, "query-recovered", query=side, run=1)
        assert again.kind(job) == "Executing" and again.plane.job(job).state.recovery.local[0].over
        assert len(again.host.drivers) == 1


async def test_a_backoff_is_no_longer_by_another_clock(sqlite_url: str, tmp_path: Path) -> None:
    """The clock of the server before was half an hour ahead, and the job had run for as long."""
    async with rig_on(sqlite_url, tmp_path) as rig:
        job, side = await run(rig, **{"restart-strategy.exponential-delay.initial-backoff": "500 ms"})
        rig.clock.ahead_ms += 1_800_000
        await fails(rig, job, side)
        assert not rig.plane.job(job).state.recovery.local[0].ordered
    async with rig_on(sqlite_url, tmp_path, host=rig.host) as again:
        await again.until(lambda: again.plane.job(job).state.recovery.local[0].ordered, "the order")


async def test_a_query_that_does_not_recover_has_its_time_from_the_first_call(
    sqlite_url: str, tmp_path: Path
) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        job, side = await run(rig, **{"slotwise.failure.local-timeout": "20 s"})
        await fails(rig, job, side)
        await rig.until(lambda: rig.plane.job(job).state.recovery.local[0].ordered, "the order")
    async with rig_on(sqlite_url, tmp_path, host=rig.host, ahead_ms=60_000) as again:
        await again.until(lambda: again.plane.job(job).state.recovery.local[0].unheard, "the job is taken up")
        # It keeps nothing from being done that the driver has not called for a long time.
        assert again.plane.job(job).state.timers == ()
        assert (await again.orders(job)).restarts == {side: 1}
        await again.until(lambda: not again.plane.job(job).state.recovery.local[0].unheard, "the call counts")
        (timer,) = again.plane.job(job).state.timers
        assert 15_000 < timer.at_ms - again.clock.now_ms() <= 20_000


async def test_the_driver_is_killed_when_it_becomes_a_global_failover(
    sqlite_url: str, tmp_path: Path
) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        job, side = await run(rig, **{"slotwise.failure.local-timeout": "50 ms"})
        driver = rig.driver
        await fails(rig, job, side)
        await rig.until(driver.dead.is_set, "the end of the driver")
        await rig.assigned(2)
        reason = rig.plane.job(job).state.recovery.failures[-1][0].error
        assert "has not committed a batch within 50 ms" in reason and "failure 1 of the side" in reason


async def test_what_the_driver_is_told_of_the_options(sqlite_url: str, tmp_path: Path) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        names = {"slotwise.failure.final-exceptions": "A", "slotwise.failure.recoverable-exceptions": "B,c.D"}
        await run(rig, **names)
        assert rig.driver.spec is not None
        assert rig.driver.spec["local_failover"] is True
        assert list(rig.driver.spec["final_exceptions"]) == ["A"]
        assert list(rig.driver.spec["recoverable_exceptions"]) == ["B", "c.D"]
        job = await rig.plane.submit(graph(1, **{"slotwise.failure.local-timeout": "0"}), {})
        await rig.until(lambda: rig.driver.spec is not None and rig.driver.spec["job_id"] == job)
        assert rig.driver.spec["local_failover"] is False
