"""Control planes that share jobs: shares, hand-overs, and requests that reach a process that does not own the job."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.api.app import create_app
from app.api.forwarding import Forwarding
from app.api.info import ServerInfo
from app.settings import Settings
from app.store import Store
from app.store.errors import StoreUnavailable
from app.store.leases import full_name
from app.store.members import Member, Members
from app.worker.job.places import JobPlaces
from app.worker.ownership import leases as ownership
from app.worker.ownership.control_planes import ControlPlanes
from tests.unit.worker.fakes import FakeHost, Rig, graph

HOME = "here"
TTL_MS = 600_000
RENEW_S = 0.05
NAMES = ("events", "counts", "store")
_numbers = itertools.count(1)


def body(upper: int) -> dict[str, Any]:
    return {name: {"parallelism": {"lowerBound": 1, "upperBound": upper}} for name in NAMES}


@dataclass
class Network:
    """The applications by host name; those in ``down`` refuse connections."""

    apps: dict[str, Any] = dataclasses.field(default_factory=dict)
    down: set[str] = dataclasses.field(default_factory=set)
    calls: list[tuple[str, str]] = dataclasses.field(default_factory=list)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        name = request.url.host
        self.calls.append((name, request.method))
        if name in self.down:
            raise httpx.ConnectError("refused", request=request)
        return await httpx.ASGITransport(self.apps[name]).handle_async_request(request)

    async def aclose(self) -> None:
        pass


class _Transport(httpx.AsyncBaseTransport):
    def __init__(self, network: Network) -> None:
        self._network = network

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return await self._network.handle_async_request(request)


@dataclass
class Server:
    rig: Rig
    member: Member
    cluster: ControlPlanes
    http: httpx.AsyncClient
    dead: set[str]

    async def jobs(self) -> dict[int, int]:
        """Jobs by seat, of those that are alive."""
        answer = (await self.http.get("/cluster/members")).json()
        return {one["seat"]: one["jobs"] for one in answer["members"] if one["state"] == "ALIVE"}

    def owns(self, job_id: str) -> bool:
        return self.cluster.serves(job_id)


@asynccontextmanager
async def server(
    url: str, directory: Path, network: Network, seat: int, dead: set[str], host: FakeHost
) -> AsyncIterator[Server]:
    """A member as `app.main` runs it. Its end is that of a kill: leases stay, and ``dead`` has to be told."""
    name = f"s{next(_numbers)}.localhost"
    member = Member(full_name(name, HOME), HOME, seat, f"http://{name}", "here", "kernel", 1, "0.1.0", 8)
    store = await Store.open(url, name, home=HOME, durable=False, lease_ttl_ms=TTL_MS)
    rig = Rig(store, directory, host=host)
    places = JobPlaces(
        directory / "jobs",
        directory / "address",
        8,
        url=member.url,
        task_manager=member.task_manager,
    )
    rig.use(places)
    assert await Members(store).join(member) == []
    cluster = await rig.plane.start(
        renew_every_s=RENEW_S, member=member, is_dead=lambda one: one.member_id in dead
    )
    forwarding = Forwarding(cluster, transport=_Transport(network))
    settings = Settings(data_dir=directory, database_url=url, slots=8)
    info = ServerInfo("0.1.0", 8, member.url, settings)
    app = create_app(rig.plane, info=info, control_planes=cluster, forwarding=forwarding)
    network.apps[name] = app
    http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=member.url, timeout=20)
    try:
        yield Server(rig, member, cluster, http, dead)
    finally:
        network.down.add(name)
        await rig.plane.close()
        await forwarding.close()
        await http.aclose()
        await store.close()


def hold_renewals(one: Server) -> asyncio.Event:
    """From now on it renews nothing, until the event is set."""
    release = asyncio.Event()
    renew = one.rig.store.renew_leases

    async def asleep() -> Any:
        await release.wait()
        return await renew()

    one.rig.store.renew_leases = asleep  # type: ignore[method-assign]
    return release


async def until(condition: Callable[[], Any], what: str) -> None:
    deadline = asyncio.get_running_loop().time() + 60
    while True:
        found = condition()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return
        assert asyncio.get_running_loop().time() < deadline, f"{what} did not come true"
        await asyncio.sleep(0.01)


@asynccontextmanager
async def two(url: str, directory: Path) -> AsyncIterator[tuple[Server, Server, Network]]:
    network, dead, host = Network(), set[str](), FakeHost()
    async with (
        server(url, directory, network, 1, dead, host) as first,
        server(url, directory, network, 2, dead, host) as second,
    ):
        yield first, second, network


async def test_any_process_answers_and_writes_reach_the_owner(postgresql_url: str, tmp_path: Path) -> None:
    async with two(postgresql_url, tmp_path) as (first, second, _):
        job = await first.rig.run()
        assert (await second.http.get(f"/jobs/{job}")).json()["state"] == "RUNNING"
        path = f"/jobs/{job}/resource-requirements"
        answer = await second.http.put(path, json=body(4), headers={"Idempotency-Key": "a"})
        assert (answer.status_code, answer.headers["etag"]) == (200, '"2"')
        again = await second.http.put(path, json=body(4), headers={"Idempotency-Key": "a"})
        assert (again.status_code, again.headers["etag"]) == (200, '"2"')
        stale = await second.http.put(path, json=body(3), headers={"If-Match": '"1"'})
        assert stale.status_code == 412
        wrong = await second.http.put(path, json={"nothing": 1})
        assert wrong.status_code == 400
        assert wrong.json() == (await first.http.put(path, json={"nothing": 1})).json()
        listed = (await second.http.get("/jobs/overview")).json()["jobs"]
        assert [one["jid"] for one in listed] == [job]
        overview = (await second.http.get("/overview")).json()
        assert (overview["slots-total"], overview["jobs-running"]) == (16, 1)
        assert (await second.http.get(f"/jobs/{'0' * 32}")).status_code == 404
        assert first.rig.plane.job(job).state.requirements.version == 2
        assert not second.owns(job)


async def test_without_the_owner_reads_are_answered_and_writes_are_not(
    postgresql_url: str, tmp_path: Path
) -> None:
    async with two(postgresql_url, tmp_path) as (first, second, network):
        job = await first.rig.run()
        network.down.add(httpx.URL(first.member.url).host)
        path = f"/jobs/{job}/resource-requirements"
        assert (await second.http.get(f"/jobs/{job}")).json()["state"] == "RUNNING"
        assert (await second.http.get(path)).headers["etag"] == '"1"'
        refused = await second.http.put(path, json=body(4))
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert "cannot be reached" in refused.json()["errors"][0]
        assert first.rig.plane.job(job).state.requirements.version == 1


async def test_what_cannot_be_read_is_not_said_to_be_missing(
    postgresql_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two(postgresql_url, tmp_path) as (first, second, _):
        job = await first.rig.run()

        async def away(*_: Any) -> Any:
            raise StoreUnavailable("the database is away")

        with monkeypatch.context() as patch:
            for name in ("owner_of", "marks"):
                patch.setattr(Members, name, away)
            path = f"/jobs/{job}/resource-requirements"
            for refused in (await second.http.put(path, json=body(4)), await second.http.get(f"/jobs/{job}")):
                assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
                assert "the database cannot be read" in refused.json()["errors"][0]
        # What has been seen once is shown as it was.
        assert (await second.http.get("/jobs/overview")).json()["jobs"]
        for name in ("owner_of", "marks"):
            monkeypatch.setattr(Members, name, away)
        assert (await second.http.get(f"/jobs/{job}")).json()["state"] == "RUNNING"
        assert (await second.http.put(path, json=body(4))).status_code == 503


async def test_what_was_sent_on_is_not_sent_on_again(postgresql_url: str, tmp_path: Path) -> None:
    async with two(postgresql_url, tmp_path) as (first, second, network):
        job = await first.rig.run()
        network.calls.clear()
        path = f"/jobs/{job}/resource-requirements"
        refused = await second.http.put(path, json=body(4), headers={"X-Slotwise-Forwarded": "1"})
        assert (refused.status_code, network.calls) == (503, [])
        assert refused.headers["retry-after"]


async def test_an_owner_that_gives_no_answer_is_not_waited_for_when_the_job_has_another(
    postgresql_url: str, tmp_path: Path
) -> None:
    async with two(postgresql_url, tmp_path) as (first, second, network):
        job = await first.rig.run()

        async def silent(*_: Any) -> None:
            await asyncio.Event().wait()

        network.apps[httpx.URL(first.member.url).host] = silent
        path = f"/jobs/{job}/resource-requirements"
        hold_renewals(first)
        asking = asyncio.create_task(second.http.put(path, json=body(4)))
        await until(lambda: network.calls, "it was sent")
        second.dead.add(first.member.member_id)
        await until(lambda: second.owns(job), "the job is taken over")
        answer = await asyncio.wait_for(asking, 60)
        assert answer.status_code == 503
        assert "Whether the request was carried out is not known" in answer.json()["errors"][0]
        assert (await second.http.put(path, json=body(4))).status_code == 200


async def test_the_dead_are_followed_at_once_and_their_jobs_are_spread(
    postgresql_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each takes its share only: one that is a round late would get nothing, and what does not run is not evened out.
    never = property(lambda _: False, lambda _, __: None)
    monkeypatch.setattr(ownership.Ownership, "_free_before", never, raising=False)
    network, dead, host = Network(), set[str](), FakeHost()
    async with (
        server(postgresql_url, tmp_path, network, 2, dead, host) as second,
        server(postgresql_url, tmp_path, network, 1, dead, host) as first,
    ):
        jobs = [await first.rig.plane.submit(graph(1), {}) for _ in range(4)]
        async with server(postgresql_url, tmp_path, network, 3, dead, host) as third:
            # None of them runs yet, so none is handed over.
            assert sum((await second.jobs()).values()) == 4
            await first.rig.plane.close()
            dead.add(first.member.member_id)
            await until(lambda: _all(second, third, jobs), "each is taken over")
            assert sorted(len(_owned(one, jobs)) for one in (second, third)) == [2, 2]


async def run(one: Server, number: int) -> str:
    """The ``number``-th job, with its first batch committed. Its driver is the last one that was started."""
    job = await one.rig.plane.submit(graph(1), {})
    await one.rig.until(lambda: len(one.rig.host.drivers) > number and one.rig.driver.spec, "it has a driver")
    await one.rig.bring_up(job, 1)
    return job


def _owned(one: Server, jobs: list[str]) -> list[str]:
    return [job for job in jobs if one.owns(job)]


def _all(second: Server, third: Server, jobs: list[str]) -> bool:
    return sorted(_owned(second, jobs) + _owned(third, jobs)) == sorted(jobs)


async def test_a_member_that_joins_gets_jobs_one_at_a_time_and_keeps_their_drivers(
    postgresql_url: str, tmp_path: Path
) -> None:
    network, dead, host = Network(), set[str](), FakeHost()
    async with server(postgresql_url, tmp_path, network, 1, dead, host) as first:
        jobs = [await run(first, number) for number in range(3)]
        pids = {job: first.rig.plane.job(job).driver_pid for job in jobs}
        slots = {job: first.rig.plane.job(job).state.slots for job in jobs}
        async with server(postgresql_url, tmp_path, network, 2, dead, host) as second:
            await until(lambda: len(_owned(second, jobs)) == 1, "a job is handed over")
            (moved,) = _owned(second, jobs)
            view = second.rig.plane.job(moved)
            assert (view.driver_pid, view.epoch) == (pids[moved], 2)
            assert view.state.slots == slots[moved], "it took its slots along"
            address = tmp_path / "jobs" / moved / "address"
            assert address.read_text().split() == [second.member.url, "2"]
            # Two and one: nothing goes to and fro.
            assert [driver.kills for driver in host.drivers] == [0, 0, 0]
            assert await second.jobs() == {1: 2, 2: 1}
            await second.rig.plane._keeper.broker.refresh()
            shown = [(one.id, one.slots, one.free_slots) for one in second.rig.plane.task_managers()]
            assert shown == [("host", 8, 5), ("host-2", 8, 8)], "they are where they were"


async def test_a_job_has_slots_of_all_servers_and_keeps_them_when_the_one_that_decides_is_lost(
    postgresql_url: str, tmp_path: Path
) -> None:
    async with two(postgresql_url, tmp_path) as (first, second, _):
        job = await first.rig.run()
        path = f"/jobs/{job}/resource-requirements"

        def slots(one: Server) -> set[str]:
            return {slot.id for slot in one.rig.plane.job(job).state.slots}

        async def arbiter(one: Server) -> list[int]:
            answer = (await one.http.get("/cluster/members")).json()
            return [found["seat"] for found in answer["members"] if found["isArbiter"]]

        assert await arbiter(second) == [1]
        assert (await second.http.put(path, json=body(12))).status_code == 200
        await until(lambda: len(slots(first)) == 12, "it has the slots of both")
        held = slots(first)
        assert {slot_id.rpartition("-")[0] for slot_id in held} == {"host", "host-2"}
        dry = (await second.http.put(path, params={"dryRun": "true"}, json=body(40))).json()
        assert dry["slotsAfter"] == 16
        await first.rig.plane.close()
        first.dead.add(first.member.member_id)
        await until(lambda: second.owns(job), "the job is taken over")
        await until(lambda: slots(second) == held, "with its slots")

        async def decides() -> bool:
            return await arbiter(second) == [2]

        await until(decides, "the other one decides")
        assert (await second.http.put(path, json=body(16))).status_code == 200
        await until(lambda: len(slots(second)) == 16, "the slots of the dead are not idle")
        assert held < slots(second)


async def test_a_process_that_was_stopped_asks_before_it_acts(postgresql_url: str, tmp_path: Path) -> None:
    """Its clock says that its leases may be over: no answer from memory, no order to a driver, no effect."""
    async with two(postgresql_url, tmp_path) as (first, second, _):
        job = await first.rig.run()
        release = hold_renewals(first)
        first.rig.clock.stopped_ms += TTL_MS
        assert not first.owns(job)
        second.dead.add(first.member.member_id)
        await until(lambda: second.owns(job), "the job is taken over")
        answer = await first.http.put(f"/jobs/{job}/resource-requirements", json=body(4))
        assert answer.status_code == 200, "the new owner was asked"
        assert second.rig.plane.job(job).state.requirements.version == 2
        assert first.rig.plane.job(job).state.requirements.version == 1
        release.set()
        await until(lambda: job not in first.rig.plane._keeper.jobs, "it lets go")
