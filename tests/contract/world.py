"""A whole control plane in the test's own process: the real API, core, worker and store, and protocol drivers."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from starlette.types import ASGIApp

import tests.checked_steps  # noqa: F401 - each step is checked
from app.api.app import create_app
from app.api.auth import Tokens
from app.api.info import ServerInfo
from app.api.plugin import Plugin
from app.plugins.assembly import plugins_of
from app.settings import Settings
from app.store.store import Store
from app.worker.clock import SystemClock
from app.worker.control_plane import ControlPlane
from app.worker.job.places import JobPlaces
from tests.contract.drivers import ProtocolDriver
from tests.contract.hosts import ProtocolHost

SLOTS = 8
PATIENCE_S = 20.0
_owners = itertools.count(1)

GRAPH: dict[str, Any] = {
    "name": "flight-delays",
    "type": "STREAMING",
    "vertices": [
        {
            "name": "flights",
            "source": {"format": "rate", "options": {"rowsPerSecond": "100"}},
            "parallelism": 2,
        },
        {
            "name": "delays",
            "inputs": ["flights"],
            "sql": "SELECT value % 10 AS k, count(*) AS n FROM flights GROUP BY value % 10",
            "parallelism": 2,
            "maxParallelism": 12,
        },
        {
            "name": "store",
            "inputs": ["delays"],
            "sink": {"format": "noop", "outputMode": "update"},
            "slotSharingGroup": "sinks",
        },
    ],
}


RESTART_AT_ONCE = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "1 ms"}
"""The config of a job that need not wait before it runs again."""


def bounds(**by_name: tuple[int, int]) -> dict[str, Any]:
    """The body of a PUT, by vertex name."""
    return {
        name: {"parallelism": {"lowerBound": lower, "upperBound": upper}}
        for name, (lower, upper) in by_name.items()
    }


async def eventually(probe: Callable[[], Awaitable[Any]], what: str) -> Any:
    """The first true answer of ``probe``, which is asked more rarely the longer it takes: asking costs CPU time."""
    began = time.monotonic()
    while not (found := await probe()):
        waited_s = time.monotonic() - began
        assert waited_s < PATIENCE_S, f"{what}: not within {PATIENCE_S:.0f} s"
        await asyncio.sleep(max(0.005, waited_s / 20))
    return found


@dataclass
class World:
    app: ASGIApp
    control_plane: ControlPlane
    host: ProtocolHost
    http: httpx.AsyncClient
    store: Store
    info: ServerInfo
    directory: Path
    plugins: Sequence[Plugin]

    async def get(self, path: str, **params: Any) -> Any:
        answer = await self.http.get(path, params=params or None)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def submit(self, graph: dict[str, Any] | None = None) -> str:
        answer = await self.http.post("/jobs", json=graph or GRAPH)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["jobid"])

    async def running(self, graph: dict[str, Any] | None = None) -> str:
        """A job that runs, its first rescale completed."""
        job_id = await self.submit(graph)
        await self.completed(job_id, 1)
        return job_id

    async def status(self, job_id: str, wanted: str) -> None:
        async def there() -> bool:
            return bool((await self.get(f"/jobs/{job_id}/status"))["status"] == wanted)

        await eventually(there, f"job {job_id} {wanted}")

    async def completed(self, job_id: str, count: int) -> None:
        """Wait until so many rescales of the job have completed."""

        async def there() -> bool:
            overview = await self.get(f"/jobs/{job_id}/rescales/overview")
            return bool(overview["rescalesCounts"]["completed"] >= count)

        await eventually(there, f"{count} completed rescales of job {job_id}")

    async def put(self, job_id: str, body: Any, **headers: str) -> httpx.Response:
        return await self.http.put(f"/jobs/{job_id}/resource-requirements", json=body, headers=headers)

    def driver(self) -> ProtocolDriver:
        return self.host.drivers[-1]

    async def vertex(self, job_id: str, name: str) -> str:
        vertices = (await self.get(f"/jobs/{job_id}"))["vertices"]
        return str(next(vertex["id"] for vertex in vertices if vertex["name"] == name))


@contextlib.asynccontextmanager
async def open_world(
    url: str,
    directory: Path,
    *,
    tokens: Tokens | None = None,
    slots: int = SLOTS,
    migrate: bool = True,
    slot_holding_ms: int = 60_000,
    plugins: Sequence[Plugin] | None = None,
) -> AsyncIterator[World]:
    """A started control plane on a database; its drivers end with it."""
    plugins = plugins or plugins_of(traces=False)
    store = await Store.open(url, owner=f"contract-{next(_owners)}", durable=False, migrate=migrate)
    apps: list[ASGIApp] = []
    host = ProtocolHost(lambda: apps[0])
    address_file = directory / "address"
    address_file.write_text("http://localhost\n")
    control_plane = ControlPlane(
        store,
        host=host,
        places=JobPlaces(
            jobs_dir=directory / "jobs", address_file=address_file, slots=slots, home="that of this world"
        ),
        clock=SystemClock(),
        new_id=lambda: secrets.token_hex(16),
        slot_holding_ms=slot_holding_ms,
        observers=plugins,
    )
    settings = Settings(data_dir=directory, database_url=url, slots=slots, port=8081)
    info = ServerInfo(version="0.1.0", slots=slots, url="http://127.0.0.1:8081", settings=settings)
    apps.append(create_app(control_plane, info=info, tokens=tokens, plugins=plugins))
    http = httpx.AsyncClient(
        transport=httpx.ASGITransport(apps[0]), base_url="http://localhost", timeout=PATIENCE_S
    )
    try:
        await control_plane.start()
        yield World(apps[0], control_plane, host, http, store, info, directory, plugins)
    finally:
        await host.close()
        await control_plane.close()
        await http.aclose()
        await store.close()
