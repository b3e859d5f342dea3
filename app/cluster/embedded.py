"""The embedded cluster: this host offers the slots and runs the drivers, some of them kept warm."""

from __future__ import annotations

import asyncio
import os
import shlex
import time
import uuid
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import psutil
import structlog

from app.cluster.appcds import ArchiveBuilder
from app.cluster.driverlogs import trim_logs
from app.cluster.driveruser import DriverUser
from app.cluster.environments import Environment
from app.cluster.java import Java
from app.cluster.ports import DriverHandle, DriverLaunchError, DriverRef
from app.cluster.processes import (
    DRIVER_ENV_PREFIX,
    LocalDriver,
    is_lock_free,
    is_running,
    start_driver,
    sweep,
)
from app.cluster.runtimes import OWN, Kind, Runtimes
from app.cluster.stepping_back import can_be_undone, step_back, step_forward
from app.model.environment import Runtime

log = structlog.get_logger()

# For so long after its last use a warm driver is kept of a kind that no job runs with.
_KEPT_WARM_S = 600.0

_TRIM_LOGS_EVERY_S = 60.0
_REFILL_BACKOFF_S = (1.0, 5.0, 30.0, 120.0)
# A host is idle if its processors were in use for less than that, for so long.
_IDLE_PERCENT = 50.0
_IDLE_S = 5.0


class EmbeddedHost:
    """Drivers as processes of this host. Implements `app.cluster.ports.DriverHost`."""

    def __init__(
        self,
        run_dir: Path,
        *,
        java: Java,
        slots: int,
        memory_mb: int,
        java_options: str = "",
        archive: ArchiveBuilder | None = None,
        user: DriverUser | None = None,
        runtimes: Runtimes | None = None,
    ) -> None:
        """``runtimes``: finds what jobs want to run in; without it there is the environment of the server only."""
        self._run_dir = run_dir
        self._java = java
        self._slots = slots
        self._warm_wanted = 0
        self._memory_mb = memory_mb
        self._java_options = tuple(shlex.split(java_options))
        self._archive = archive
        self._user = user
        self._runtimes = runtimes
        self._archives: dict[str, ArchiveBuilder] = {}
        self._warm: list[LocalDriver] = []
        self._warming: LocalDriver | None = None
        self._steps_back = can_be_undone()
        self._all: dict[LocalDriver, Kind] = {}
        self._used: dict[Kind, float] = {}
        self._failures = 0
        self._retry: asyncio.TimerHandle | None = None
        self._tidying: set[asyncio.Task[Any]] = set()
        self._closed = False
        sweep(run_dir)
        self._trimming = asyncio.get_running_loop().create_task(self._trim_logs())

    async def acquire(
        self,
        java_options: tuple[str, ...] = (),
        runtime: Runtime | None = None,
        working_dir: Path | None = None,
    ) -> DriverHandle:
        kind = OWN if self._runtimes is None else await self._runtimes.kind(runtime)
        if kind.environment is not None:
            self._want_archive(kind.environment)
        if kind != OWN:
            self._used[kind] = asyncio.get_running_loop().time()
        if not java_options:
            # One that has ended is dealt with by `_on_warm_exit`. One that still warms up is slower than a new one.
            for driver in self._warm:
                if not driver.has_exited and self._all[driver] == kind:
                    self._warm.remove(driver)
                    return driver
        new = self._start(warm=False, java_options=java_options, kind=kind, working_dir=working_dir)
        if self._warming is not None and not self._steps_back:
            # Its own start comes first.
            self._spawn(self._warming.kill())
            self._warming = None
            self.refill()
        return new

    async def build(self, runtime: Runtime) -> None:
        if self._runtimes is not None:
            await self._runtimes.kind(runtime)

    def adopt(self, ref: DriverRef) -> DriverHandle | None:
        if not is_running(ref.pid, ref.pid_started_at) and is_lock_free(ref.lock_file):
            return None
        driver = LocalDriver(ref, None, self._user)
        self._track(driver, OWN)
        return driver

    def keep_warm(self, drivers: int) -> None:
        """Keep so many drivers warm from now on."""
        self._warm_wanted = drivers
        self.refill()

    def refill(self) -> None:
        # One after the other: several that warm up at once slow each other and the jobs down.
        if self._closed or self._retry is not None or self._warming is not None:
            return
        self._let_unused_go()
        if self._lacking() is None:
            return
        if not self._working():
            self._warm_one_up()
        else:
            # A job that has just begun has the host to itself for its first batches. Measured from now on.
            psutil.cpu_percent()
            self._later(_IDLE_S, self._warm_one_up_if_idle)

    def _working(self) -> set[Kind]:
        """The kinds of those that have a job, or are about to get one."""
        return {kind for driver, kind in self._all.items() if driver not in (*self._warm, self._warming)}

    def _warm_one_up_if_idle(self) -> None:
        # One that steps back takes nothing from a job, however busy the host is.
        if psutil.cpu_percent() < _IDLE_PERCENT or self._steps_back or not self._working():
            self._warm_one_up()
        else:
            self._later(_IDLE_S, self._warm_one_up_if_idle)

    def _warm_one_up(self) -> None:
        kind = self._lacking()
        if kind is None:
            return
        try:
            driver = self._start(warm=True, kind=kind)
        except DriverLaunchError as error:
            log.warning("no warm driver", error=str(error))
            self._refill_later()
            return
        step_back(driver.ref.pid, undoable=self._steps_back)
        self._warming = driver
        driver.on_exit(lambda status: self._on_warm_exit(driver, status))
        driver.on_ready(lambda: self._spawn(self._on_warm_ready(driver)))

    def _lacking(self) -> Kind | None:
        """The first kind of which too few are warm."""
        warm = Counter(self._all[driver] for driver in self._warm if driver in self._all)
        return next((kind for kind in (OWN, *self._used) if warm[kind] < self._warm_wanted), None)

    def _let_unused_go(self) -> None:
        now_s = asyncio.get_running_loop().time()
        working = self._working()
        for kind, used_s in list(self._used.items()):
            if kind in working:
                self._used[kind] = now_s
            elif now_s - used_s > _KEPT_WARM_S:
                del self._used[kind]
        for driver in [each for each in self._warm if self._all.get(each, OWN) not in (OWN, *self._used)]:
            self._warm.remove(driver)
            self._spawn(driver.kill())

    def _want_archive(self, environment: Environment) -> None:
        """Make class data for the Spark of an environment, in the background."""
        # Another user's Python is never run with the rights of the server, which has the archives.
        if self._archive is None or self._user is not None or environment.spark_home in self._archives:
            return
        builder = ArchiveBuilder(self._archive.cache_dir, self._archive.java, environment=environment)
        self._archives[environment.spark_home] = builder
        self._spawn(builder.ensure())

    def close(self) -> None:
        """Leave running drivers alone and let the warm ones end (their standard input is closed with this process)."""
        self._closed = True
        self._trimming.cancel()
        if self._retry is not None:
            self._retry.cancel()
        for builder in self._archives.values():
            builder.stop()
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
        return sum(1 for driver in self._warm if not driver.has_exited)

    def _start(
        self, *, warm: bool, kind: Kind, java_options: tuple[str, ...] = (), working_dir: Path | None = None
    ) -> LocalDriver:
        driver_id = f"driver-{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:8]}"
        options = [f"-Xmx{self._memory_mb}m", *self._java_options, *java_options]
        spark_home = None if kind.environment is None else kind.environment.spark_home
        builder = self._archive if spark_home is None else self._archives.get(spark_home)
        archive = builder.path_if_ready() if builder else None
        driver = start_driver(
            driver_id=driver_id,
            run_dir=self._run_dir,
            warm=warm,
            user=self._user,
            python=kind.python,
            working_dir=working_dir,
            environment={
                DRIVER_ENV_PREFIX + "ARCHIVE": str(archive) if archive else "",
                DRIVER_ENV_PREFIX + "WARM_MASTER": f"local[{self._slots}]",
                DRIVER_ENV_PREFIX + "JAVA": self._java.command,
                DRIVER_ENV_PREFIX + "JAVA_OPTIONS": shlex.join(options),
                DRIVER_ENV_PREFIX + "JARS": os.pathsep.join(kind.jars),
            },
        )
        self._track(driver, kind)
        return driver

    def _track(self, driver: LocalDriver, kind: Kind) -> None:
        self._all[driver] = kind

        def forget(_status: int | None) -> None:
            self._all.pop(driver, None)

        driver.on_exit(forget)

    async def _trim_logs(self) -> None:
        while True:
            await asyncio.sleep(_TRIM_LOGS_EVERY_S)
            await asyncio.to_thread(trim_logs, self._run_dir)

    async def _on_warm_ready(self, driver: LocalDriver) -> None:
        await asyncio.to_thread(step_forward, driver.ref.pid)
        if driver is not self._warming:
            return
        log.info("warm driver ready", driver=driver.ref.driver_id, pid=driver.ref.pid)
        self._failures = 0
        self._warming = None
        self._warm.append(driver)
        self.refill()

    def _on_warm_exit(self, driver: LocalDriver, status: int | None) -> None:
        if driver in self._warm:
            self._warm.remove(driver)
        elif driver is self._warming:
            self._warming = None
        else:
            return
        log.warning("a warm driver ended", driver=driver.ref.driver_id, exit_status=status)
        # No job asks after this one, so nobody else waits for the last of it and removes its files.
        self._spawn(driver.gone())
        self._refill_later()

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tidying.add(task)
        task.add_done_callback(self._tidying.discard)

    def _refill_later(self) -> None:
        delay_s = _REFILL_BACKOFF_S[min(self._failures, len(_REFILL_BACKOFF_S) - 1)]
        self._failures += 1
        if not self._closed and self._retry is None:
            self._later(delay_s, self.refill)

    def _later(self, delay_s: float, do: Callable[[], None]) -> None:
        def again() -> None:
            self._retry = None
            do()

        self._retry = asyncio.get_running_loop().call_later(delay_s, again)
