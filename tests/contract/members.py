"""Control planes that share jobs, in one process, and the network between them."""

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

from app.api.app import create_app
from app.api.forwarding import Forwarding
from app.api.info import ServerInfo
from app.plugins.assembly import plugins_of
from app.settings import Settings
from app.store.leases import full_name
from app.store.members import Member, Members
from app.store.store import Store
from app.worker.job.places import JobPlaces
from app.worker.ownership.control_planes import ControlPlanes
from tests.unit.worker.fakes import FakeHost, Rig

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
    plugins = plugins_of(traces=False)
    app = create_app(rig.plane, info=info, control_planes=cluster, forwarding=forwarding, plugins=plugins)
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
