"""A control plane of the simulated world: the real one, on a store and a cluster that it can be cut off from.

An `Incarnation` is one life of a control plane. When it is killed its tasks end where they are, and nothing that they
still try has any effect, as after kill -9.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
from collections import deque
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import tests.checked_steps  # noqa: F401 - each step is checked
from app.cluster.ports import DriverHandle, DriverLaunchError, DriverRef, Offer
from app.model.environment import Runtime
from app.model.ids import derive_id
from app.model.jobgraph import JobGraph
from app.scheduler.adaptive.effects import Effect
from app.store.errors import OutcomeUnknown, StoreError, StoreUnavailable
from app.store.store import Store
from app.store.writer import Writer
from app.store.writes import UnitOfWork
from app.worker.control_plane import ControlPlane
from app.worker.job.job import Job
from app.worker.job.places import JobPlaces
from tests.simulation.database import database, let_go
from tests.simulation.process import SimProcess
from tests.simulation.versions import build_environment
from tests.simulation.world import CURRENT, SimClock, World

RENEW_EVERY_S = 5.0
QUIET_RENEW_EVERY_S = 13.0
"""In a quiet world of one control plane, which may be an hour long. Leases live longer than that."""


class RenewalPause(float):
    """The time between two renewals of leases, from now on."""

    def __new__(cls, _world: World) -> RenewalPause:
        return super().__new__(cls, RENEW_EVERY_S)

    def __init__(self, world: World) -> None:
        self._world = world

    def __radd__(self, now_s: float) -> float:
        return now_s + (QUIET_RENEW_EVERY_S if self._world.quiet else RENEW_EVERY_S)


class Killed(BaseException):
    """Unwinds the code that was running when its control plane was killed."""


class Incarnation:
    """One life of a control plane. ``serving``: it has started and can be reached."""

    def __init__(self, world: World, directory: Path) -> None:
        self.world = world
        self.number = len(world.planes) + 1
        self.dead = False
        self.serving = False
        # What it would do if it were not stopped (`tests.simulation.freezing`).
        self.frozen: list[asyncio.Handle] | None = None
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self.context = contextvars.copy_context()
        self.context.run(CURRENT.set, self)
        self.commits_left: int | None = None
        self.cut_after_commit = False
        self.effects_left: int | None = None
        self._directory = directory
        self.runs_on = ""
        self.processes: list[SimProcess] = []
        self._writer: Writer | None = None
        world.planes.append(self)

    def __repr__(self) -> str:
        return f"plane {self.number}"

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return self.world.loop.create_task(work, context=self.context)

    def notices_after_s(self) -> float:
        """How long it takes until it sees that a process is gone: processes are polled, each at its own moments.

        One that was overtaken was overtaken because it is slow, so it is late with this too, and its writes are.
        """
        rng = self.world.rng
        if self.overtaken:
            return rng.uniform(0, 10)
        return rng.uniform(0, 0.04) if self.world.quiet or rng.random() < 0.9 else rng.uniform(0, 3)

    @property
    def overtaken(self) -> bool:
        return self is self.world.zombie

    def decides_for(self, job_id: str) -> object:
        """What decides for a job in this process; None if that is done elsewhere."""
        job = self.plane._keeper.jobs.get(job_id)
        return None if job is None else job.worker

    async def start(self) -> bool:
        """Whether it serves."""
        real, self._writer = self.open_store()
        self.store = FaultyStore(self, real)
        world = self.world
        ids = itertools.count(1)
        self.plane = ControlPlane(
            self.store,  # type: ignore[arg-type]
            host=SimHost(self),
            places=self.places(),
            clock=self.clock(),
            new_id=lambda: derive_id("sim", world.seed, self.number, next(ids)),
            offer=self.offer(),
            slot_holding_ms=world.knobs.slot_holding_ms,
        )
        world.tell(f"{self}: starts")
        task = self.spawn(self.begin())
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            # Nobody waits for it any more, and the next one must not begin while it lives.
            self.cut_now()
            raise
        if task.cancelled() or self.dead:
            return False
        if (error := task.exception()) is not None:
            if isinstance(error, StoreError):
                world.tell(f"{self}: cannot start: {error}")
                await self.kill()
                return False
            raise error
        self.serving = True
        world.tell(f"{self}: serves")
        return True

    def open_store(self) -> tuple[Store, Writer]:
        return database().open(f"plane-{self.number}")

    def places(self) -> JobPlaces:
        slots = sum(self.world.slots.values())
        self.runs_on = self.world.clusters.draw()
        return JobPlaces(self._directory / "jobs", self._directory / "address", slots, runs_on=self.runs_on)

    def offer(self) -> Offer | None:
        """What a cluster offers; None: this host has all slots."""
        return None

    def clock(self) -> SimClock:
        return SimClock(self.world)

    async def begin(self) -> None:
        self.look()
        await self.plane.start(renew_every_s=RenewalPause(self.world))

    def look(self) -> None:
        """It sees what slots there are."""
        self.plane.take_offer(self.world.offered())

    async def submit(self, graph: JobGraph) -> str:
        """What is submitted has the files that it lists."""
        return await self.plane.submit(graph, dict.fromkeys(graph.artifacts, b""))

    async def explained(self, job_id: str) -> None:
        """There are words for whatever a job is about."""
        self.world.oracles.words.judge(self.plane.explanation(job_id))

    def cut_now(self) -> None:
        """kill -9: whatever it was doing stays undone."""
        if self.dead:
            return
        self.world.tell(f"{self}: killed")
        self.dead = True
        self.serving = False
        for task in list(self.tasks):
            task.cancel()
        for process in self.processes:
            if process.rope is self:
                self.world.loop.call_soon(process.end_of_input)
        self.world.later(0, self._let_go)

    async def kill(self) -> None:
        self.cut_now()

    async def _let_go(self) -> None:
        if self._writer is not None:
            let_go(self._writer)

    def before_effect(self, effect: Effect, _job: Job) -> None:
        """Called before an effect is performed."""
        if self.effects_left is not None:
            if self.effects_left == 0:
                self.world.tell(f"{self}: killed before {type(effect).__name__}")
                self.cut_now()
                raise Killed
            self.effects_left -= 1


def hook_effects() -> Callable[[], None]:
    """Let control planes be killed between two effects; returns what takes the hook away."""
    original = Job.perform

    def perform(self: Job, effect: Effect) -> None:
        # Its own store says whose job it is: the call may come from a client's task.
        incarnation: Incarnation = self.writer._store._incarnation  # type: ignore[attr-defined]
        incarnation.before_effect(effect, self)
        incarnation.world.tell(f"{incarnation}: job {self.job_id[-2:]} {effect}")
        original(self, effect)
        incarnation.world.oracles.taking_up.performed(incarnation, self.job_id, effect)
        incarnation.world.reachability.performed(incarnation, self.job_id, effect)

    Job.perform = perform  # type: ignore[method-assign]

    def take_away() -> None:
        Job.perform = original  # type: ignore[method-assign]

    return take_away


class FaultyStore:
    """The real store behind a disk that takes time, fails for a while, and is cut off with its control plane."""

    def __init__(self, incarnation: Incarnation, real: Store) -> None:
        self.owner = real.owner
        self.lease_ttl_ms = real.lease_ttl_ms
        self._incarnation = incarnation
        self._world = incarnation.world
        self._real = real
        self._queue: deque[tuple[UnitOfWork, asyncio.Future[None]]] = deque()
        self._writing = False

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._real, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            await asyncio.sleep(self._world.rng.uniform(0, 0.004))
            self._refuse_when_down()
            return await method(*args, **kwargs)

        return call

    def _refuse_when_down(self) -> None:
        if self._world.now_s < self._world.store_down_until_s:
            raise StoreUnavailable("The disk that holds the database is full.")

    async def commit(self, unit: UnitOfWork) -> None:
        """Units are written one after the other, also when nobody waits for them any more."""
        future: asyncio.Future[None] = self._world.loop.create_future()
        self._queue.append((unit, future))
        if not self._writing:
            self._writing = True
            asyncio.get_running_loop().create_task(self._write_all())
        await future

    async def _write_all(self) -> None:
        while self._queue:
            unit, future = self._queue.popleft()
            error = await self._write(unit)
            if not future.done():
                if error is None:
                    future.set_result(None)
                else:
                    future.set_exception(error)
        self._writing = False

    async def _write(self, unit: UnitOfWork) -> Exception | None:
        world, me = self._world, self._incarnation
        usual_s = 10 if me.overtaken else 0.01
        await asyncio.sleep(
            world.rng.uniform(0, usual_s) if world.rng.random() < 0.95 else world.rng.uniform(0, 0.5)
        )
        cut = False
        if me.commits_left is not None:
            me.commits_left -= 1
            cut = me.commits_left < 0
        if cut and not me.cut_after_commit:
            world.tell(f"{me}: killed before a commit")
            me.cut_now()
            raise Killed
        try:
            self._refuse_when_down()
            doubtful = world.chance(world.knobs.doubts) and world.rng.random() < 0.5
            if doubtful and world.rng.random() < 0.5:
                return OutcomeUnknown("The connection was lost.")
            await self._real.commit(unit)
        except StoreError as error:
            world.tell(f"{me}: commit refused: {error}")
            return error
        try:
            world.oracles.committed(unit)
        except Exception as error:
            # Nobody waits for this task: an error of the oracles would be lost with it.
            world.oracles.broken(error)
        if cut:
            world.tell(f"{me}: killed after a commit")
            me.cut_now()
            raise Killed
        if not doubtful:
            return None
        world.reachability.outcome_unknown(unit.job_id)
        return OutcomeUnknown("The connection was lost.")


class SimHost:
    """Drivers as processes of the simulated world. Implements `app.cluster.ports.DriverHost`."""

    slow_start = ""

    def __init__(self, incarnation: Incarnation) -> None:
        self._incarnation = incarnation
        self._world = incarnation.world
        self._warm: list[SimProcess] = []

    async def acquire(
        self, java_options: tuple[str, ...] = (), runtime: object = None, home: Path | None = None
    ) -> DriverHandle:
        world = self._world
        await asyncio.sleep(world.rng.uniform(0.001, 0.05))
        if world.chance(world.knobs.launch_fails):
            raise DriverLaunchError("A driver process could not be started: no memory.")
        self._warm = [process for process in self._warm if process.python]
        process = self._warm.pop() if self._warm else self._start()
        return SimHandle(self._incarnation, process, adopted=False)

    async def build(self, runtime: Runtime) -> None:
        await build_environment(self._world, runtime)

    def adopt(self, ref: DriverRef) -> DriverHandle | None:
        for process in self._world.processes:
            if process.ref == ref and process.lock_held:
                return SimHandle(self._incarnation, process, adopted=True)
        return None

    def refill(self) -> None:
        if not self._warm:
            self._warm.append(self._start())

    def _start(self) -> SimProcess:
        process = SimProcess(self._world, self._incarnation)
        self._incarnation.processes.append(process)
        return process


class SimHandle:
    """A control plane's hold on a process. Implements `app.cluster.ports.DriverHandle`."""

    def __init__(self, incarnation: Incarnation, process: SimProcess, *, adopted: bool) -> None:
        self.ref = process.ref
        self._incarnation = incarnation
        self.process = process
        self._adopted = adopted

    async def assign(self, spec_file: Path) -> None:
        if self._adopted:
            raise DriverLaunchError(f"{self.process} was adopted and takes no further assignment.")
        await _either(self.process.ready, self.process.exited)
        if self.process.exited.is_set():
            raise DriverLaunchError(f"{self.process} ended before it could take the job.")
        self.process.assign(spec_file)

    async def kill(self) -> None:
        self.process.kill_group()
        await self.gone()

    async def gone(self) -> None:
        await self.process.exited.wait()
        await self.process.free.wait()
        await asyncio.sleep(self._incarnation.notices_after_s())

    def on_exit(self, callback: Callable[[int | None], None]) -> None:
        incarnation = self._incarnation

        def notice(status: int | None) -> None:
            if not incarnation.dead:
                callback(status)

        def tell(status: int | None) -> None:
            known = None if self._adopted else status
            incarnation.world.loop.call_later(
                incarnation.notices_after_s(), notice, known, context=incarnation.context
            )

        self.process.on_exit(tell)


async def _either(*events: asyncio.Event) -> None:
    if any(event.is_set() for event in events):
        return
    tasks = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
