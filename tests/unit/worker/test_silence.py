"""Drivers that are silent: their silence counts only while the server runs and can be called, and ends in a kill."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from app.worker.job.silence import Silence
from tests.unit.worker.fakes import Rig, graph, rig_on

# Ten looks in a row have to be in time, also on a machine that does other things besides.
LIMIT_S = 1.0
MUCH_LONGER_S = 3 * LIMIT_S


class Live(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/health/live" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def server_at(file: Path) -> Iterator[None]:
    """A server that answers, whose address is in ``file``."""
    server = HTTPServer(("127.0.0.1", 0), Live)
    threading.Thread(target=server.serve_forever, args=(0.01,)).start()
    file.write_text(f"http://127.0.0.1:{server.server_port}\n7\n")
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def address(tmp_path: Path) -> Iterator[Path]:
    with server_at(tmp_path / "address"):
        yield tmp_path / "address"


async def is_over(watch: asyncio.Future[str], within_s: float) -> bool:
    done, _ = await asyncio.wait({watch}, timeout=within_s)
    return bool(done)


async def test_a_driver_that_does_not_call_is_silent(address: Path) -> None:
    async with asyncio.timeout(60):
        said = await Silence(LIMIT_S).reached(lambda: 3, address)
    assert "did not ask for its orders for 1 s (driver_standstill_seconds)" in said


async def test_one_that_calls_is_not_nor_one_that_cannot_be_expected_to(address: Path) -> None:
    counted = itertools.count()
    for calls in (lambda: next(counted), lambda: None):
        watch = asyncio.ensure_future(Silence(LIMIT_S).reached(calls, address))
        assert not await is_over(watch, MUCH_LONGER_S)
        watch.cancel()


async def test_silence_counts_anew_once_the_server_can_be_called(tmp_path: Path) -> None:
    address = tmp_path / "address"
    watch = asyncio.ensure_future(Silence(LIMIT_S).reached(lambda: 3, address))
    assert not await is_over(watch, MUCH_LONGER_S), "there is no address"
    address.write_text("http://127.0.0.1:1\n")
    assert not await is_over(watch, MUCH_LONGER_S), "nobody answers there"
    with server_at(address):
        assert await is_over(watch, 60)


async def test_silence_does_not_count_while_the_server_does_not_run(address: Path) -> None:
    watch = asyncio.ensure_future(Silence(LIMIT_S).reached(lambda: 3, address))
    end_s = time.monotonic() + MUCH_LONGER_S
    while time.monotonic() < end_s:
        # Longer than two looks are apart.
        time.sleep(0.25 * LIMIT_S)  # noqa: ASYNC251
        await asyncio.sleep(0.01 * LIMIT_S)
        assert not watch.done()
    assert await is_over(watch, 60)


# ---- in a control plane


@asynccontextmanager
async def watching(url: str, tmp_path: Path, host: object = None) -> AsyncIterator[Rig]:
    async with rig_on(url, tmp_path, host=host, limit_s=LIMIT_S) as rig:
        yield rig


async def test_a_silent_driver_is_killed_and_replaced_once_it_is_gone(
    sqlite_url: str, tmp_path: Path
) -> None:
    async with watching(sqlite_url, tmp_path) as rig:
        with server_at(rig.places.address_file):
            job = await rig.run()
            first = rig.driver
            first.hold_kill = asyncio.Event()
            await rig.until(lambda: first.kills > 0, "it is to be killed")
            assert rig.kind(job) == "Executing" and len(rig.host.drivers) == 1, "it is not taken for dead"
            first.hold_kill.set()
            assert await rig.assigned(2) is not first
            failure = rig.plane.job(job).state.recovery.failures[0][0]
            assert failure.error.startswith("The driver did not ask for its orders")


async def test_a_driver_that_asks_for_orders_is_kept_and_answered_in_time(
    sqlite_url: str, tmp_path: Path
) -> None:
    async with watching(sqlite_url, tmp_path) as rig:
        with server_at(rig.places.address_file):
            job = await rig.run()
            plan = (await rig.orders(job)).plan_version
            end_s = time.monotonic() + MUCH_LONGER_S
            while time.monotonic() < end_s:
                await rig.orders(job, plan=plan, wait_ms=60_000)
            assert [one.kills for one in rig.host.drivers] == [0] and rig.kind(job) == "Executing"


async def test_a_driver_that_has_not_registered_may_still_start(sqlite_url: str, tmp_path: Path) -> None:
    async with watching(sqlite_url, tmp_path) as rig:
        with server_at(rig.places.address_file):
            await rig.plane.submit(graph(2), {})
            await rig.assigned(1)
            await asyncio.sleep(MUCH_LONGER_S)
            assert [one.kills for one in rig.host.drivers] == [0]


async def test_a_driver_that_was_suspended_while_no_server_ran_is_noticed_by_the_next(
    sqlite_url: str, tmp_path: Path
) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        await rig.run()
        driver = rig.driver
    async with watching(sqlite_url, tmp_path, host=rig.host) as again:
        with server_at(again.places.address_file):
            await again.until(lambda: driver.kills > 0, "it is killed")


async def test_a_server_that_may_have_lost_its_leases_ends_no_driver(sqlite_url: str, tmp_path: Path) -> None:
    async with watching(sqlite_url, tmp_path) as rig:
        with server_at(rig.places.address_file):
            await rig.run()
            rig.plane._keeper.lease_certainty.renewed(0, 0)
            await asyncio.sleep(MUCH_LONGER_S)
            assert [one.kills for one in rig.host.drivers] == [0]
