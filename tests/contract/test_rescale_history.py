"""The rescale history over REST: order, filters, pages, statistics, durability, freshness."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from app.api.answers import BytesResponse
from app.api.record_cache import AnswerCache
from app.api.render.rescales import statistics
from app.model.rescale import TerminalState, TriggerCause
from app.scheduler.adaptive.state import Timeline
from tests.contract.world import GRAPH, RESTART_AT_ONCE, World, bounds, open_world

ZERO = "0" * 32


async def job_with_history(world: World, updates: int = 6) -> str:
    """A job with an initial record, updates of which some are overtaken by the next, and a failover."""
    job_id = await world.running({**GRAPH, "config": RESTART_AT_ONCE})
    for number in range(updates):
        world.host.hold()
        await world.put(job_id, bounds(flights=(1, 3 + number % 3), delays=(1, 4), store=(1, 1)))
        if number % 2:
            await world.put(job_id, bounds(flights=(1, 2), delays=(1, 2), store=(1, 1)))
        world.host.release()
        await settled(world, job_id)
    completed = (await world.get(f"/jobs/{job_id}/rescales/overview"))["rescalesCounts"]["completed"]
    world.driver().die(1)
    await world.completed(job_id, completed + 1)
    return job_id


async def settled(world: World, job_id: str) -> None:
    async with asyncio.timeout(20):
        while (await world.get(f"/jobs/{job_id}/rescales/overview"))["rescalesCounts"]["inProgress"]:
            await asyncio.sleep(0.005)


async def pages(world: World, job_id: str, **parameters: Any) -> list[list[dict[str, Any]]]:
    """All pages of a listing, by following the links."""
    found = []
    path, query = f"/jobs/{job_id}/rescales/history", {key: str(value) for key, value in parameters.items()}
    while True:
        answer = await world.http.get(path, params=query)
        assert answer.status_code == 200
        found.append(answer.json())
        link = answer.headers.get("link")
        if link is None:
            return found
        target, _, relation = link.partition("; ")
        assert relation == 'rel="next"'
        parts = urlsplit(target.strip("<>"))
        path, query = parts.path, {key: values[0] for key, values in parse_qs(parts.query).items()}


async def test_order_filters_and_pages(any_world: World) -> None:
    world = any_world
    job_id = await job_with_history(world)
    history = await world.get(f"/jobs/{job_id}/rescales/history")
    numbers = [record["number"] for record in history]
    assert numbers == list(range(len(history), 0, -1))
    assert history[0]["triggerCause"] == "RECOVERABLE_FAILOVER"
    assert history[-1]["triggerCause"] == "INITIAL_SCHEDULE"
    assert {record["terminalState"] for record in history} == {"COMPLETED", "IGNORED"}
    for limit in (1, 2, 3, len(history), 1000):
        found = await pages(world, job_id, limit=limit)
        assert list(itertools.chain(*found)) == history
        assert all(len(page) == limit for page in found[:-1])
        assert found[-1]
    for cause in TriggerCause:
        wanted = [record for record in history if record["triggerCause"] == cause.value]
        assert list(itertools.chain(*await pages(world, job_id, limit=2, cause=cause.value))) == wanted
    for state in TerminalState:
        wanted = [record for record in history if record["terminalState"] == state.value]
        assert list(itertools.chain(*await pages(world, job_id, limit=2, state=state.value))) == wanted
    both = await world.get(
        f"/jobs/{job_id}/rescales/history", cause="UPDATE_REQUIREMENT", state="IGNORED", after=5
    )
    assert [record["number"] for record in both] == [
        record["number"] for record in history
        if record["triggerCause"] == "UPDATE_REQUIREMENT" and record["terminalState"] == "IGNORED"
        and record["number"] < 5
    ]  # fmt: skip
    assert await world.get(f"/jobs/{job_id}/rescales/history", after=1) == []


async def test_pages_hold_while_records_are_added(world: World) -> None:
    job_id = await job_with_history(world, 4)
    first = await world.http.get(f"/v1/jobs/{job_id}/rescales/history", params={"limit": "3"})
    await world.put(job_id, bounds(flights=(1, 5), delays=(1, 5), store=(1, 1)))
    await settled(world, job_id)
    target = first.headers["link"].partition(">")[0].strip("<")
    assert target.startswith("/v1/")
    second = (await world.http.get(target)).json()
    assert second[0]["number"] == first.json()[-1]["number"] - 1


async def test_overview_and_summary_agree_with_the_history(any_world: World) -> None:
    world = any_world
    job_id = await job_with_history(world)
    history = await world.get(f"/jobs/{job_id}/rescales/history")
    overview = await world.get(f"/jobs/{job_id}/rescales/overview")
    summary = await world.get(f"/jobs/{job_id}/rescales/summary")
    by_state: dict[str, list[dict[str, Any]]] = {state.value: [] for state in TerminalState}
    for record in history:
        by_state[record["terminalState"]].append(record)
    expected = {state.lower(): len(records) for state, records in by_state.items()}
    assert overview["rescalesCounts"] == {**expected, "inProgress": 0} == summary["rescalesCounts"]
    for state, records in by_state.items():
        assert overview["latest"][state.lower()] == (records[0] if records else None)
        durations = [record["endTimestampInMillis"] - record["startTimestampInMillis"] for record in records]
        found = summary[f"{state.lower()}RescalesDurationStatsInMillis"]
        assert found == statistics(durations).model_dump()
    assert (
        summary["rescalesDurationStatsInMillis"]["max"]
        >= summary["completedRescalesDurationStatsInMillis"]["max"]
    )


async def test_spans_add_up_to_the_record(world: World) -> None:
    job_id = await job_with_history(world, 2)
    for record in await world.get(f"/jobs/{job_id}/rescales/history"):
        details = await world.get(f"/jobs/{job_id}/rescales/details/{record['rescaleUuid'].upper()}")
        spans = details["schedulerStates"]
        assert spans[0]["enterTimestampInMillis"] == details["startTimestampInMillis"]
        for before, after in itertools.pairwise(spans):
            assert after["enterTimestampInMillis"] == before["leaveTimestampInMillis"]
        assert sum(span["durationInMillis"] for span in spans) == (
            details["endTimestampInMillis"] - details["startTimestampInMillis"]
        )


async def test_reads_are_never_older_than_the_last_answered_write(any_world: World) -> None:
    """Answers are cached: each PUT must be in the very next listing."""
    world = any_world
    job_id = await world.running()
    for number in range(20):
        before = await world.get(f"/jobs/{job_id}/rescales/history")
        assert await world.get(f"/jobs/{job_id}/rescales/history") == before
        await world.put(
            job_id,
            bounds(flights=(1, 2 + number % 4), delays=(1, 2), store=(1, 1)),
            **{"X-Slotwise-Reason": f"n{number}"},
        )
        after = await world.get(f"/jobs/{job_id}/rescales/history")
        changed = number > 0
        assert (after[0]["reason"] == f"n{number}") is changed
        await settled(world, job_id)
        assert (await world.get(f"/jobs/{job_id}/rescales/history"))[0]["terminalState"] is not None


async def test_unknown_records_and_jobs(world: World) -> None:
    job_id = await world.running()
    other = await world.running()
    uuid = (await world.get(f"/jobs/{job_id}/rescales/history"))[0]["rescaleUuid"]
    for path in (
        f"/jobs/{job_id}/rescales/details/{ZERO}",
        f"/jobs/{other}/rescales/details/{uuid}",
        f"/jobs/{ZERO}/rescales/details/{uuid}",
        *(f"/jobs/{ZERO}/rescales/{kind}" for kind in ("history", "overview", "summary", "config")),
    ):
        assert (await world.http.get(path)).status_code == 404, path


async def test_a_failover_keeps_the_history_and_has_one_record_of_its_own(world: World) -> None:
    job_id = await world.running({**GRAPH, "config": RESTART_AT_ONCE})
    before = await world.get(f"/jobs/{job_id}/rescales/history")
    world.driver().die(-9)
    await world.completed(job_id, 2)
    after = await world.get(f"/jobs/{job_id}/rescales/history")
    assert after[1:] == before
    assert (after[0]["triggerCause"], after[0]["rung"]) == ("RECOVERABLE_FAILOVER", "new-driver")
    assert after[0]["resourceRequirementsUuid"] == before[0]["resourceRequirementsUuid"]
    assert after[0]["rescaleAttemptId"] == before[0]["rescaleAttemptId"] + 1


async def test_the_history_of_a_job_that_has_ended_outlives_the_control_plane(
    database_url: str, tmp_path: Path
) -> None:
    paths = (
        "rescales/history",
        "rescales/overview",
        "rescales/summary",
        "rescales/config",
        "exceptions",
        "execution-result",
    )
    async with open_world(database_url, tmp_path) as world:
        job_id = await job_with_history(world, 2)
        await world.http.post(f"/jobs/{job_id}/stop")
        await world.status(job_id, "FINISHED")
        before = [await world.get(f"/jobs/{job_id}/{path}") for path in paths]
    async with open_world(database_url, tmp_path) as world:
        assert [await world.get(f"/jobs/{job_id}/{path}") for path in paths] == before


@pytest.mark.parametrize(
    ("values", "p50", "p90", "p999"),
    [
        ([5], 5.0, 5.0, 5.0),
        ([1, 2], 1.5, 2.0, 2.0),
        ([4, 1, 3, 2], 2.5, 4.0, 4.0),
        (list(range(1, 100)), 50.0, 90.0, 99.0),
    ],
)
def test_percentiles(values: list[int], p50: float, p90: float, p999: float) -> None:
    found = statistics(values).model_dump()
    assert (found["p50"], found["p90"], found["p999"]) == (p50, p90, p999)
    assert (found["min"], found["max"], found["avg"]) == (
        min(values),
        max(values),
        sum(values) // len(values),
    )


def test_kept_answers_are_bounded_and_bound_to_their_timeline() -> None:
    cache = AnswerCache(lambda: 0.0)
    first, second = Timeline(records=1), Timeline(records=2)
    cache.keep("a", first, BytesResponse(b"one"))
    assert cache.find("a", second) is None
    assert cache.find("a", first) is not None
    for number in range(50):
        cache.keep(str(number), first, BytesResponse(b"x" * 1024 * 1024))
    assert cache.find("0", first) is None
    assert cache.find("49", first) is not None
    assert cache.find("18", first) is not None
    assert cache.find("17", first) is None
    long = BytesResponse(b"x" * (32 * 1024 * 1024 + 1))
    assert cache.keep("long", first, long) is long and cache.find("long", first) is None


def test_a_kept_answer_expires() -> None:
    """What is pruned by age makes no new timeline."""
    now_s = 100.0
    cache, timeline = AnswerCache(lambda: now_s), Timeline()
    cache.keep("a", timeline, BytesResponse(b"one"))
    now_s += 0.9
    assert cache.find("a", timeline) is not None
    now_s += 0.2
    assert cache.find("a", timeline) is None
