"""The embedded cluster: this host offers the slots and runs the drivers, some of them kept warm."""

from __future__ import annotations

import asyncio
import os
import shlex
import time
import uuid
from pathlib import Path

import structlog

from app.cluster.appcds import ArchiveBuilder
from app.cluster.driveruser import DriverUser
from app.cluster.java import Java
from app.cluster.ports import DriverHandle, DriverLaunchError, DriverRef
from app.cluster.processes import (
    DRIVER_ENV_PREFIX,
    LocalDriver,
    is_lock_free,
    is_running,
    start_driver,
    sweep,
    trim_logs,
)

log = structlog.get_logger()

_TRIM_LOGS_EVERY_S = 60.0
_REFILL_BACKOFF_S = (1.0, 5.0, 30.0, 120.0)


class EmbeddedHost:
    """Drivers as processes of this host. Implements `app.cluster.ports.DriverHost`."""

    def __init__(
        self,
        run_dir: Path,
        *,
        java: Java,
        slots: int,
        warm_drivers: int,
        memory_mb: int,
        java_options: str = "",
        archive: ArchiveBuilder | None = None,
        user: DriverUser | None = None,
    ) -> None:
        self._run_dir = run_dir
        self._java = java
        self._slots = slots
        self._warm_wanted = warm_drivers
        self._memory_mb = memory_mb
        self._java_options = tuple(shlex.split(java_options))
        self._archive = archive
        self._user = user
        self._warm: list[LocalDriver] = []
        self._all: set[LocalDriver] = set()
        self._failures = 0
        self._retry: asyncio.TimerHandle | None = None
        self._tidying: set[asyncio.Task[None]] = set()
        self._closed = False
        sweep(run_dir)
        self._trimming = asyncio.get_running_loop().create_task(self._trim_logs())

    async def acquire(self, java_options: tuple[str, ...] = ()) -> DriverHandle:
        if not java_options:
            # A driver that is still warming up is nearer to its job than a new one. One that has ended is dealt with
            # by `_on_warm_exit`.
            for ready in (True, False):
                for driver in self._warm:
                    if driver.is_ready is ready and not driver.has_exited:
                        self._warm.remove(driver)
                        return driver
        return self._start(warm=False, java_options=java_options)

    def adopt(self, ref: DriverRef) -> DriverHandle | None:
        if not is_running(ref) and is_lock_free(ref.lock_file):
            return None
        driver = LocalDriver(ref, None, self._user)
        self._track(driver)
        return driver

    def refill(self) -> None:
        if self._closed or self._retry is not None or len(self._warm) >= self._warm_wanted:
            return
        try:
            driver = self._start(warm=True)
        except DriverLaunchError as error:
            log.warning("no warm driver", error=str(error))
            self._refill_later()
            return
        self._warm.append(driver)
        driver.on_exit(lambda status: self._on_warm_exit(driver, status))
        driver.on_ready(lambda: self._on_warm_ready(driver))

    def close(self) -> None:
        """Leave running drivers alone and let the warm ones end (their standard input is closed with this process)."""
        self._closed = True
        self._trimming.cancel()
        if self._retry is not None:
            self._retry.cancel()
        for task in self._tidying:
            task.cancel()
        for driver in list(self._all):
            driver.detach()

    @property
    def slow_start(self) -> str:
        if self._archive is None or not self._archive.is_building:
            return ""
        return (
            "The class data archive is being built, once per installation: until it is there, which takes a minute or "
            "two, drivers start slowly."
        )

    @property
    def warm_ready(self) -> int:
        return sum(1 for driver in self._warm if driver.is_ready)

    def _start(self, *, warm: bool, java_options: tuple[str, ...] = ()) -> LocalDriver:
        driver_id = f"driver-{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:8]}"
        options = [f"-Xmx{self._memory_mb}m", *self._java_options, *java_options]
        archive = self._archive.path_if_ready() if self._archive else None
        driver = start_driver(
            driver_id=driver_id,
            run_dir=self._run_dir,
            warm=warm,
            user=self._user,
            environment={
                DRIVER_ENV_PREFIX + "ARCHIVE": str(archive) if archive else "",
                DRIVER_ENV_PREFIX + "WARM_MASTER": f"local[{self._slots}]",
                DRIVER_ENV_PREFIX + "JAVA": self._java.command,
                DRIVER_ENV_PREFIX + "JAVA_OPTIONS": shlex.join(options),
            },
        )
        self._track(driver)
        return driver

    def _track(self, driver: LocalDriver) -> None:
        self._all.add(driver)
        driver.on_exit(lambda _status: self._all.discard(driver))

    async def _trim_logs(self) -> None:
        while True:
            await asyncio.sleep(_TRIM_LOGS_EVERY_S)
            await asyncio.to_thread(trim_logs, self._run_dir)

    def _on_warm_ready(self, driver: LocalDriver) -> None:
        log.info("warm driver ready", driver=driver.ref.driver_id, pid=driver.ref.pid)
        self._failures = 0
        # One after the other: several that warm up at once slow each other and the jobs down.
        if driver in self._warm:
            self.refill()

    def _on_warm_exit(self, driver: LocalDriver, status: int | None) -> None:
        if driver not in self._warm:
            return
        self._warm.remove(driver)
        log.warning("a warm driver ended", driver=driver.ref.driver_id, exit_status=status)
        # No job asks after this one, so nobody else waits for the last of it and removes its files.
        task = asyncio.get_running_loop().create_task(driver.gone())
        self._tidying.add(task)
        task.add_done_callback(self._tidying.discard)
        self._refill_later()

    def _refill_later(self) -> None:
        delay_s = _REFILL_BACKOFF_S[min(self._failures, len(_REFILL_BACKOFF_S) - 1)]
        self._failures += 1

        def retry() -> None:
            self._retry = None
            self.refill()

        if not self._closed and self._retry is None:
            self._retry = asyncio.get_running_loop().call_later(delay_s, retry)


def host_memory_bytes() -> tuple[int, int]:
    """Total and available memory of this host."""
    page = os.sysconf("SC_PAGE_SIZE")
    return page * os.sysconf("SC_PHYS_PAGES"), page * os.sysconf("SC_AVPHYS_PAGES")
