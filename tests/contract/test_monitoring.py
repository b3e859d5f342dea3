"""`GET /metrics`: it tells what docs/monitoring.md says, agrees with the job, and is bounded."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.api.app import create_app
from app.model.status import JobStatus
from app.plugins.batch_samples import SampledBatches
from app.plugins.prometheus import exposition
from app.store.errors import StoreError, StoreUnavailable
from app.store.writer import Writer
from app.store.writes import SaveState, UnitOfWork
from tests.contract.event_client import following
from tests.contract.live import listening
from tests.contract.members import Network, server
from tests.contract.scraping import loaded, scrape, value
from tests.contract.test_events import stored
from tests.contract.world import GRAPH, World, bounds, eventually
from tests.unit.worker.fakes import FakeHost, graph

PAGE = Path(__file__).parents[2] / "docs" / "monitoring.md"
OTHER_BOUNDS = bounds(flights=(1, 3), delays=(1, 3), store=(1, 1))
HOSTILE = 'a"b\\c\nd{}=,é\u2028' + "x" * 150


@pytest.fixture(autouse=True)
def no_answer_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposition, "KEPT_S", 0.0)


async def test_what_is_told_is_what_the_page_says(world: World) -> None:
    await loaded(world)
    # For how long a backlog has come is not known in its first ten seconds; where nothing waits it is.
    world.driver().load |= {"backlog_rows": 0}

    async def none_waits() -> bool:
        return value(await scrape(world.http), "slotwise_job_pending_seconds") == 0

    await eventually(none_waits, "no backlog")
    await world.put((await world.get("/jobs"))["jobs"][0]["id"], OTHER_BOUNDS)
    page = PAGE.read_text()
    documented = {}
    for name, kind, rest in re.findall(r"^\| `(slotwise_\w+)` \| (\w+) \|(.*) \|$", page, re.MULTILINE):
        *labels, text = rest.split("|")
        documented[name] = (kind, frozenset(re.findall(r"`(\w+)`", "".join(labels))), text.strip())
    of_jobs = {"job": {"job_id", "job_name"}, "vertex": {"job_id", "vertex_id", "vertex_name"}}
    told = await scrape(world.http)
    seen = {}
    for metric in told.values():
        name = metric.name + ("_total" if metric.type == "counter" else "")
        if name.startswith("process_"):
            assert f"`{name}`" in page
            continue
        labels = {frozenset(sample.labels) - {"le"} for sample in metric.samples}
        # Where nothing has happened there are no series, and the page is all there is.
        expected = of_jobs.get(name.split("_")[1])
        known = frozenset(expected) if expected else documented[name][1]
        assert labels <= {known}, name
        seen[name] = (metric.type, documented[name][1], metric.documentation)
    assert seen == documented
    of_each = {name for name in documented if name.split("_")[1] in of_jobs}
    assert (
        len(of_each) > 20
        and {name for name in of_each if not told[name.removesuffix("_total")].samples} == set()
    )


async def test_figures_agree_with_what_the_rest_of_the_api_says(world: World) -> None:
    job_id = await loaded(world)
    world.host.hold()
    told = await scrape(world.http)
    ids = {"job_id": job_id, "job_name": "flight-delays"}
    metrics = {
        one["id"]: one["value"]
        for one in await world.get(f"/jobs/{job_id}/metrics", get="pendingRecords,stateRows")
    }
    assert value(told, "slotwise_job_pending_records", **ids) == float(metrics["pendingRecords"]) == 40
    assert value(told, "slotwise_pending_records") == 40
    assert value(told, "slotwise_job_state_rows", **ids) == float(metrics["stateRows"])
    assert value(told, "slotwise_job_running", **ids) == value(told, "slotwise_jobs", status="RUNNING") == 1
    explained = (await world.get(f"/jobs/{job_id}/explanation"))["slots"]
    for name, field in (("wanted", "desired"), ("held", "held"), ("used", "used")):
        assert value(told, f"slotwise_job_slots_{name}", **ids) == explained[field] > 0
        assert value(told, f"slotwise_slots_{name}") == explained[field]
    slots = (await world.get("/taskmanagers"))["taskmanagers"][0]
    assert value(told, "slotwise_slots_offered") == slots["slotsNumber"]
    assert value(told, "slotwise_slots_free") == slots["freeSlots"]
    for vertex in (await world.get(f"/jobs/{job_id}"))["vertices"]:
        labels = {"vertex_id": vertex["id"], "vertex_name": vertex["name"]}
        assert value(told, "slotwise_vertex_parallelism", **labels) == vertex["parallelism"]
        path = f"/jobs/{job_id}/vertices/{vertex['id']}/subtasks/metrics"
        (records,) = await world.get(path, get="numRecordsIn", agg="sum")
        assert value(told, "slotwise_vertex_records_in_total", **labels) == records["sum"] > 0


async def test_events_and_rescales_are_counted_as_they_are_stored(world: World) -> None:
    job_id = await world.running()
    await world.put(job_id, OTHER_BOUNDS)
    await world.completed(job_id, 2)
    await world.http.patch(f"/jobs/{job_id}?mode=cancel")
    await world.status(job_id, "CANCELED")
    events = await stored(world)
    told = await scrape(world.http)
    for kind in {one["type"] for one in events}:
        count = sum(one["type"] == kind for one in events)
        assert value(told, "slotwise_events_written_total", type=kind) == count, kind
    for record in await world.get(f"/jobs/{job_id}/rescales/history"):
        labels = {"cause": record["triggerCause"], "outcome": record["terminalState"], "rung": record["rung"]}
        assert value(told, "slotwise_rescales_total", **labels) == 1
    gaps = [one["outputGapInMillis"] for one in events if one["type"] == "rescale-ended"]
    known = [gap for gap in gaps if gap is not None]
    assert value(told, "slotwise_rescale_output_gap_seconds_count") == len(known) or not known
    assert value(told, "slotwise_rescale_seconds_count") == 2
    assert value(told, "slotwise_jobs_submitted_total") == 1
    assert value(told, "slotwise_jobs_ended_total", status="CANCELED") == 1
    assert value(told, "slotwise_jobs") == 0 and value(told, "slotwise_job_running") is None
    assert value(told, "slotwise_store_commit_seconds_count") >= len(
        {one["timestampInMillis"] for one in events}
    )


async def test_a_rescale_that_waits_for_slots_shows_how_long(world: World) -> None:
    job_id = await world.running()
    world.host.hold()
    await world.put(job_id, OTHER_BOUNDS)
    told = await scrape(world.http)
    assert value(told, "slotwise_rescales_open") == 1

    async def aged() -> bool:
        return bool(value(await scrape(world.http), "slotwise_job_rescale_open_seconds", job_id=job_id))

    await eventually(aged, "the age of the record")


async def test_requests_are_counted_by_the_template_of_their_path(world: World) -> None:
    job_id = await world.submit()
    await world.get(f"/v1/jobs/{job_id}/status")
    await world.get(f"/jobs/{job_id}/status")
    await world.http.get("/jobs/nope/status")
    await world.http.delete("/jobs")
    before = await scrape(world.http)
    for number in range(50):
        assert (await world.http.get(f"/nothing/{number}")).status_code == 404
        await world.http.request(f"M{number}", f"/jobs/{number}")
    told = await scrape(world.http)
    for labels, count in (
        ({"method": "GET", "route": "/jobs/{jobid}/status", "status": "200"}, 2),
        ({"method": "GET", "route": "/jobs/{jobid}/status", "status": "400"}, 1),
        ({"method": "DELETE", "route": "none", "status": "405"}, 1),
        ({"method": "GET", "route": "none", "status": "404"}, 50),
        ({"method": "other", "route": "none", "status": "405"}, 50),
    ):
        assert value(told, "slotwise_http_requests_total", **labels) == count, labels
    samples = [len(each["slotwise_http_requests"].samples) for each in (before, told)]
    # One each for those that are not there, of other methods, and the scrape before.
    assert samples[1] - samples[0] <= 3


async def test_a_stream_is_counted_as_soon_as_it_begins(world: World) -> None:
    async with listening(world) as port, following(port, "/events") as client:
        await client.next()
        told = await scrape(world.http)
        assert value(told, "slotwise_event_streams") == 1
        assert value(told, "slotwise_http_requests_total", route="/events", status="200") == 1

    async def gone() -> bool:
        return value(await scrape(world.http), "slotwise_event_streams") == 0

    await eventually(gone, "the end of the stream")


@contextlib.asynccontextmanager
async def another_face(world: World, jobs_max: int) -> AsyncIterator[httpx.AsyncClient]:
    settings = world.info.settings.model_copy(update={"metrics_jobs_max": jobs_max})
    info = dataclasses.replace(world.info, settings=settings)
    app = create_app(world.control_plane, info=info, plugins=world.plugins)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http:
        yield http


@pytest.mark.parametrize("jobs_max", [0, 1])
async def test_jobs_beyond_the_bound_are_in_the_sums_only(world: World, jobs_max: int) -> None:
    first = await world.running()
    others = [await world.submit(copy.deepcopy(GRAPH) | {"name": f"job-{number}"}) for number in range(2)]
    async with another_face(world, jobs_max) as http:
        told = await scrape(http)
    assert {sample.labels["job_id"] for sample in told["slotwise_job_running"].samples} == {first} - {
        first * (1 - jobs_max)
    }
    assert value(told, "slotwise_jobs") == 3 == len(others) + 1
    assert value(told, "slotwise_jobs_without_series") == 3 - jobs_max
    assert value(told, "slotwise_batches_total") > 0

    async def in_the_sum() -> bool:
        explained = [await world.get(f"/jobs/{one}/explanation") for one in (first, *others)]
        held = [one["slots"]["held"] for one in explained]
        return min(held) > 0 and value(await scrape(world.http), "slotwise_slots_held") == sum(held)

    await eventually(in_the_sum, "the slots of all three")


async def test_vertices_beyond_the_bound_have_no_series(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.running()
    monkeypatch.setattr(exposition, "VERTICES_PER_JOB", 2)
    async with another_face(world, 1) as http:
        told = await scrape(http)
    assert told["slotwise_vertex_parallelism"].samples == []
    assert value(told, "slotwise_vertices_without_series") == len(GRAPH["vertices"])
    assert value(told, "slotwise_job_running") == 1


async def test_hostile_names_stay_one_label_and_are_cut(world: World) -> None:
    hostile = copy.deepcopy(GRAPH) | {"name": HOSTILE}
    answer = await world.http.post("/jobs", json=hostile)
    if answer.status_code != 202:
        hostile["name"] = "".join(char for char in HOSTILE if char.isprintable())
        answer = await world.http.post("/jobs", json=hostile)
    assert answer.status_code == 202, answer.text
    told = await scrape(world.http)
    (sample,) = told["slotwise_job_running"].samples
    assert sample.labels["job_name"] == hostile["name"][: exposition.NAME_CHARS]


async def test_what_cannot_be_written_is_counted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = await world.running()

    async def away(*_args: Any, **_options: Any) -> Any:
        raise StoreUnavailable("The database is away.")

    with monkeypatch.context() as patch:
        patch.setattr(Writer, "submit", away)
        assert (await world.put(job_id, OTHER_BOUNDS)).status_code == 503
    told = await scrape(world.http)
    assert value(told, "slotwise_store_commit_failures_total", reason="unavailable") >= 1
    assert value(told, "slotwise_store_commit_failures_total", reason="refused") == 0


async def test_who_counts_cannot_undo_a_change(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_args: Any) -> None:
        raise KeyError("a defect")

    for hook in ("committed", "not_committed", "batch_reported"):
        monkeypatch.setattr(SampledBatches, hook, broken)
    job_id = await world.running()
    assert (await world.put(job_id, OTHER_BOUNDS)).status_code == 200
    await world.completed(job_id, 2)
    assert value(await scrape(world.http), "slotwise_jobs_submitted_total") == 1, "the others are told"
    with pytest.raises(StoreError):
        await world.store.commit(
            UnitOfWork(job_id, 1).add(SaveState(99, world.control_plane.job(job_id).state, JobStatus.RUNNING))
        )


async def test_each_server_tells_of_its_own_jobs(database_url: str, tmp_path: Path) -> None:
    if database_url.startswith("sqlite"):
        pytest.skip("servers share jobs on PostgreSQL only")
    network, dead, host = Network(), set[str](), FakeHost()
    async with (
        server(database_url, tmp_path, network, 1, dead, host) as one,
        server(database_url, tmp_path, network, 2, dead, host) as two,
    ):
        own = [await each.rig.plane.submit(graph(), {}) for each in (one, two)]

        async def told() -> bool:
            each = [await scrape(member.http) for member in (one, two)]
            shown = [
                {sample.labels["job_id"] for sample in all_["slotwise_job_running"].samples} for all_ in each
            ]
            sums = [value(all_, "slotwise_leases_held") for all_ in each]
            members = [value(all_, "slotwise_members") for all_ in each]
            return (
                sorted(id_ for ids in shown for id_ in ids) == sorted(own)
                and sums == [len(ids) for ids in shown]
                and members == [2, 2]
            )

        await eventually(told, "each job at one server")
