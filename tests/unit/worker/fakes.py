"""A control plane on a real store, with drivers that exist in memory only and do what a test tells them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import tests.checked_steps  # noqa: F401 - each step is checked
from app.cluster.ports import DriverHandle, DriverLaunchError, DriverRef, Offer
from app.documents.graph import parse_document
from app.model.environment import Runtime
from app.model.jobgraph import JobGraph
from app.model.protocol import Orders, Registration, Report
from app.store.errors import StoreError
from app.store.store import Store
from app.store.writes import UnitOfWork
from app.worker.control_plane import ControlPlane
from app.worker.job.places import JobPlaces
from app.worker.job.silence import Silence
from app.worker.ownership.unreadable import JobUnreadable
from app.worker.refusals import Unavailable
from app.worker.views import JobView

_ids = itertools.count(1)


class FakeDriver:
    """A driver process. `kill` and `die` end it; ``spec`` is what it was assigned."""

    def __init__(self, number: int) -> None:
        self.ref = DriverRef(f"driver-{number}", 1000 + number, 1.0, f"/nowhere/{number}.lock")
        self.spec: dict[str, Any] | None = None
        self.specs: list[dict[str, Any]] = []
        self.kills = 0
        self.dead = asyncio.Event()
        self.hold_kill: asyncio.Event | None = None
        self.hold_assign: asyncio.Event | None = None
        self._callbacks: list[Callable[[int | None], None]] = []
        self._seq = itertools.count(1)

    async def assign(self, spec_file: Path) -> None:
        if self.hold_assign is not None:
            await self.hold_assign.wait()
        if self.dead.is_set():
            raise DriverLaunchError("The driver died before it took the job.")
        self.spec = json.loads(spec_file.read_text())  # noqa: ASYNC240 - a few bytes
        self.specs.append(self.spec)
        self._seq = itertools.count(1)

    async def kill(self) -> None:
        self.kills += 1
        if self.hold_kill is not None:
            await self.hold_kill.wait()
        self.die(-9)

    async def gone(self) -> None:
        await self.dead.wait()

    def on_exit(self, callback: Callable[[int | None], None]) -> None:
        if self.dead.is_set():
            asyncio.get_running_loop().call_soon(callback, 0)
        self._callbacks.append(callback)

    def die(self, status: int | None) -> None:
        if not self.dead.is_set():
            self.dead.set()
            for callback in self._callbacks:
                asyncio.get_running_loop().call_soon(callback, status)

    def report(self, kind: str, **fields: Any) -> Report:
        return Report(next(self._seq), 1, kind, **fields)  # type: ignore[arg-type]


class FakeHost:
    """Implements `app.cluster.ports.DriverHost`. ``refuse`` makes `acquire` fail with that sentence."""

    slow_start = ""
    warm_ready = 0

    def __init__(self) -> None:
        self.drivers: list[FakeDriver] = []
        self.homes: list[Path | None] = []
        self.refuse: str | None = None
        self.fail_acquire: OSError | None = None
        self.failed_acquires = 0
        self.hold_acquire: asyncio.Event | None = None
        self.prepare: Callable[[FakeDriver], None] = lambda driver: None

    async def acquire(
        self, java_options: tuple[str, ...] = (), runtime: object = None, home: Path | None = None
    ) -> DriverHandle:
        if self.hold_acquire is not None:
            await self.hold_acquire.wait()
        if self.fail_acquire is not None:
            self.failed_acquires += 1
            raise DriverLaunchError("A driver process could not be started.") from self.fail_acquire
        if self.refuse is not None:
            raise DriverLaunchError(self.refuse)
        driver = FakeDriver(len(self.drivers) + 1)
        self.prepare(driver)
        self.drivers.append(driver)
        self.homes.append(home)
        return driver

    async def build(self, runtime: Runtime) -> None:
        if self.refuse is not None:
            raise DriverLaunchError(self.refuse, recoverable=False)

    def adopt(self, ref: DriverRef) -> DriverHandle | None:
        for driver in self.drivers:
            if driver.ref == ref and not driver.dead.is_set():
                return driver
        return None

    def refill(self) -> None:
        pass


class FakeClock:
    """Real time, moved by tests."""

    def __init__(self) -> None:
        self.ahead_ms = 0
        self.stopped_ms = 0

    def now_ms(self) -> int:
        return 1_760_000_000_000 + int(asyncio.get_running_loop().time() * 1000) + self.ahead_ms

    wall_ms = now_ms

    def steady_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000) + self.stopped_ms


CONFIG = {
    "jobmanager.adaptive-scheduler.submission.resource-stabilization-timeout": "0 ms",
    "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling": "0 ms",
    "jobmanager.adaptive-scheduler.executing.resource-stabilization-timeout": "0 ms",
    "restart-strategy.exponential-delay.initial-backoff": "1 ms",
    "jobmanager.adaptive-scheduler.retry-execution-graph-creation.restart-strategy"
    ".exponential-delay.initial-backoff": "1 ms",
}


def graph(parallelism: int = 2, *, name: str = "counts", **config: str) -> JobGraph:
    """source -> aggregate -> sink, every vertex at 1..parallelism."""
    return parse_document(
        {
            "name": name,
            "type": "STREAMING",
            "config": {**CONFIG, **config},
            "vertices": [
                {"name": "events", "source": {"format": "rate"}, "parallelism": parallelism},
                {
                    "name": "counts",
                    "inputs": ["events"],
                    "sql": "SELECT value % 10 AS k, count(*) AS n FROM events GROUP BY value % 10",
                    "parallelism": parallelism,
                    "maxParallelism": 8,
                },
                {
                    "name": "store",
                    "inputs": ["counts"],
                    "sink": {"format": "noop", "outputMode": "update"},
                    "parallelism": parallelism,
                },
            ],
        }
    )


class Rig:
    """A control plane under test, and a client's and a driver's view of it."""

    def __init__(
        self,
        store: Store,
        tmp_path: Path,
        slots: int = 8,
        host: FakeHost | None = None,
        results_root: str | None = None,
        ahead_ms: int = 0,
        runs_on: str = "",
        offer: Offer | None = None,
        shared_working_dir: Path | None = None,
        limit_s: float | None = None,
    ) -> None:
        self.store = store
        self.host = host or FakeHost()
        self.clock = FakeClock()
        self.clock.ahead_ms = ahead_ms
        (tmp_path / "address").write_text("http://127.0.0.1:1\n")
        places = JobPlaces(
            tmp_path / "jobs",
            tmp_path / "address",
            slots,
            results_root,
            runs_on=runs_on,
            shared_working_dir=shared_working_dir,
            silence=None if limit_s is None else Silence(limit_s),
        )
        self.use(places, offer)
        self._commit = store.commit

    def use(self, places: JobPlaces, offer: Offer | None = None) -> None:
        """Make the control plane, which has not been started yet, with these places."""
        self.places = places
        self.plane = ControlPlane(
            self.store,
            host=self.host,
            places=places,
            clock=self.clock,
            new_id=lambda: f"{next(_ids):032x}",
            offer=offer,
        )

    @property
    def driver(self) -> FakeDriver:
        return self.host.drivers[-1]

    def fail_commits(self, error: StoreError | None) -> None:
        """From now on nothing can be written; None: it can again."""

        async def commit(unit: UnitOfWork) -> None:
            if error is not None:
                # No real store answers at once: others have their turn meanwhile.
                await asyncio.sleep(0)
                raise error
            await self._commit(unit)

        self.store.commit = commit  # type: ignore[method-assign]

    def is_served(self, job_id: str) -> bool:
        try:
            self.plane.job(job_id)
        except (Unavailable, JobUnreadable):
            return False
        return True

    def kind(self, job_id: str) -> str:
        return self.plane.job(job_id).state.phase.kind

    async def until(self, condition: Callable[[], Any], what: str = "it") -> None:
        """Poll with a deadline."""
        deadline = asyncio.get_running_loop().time() + 60
        while not condition():
            assert asyncio.get_running_loop().time() < deadline, f"{what} did not come true in 60 s"
            await asyncio.sleep(0.002)

    async def until_kind(self, job_id: str, kind: str) -> JobView:
        await self.until(lambda: self.kind(job_id) == kind, f"{kind} (now {self.kind(job_id)})")
        return self.plane.job(job_id)

    async def register(self, job_id: str) -> Orders:
        spec = self._spec()
        registration = Registration(self.driver.ref.pid, 1.0, "localhost", "4.0", "app-1")
        return await self.plane.driver_register(
            job_id, spec["attempt"], spec["secret"], spec["epoch"], registration
        )

    async def orders(self, job_id: str, *, plan: int = 0, stop: str = "none", wait_ms: int = 0) -> Orders:
        spec = self._spec()
        return await self.plane.driver_orders(
            job_id, spec["attempt"], spec["secret"], spec["epoch"], plan=plan, stop=stop, wait_ms=wait_ms
        )

    async def send(
        self, job_id: str, *reports: Report, epoch: int | None = None, secret: str | None = None
    ) -> int:
        """As the driver, unless another ``epoch`` or ``secret`` is given."""
        spec = self._spec()
        own = (secret or spec["secret"], epoch or spec["epoch"])
        return (await self.plane.driver_reports(job_id, spec["attempt"], *own, reports)).acknowledged

    async def report(self, job_id: str, kind: str, **fields: Any) -> int:
        return await self.send(job_id, self.driver.report(kind, **fields))

    async def assigned(self, attempt: int) -> FakeDriver:
        """The driver that has ``attempt``."""

        def there() -> bool:
            return any(spec["attempt"] == attempt for d in self.host.drivers for spec in d.specs)

        await self.until(there, f"the assignment of attempt {attempt}")
        return self.driver

    async def run(self, parallelism: int = 2, **config: str) -> str:
        """Submit a job and bring it to Executing with its first batch committed."""
        job_id = await self.plane.submit(graph(parallelism, **config), {})
        await self.bring_up(job_id, 1)
        return job_id

    async def bring_up(self, job_id: str, attempt: int) -> None:
        await self.assigned(attempt)
        await self.register(job_id)
        version = self._spec()["plan_version"]
        await self.report(job_id, "running", plan_version=version)
        await self.report(job_id, "batch", query_id="q", batch_id=0, plan_version=version)
        await self.report(job_id, "plan-applied", plan_version=version)
        await self.until_kind(job_id, "Executing")

    def _spec(self) -> dict[str, Any]:
        assert self.driver.spec is not None, "the driver has no assignment"
        return self.driver.spec


@asynccontextmanager
async def rig_on(url: str, tmp_path: Path, **options: Any) -> AsyncIterator[Rig]:
    """A started control plane with its own store; closed in the end, drivers left alone."""
    store = await Store.open(url, f"owner-{next(_ids)}", durable=False)
    rig = Rig(store, tmp_path, **options)
    try:
        await rig.plane.start()
        yield rig
    finally:
        await rig.plane.close()
        with contextlib.suppress(StoreError):
            await store.expire_leases()
        await store.close()
