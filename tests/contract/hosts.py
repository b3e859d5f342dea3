"""A cluster for contract tests: a host of drivers that run no Spark."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from pathlib import Path

from starlette.types import ASGIApp

from app.cluster.ports import DriverLaunchError, DriverRef
from app.model.environment import Runtime
from tests.contract.drivers import ProtocolDriver, Queries


class ProtocolHost:
    """A `DriverHost` of protocol drivers. ``hold``: drivers commit no batch until `release`."""

    slow_start = ""
    warm_ready = 0

    def __init__(self, app: Callable[[], ASGIApp]) -> None:
        self._app = app
        self._pids = itertools.count(4_000_001)
        # Where locks and logs of drivers would be.
        self.run_dir = Path("/nowhere")
        # The page of Spark in each driver.
        self.ui_url = ""
        self.drivers: list[ProtocolDriver] = []
        self.refuse: str | None = None
        self.refuse_repartition: str | None = None
        # The driver of the next attempt fails with it before its first batch.
        self.fail_next: str | None = None
        # Of all drivers: what a report says of them.
        self.executors: dict[str, int] = {}
        self.regions_left = 1_000
        # Why what jobs would run in cannot be had.
        self.cannot_build: str | None = None
        self.builds: list[Runtime] = []
        # Why drivers can redistribute no state of a document.
        self.fixed: str | None = None
        # Until then what jobs would run in is being built.
        self.built = asyncio.Event()
        self.built.set()
        # What the programs of drivers to come start at once; other queries are started by a test.
        self.queries: Queries = ()
        self._running = asyncio.Event()
        self._running.set()

    def hold(self) -> None:
        self._running.clear()

    def release(self) -> None:
        self._running.set()

    async def acquire(
        self, java_options: tuple[str, ...] = (), runtime: Runtime | None = None, home: Path | None = None
    ) -> ProtocolDriver:
        if self.refuse is not None:
            raise DriverLaunchError(self.refuse)
        if self.cannot_build is not None and runtime is not None and runtime.is_own:
            raise DriverLaunchError(self.cannot_build, recoverable=False)
        pid = next(self._pids)
        ref = DriverRef(f"driver-{pid}", pid, time.time(), str(self.run_dir / f"driver-{pid}.lock"))
        driver = ProtocolDriver(
            ref,
            self._app,
            self._running,
            regions_left=self.regions_left,
            refuse_repartition=lambda: self.refuse_repartition,
            executors=self.executors,
            queries=self.queries,
            fixed=self.fixed,
            ui_url=self.ui_url,
        )
        self.drivers.append(driver)
        if self.fail_next is not None:
            driver.fail(self.fail_next)
            self.fail_next = None
        return driver

    async def build(self, runtime: Runtime) -> None:
        self.builds.append(runtime)
        await self.built.wait()
        if self.cannot_build is not None:
            raise DriverLaunchError(self.cannot_build, recoverable=False)

    def adopt(self, ref: DriverRef) -> ProtocolDriver | None:
        return next((driver for driver in self.drivers if driver.ref == ref and driver.alive), None)

    def refill(self) -> None:
        """There are no warm drivers here."""

    async def close(self) -> None:
        for driver in self.drivers:
            await driver.kill()
