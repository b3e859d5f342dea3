"""The world of one seed: its random numbers, its clocks, its faults, and who lives in it.

Nothing here knows what is right; `tests.simulation.oracles` does.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from app.cluster.ports import Offer
from app.worker.clock import SystemClock
from tests.simulation.batch import BatchDisk
from tests.simulation.clusters import Clusters
from tests.simulation.jobs import MOST_SLOTS_NEEDED
from tests.simulation.reachability import Reachability
from tests.simulation.virtual_time import VirtualTimeLoop

if TYPE_CHECKING:
    from tests.simulation.oracles import Oracles
    from tests.simulation.partitions import Checkpoint
    from tests.simulation.plane import Incarnation
    from tests.simulation.process import SimProcess

EPOCH_MS = 1_760_000_000_000

CURRENT: contextvars.ContextVar[Incarnation | None] = contextvars.ContextVar("CURRENT", default=None)
"""The control plane whose code is running, None for the rest of the world."""


class Away(Exception):
    """Nobody answers, or the answer was lost."""


@dataclass(slots=True)
class Knobs:
    """How this seed's world is. Probabilities are per occasion.

    ``fragile``: the streaming jobs fail in their first batch above some parallelism. ``crowd``: all jobs are batch
    jobs, and at rest too they have no more slots than the largest of them needs.
    """

    chaos_s: float
    jobs: int
    crashes: int
    takeovers: bool
    fence: bool
    lose_request: float
    lose_answer: float
    repeat: float
    launch_fails: float
    start_fails: float
    start_hangs: float
    batch_fails: float
    driver_dies_every_s: float
    store_down: bool
    doubts: float
    wall_jumps: bool
    slots: int
    crowd: bool
    result_lost: float
    slot_holding_ms: int
    fragile: bool
    query_fails: float

    @classmethod
    def draw(cls, rng: random.Random) -> Knobs:
        def sometimes(chance: float, value: float) -> float:
            return rng.uniform(0, value) if rng.random() < chance else 0.0

        takeovers = rng.random() < 0.4
        crowd = rng.random() < 0.15
        wall_jumps = rng.random() < 0.4
        return cls(
            chaos_s=rng.choice((20.0, 40.0) if crowd else (20.0, 40.0, 80.0)),
            jobs=rng.choice((3, 3, 4) if crowd else (1, 1, 2, 3)),
            crashes=rng.choice((2, 4, 6) if takeovers else (0, 1, 2, 4, 6)),
            takeovers=takeovers,
            fence=rng.random() < 0.7,
            lose_request=sometimes(0.4, 0.1),
            lose_answer=sometimes(0.4, 0.1),
            repeat=sometimes(0.4, 0.15),
            launch_fails=sometimes(0.2, 0.3),
            start_fails=sometimes(0.3, 0.3),
            start_hangs=sometimes(0.15, 0.3),
            batch_fails=sometimes(0.3, 0.05),
            driver_dies_every_s=rng.choice((0.0, 15.0, 40.0)),
            store_down=rng.random() < 0.25,
            doubts=sometimes(0.3, 0.2),
            wall_jumps=wall_jumps,
            slots=rng.choice((MOST_SLOTS_NEEDED, 4) if crowd else (2, 4, 8)),
            crowd=crowd,
            result_lost=rng.choice((0.0, 0.05, 0.2)),
            slot_holding_ms=rng.choice((0, 5_000, 60_000)),
            # Under a clock that jumps by an hour, a watch period is as long as it likes.
            fragile=not crowd and not wall_jumps and rng.random() < 0.4,
            query_fails=0.0,
        )


class SimClock(SystemClock):
    """The real clock over the world's wall clock, which jumps, and its steady one."""

    def __init__(self, world: World) -> None:
        self._world = world
        super().__init__()

    def wall_ms(self) -> int:
        return self._world.wall_ms

    def _steady_ms(self) -> int:
        return int(self._world.now_s * 1000)


@dataclass(slots=True)
class Network:
    """What is between a caller and a control plane."""

    world: World
    patience_s: float | None = None

    async def target(self, who: str, _about: Any) -> Incarnation | None:
        """Whom a caller reaches. ``_about``: a driver's assignment, or the id of a client's job."""
        return self.world.plane if who == "submit" else self.world.pick_plane()

    async def call(
        self, who: str, work: Callable[[Incarnation], Coroutine[Any, Any, Any]], about: Any = None
    ) -> Any:
        """Let ``work`` run in a control plane, as a request does. Raises Away, or what the control plane raises."""
        world = self.world
        rng, knobs = world.rng, world.knobs
        await asyncio.sleep(rng.uniform(0.0005, 0.02) if rng.random() < 0.95 else rng.uniform(0, 5))
        if not world.quiet:
            if rng.random() < knobs.lose_request:
                await asyncio.sleep(rng.uniform(0, 20))
                raise Away("the request was lost")
            if rng.random() < knobs.repeat and who.startswith("driver"):
                world.later(rng.uniform(0.01, 8), self._repeat, work)
        target = await self.target(who, about)
        if target is None:
            raise Away("refused")
        task = target.spawn(work(target))
        lost = not world.quiet and rng.random() < knobs.lose_answer
        if not (await asyncio.wait([task], timeout=self.patience_s))[0]:
            raise Away("there was no answer in time")
        if lost and not world.quiet:
            await asyncio.sleep(rng.uniform(0, 10))
            raise Away("the answer was lost")
        if task.cancelled() or target.dead:
            raise Away("the connection was reset")
        await asyncio.sleep(rng.uniform(0.0005, 0.01))
        return task.result()

    async def _repeat(self, work: Callable[[Incarnation], Coroutine[Any, Any, Any]]) -> None:
        target = self.world.pick_plane()
        if target is not None:
            task = target.spawn(work(target))
            await asyncio.wait([task])
            if not task.cancelled():
                task.exception()


@dataclass
class World:
    """See the module. ``quiet``: no more faults, and nobody asks for anything any more."""

    seed: int
    rng: random.Random
    knobs: Knobs
    tracing: bool = False
    quiet: bool = False
    wall_offset_s: float = 0.0
    store_down_until_s: float = -1.0
    slots: dict[str, int] = field(default_factory=dict)
    planes: list[Incarnation] = field(default_factory=list)
    zombie: Incarnation | None = None
    processes: list[SimProcess] = field(default_factory=list)
    checkpoints: dict[str, Checkpoint] = field(default_factory=dict)
    disk: BatchDisk = field(default_factory=BatchDisk)
    # The files of versions whose environment was built.
    built: set[str] = field(default_factory=set)
    story: list[str] = field(default_factory=list)
    oracles: Oracles = field(init=False)
    reachability: Reachability = field(init=False)
    network: Network = field(init=False)
    clusters: Clusters = field(init=False)
    tasks: dict[asyncio.Task[Any], None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # A source of its own: worlds without second queries stay as they are.
        side = random.Random(f"second queries/{self.seed}")
        self.knobs.query_fails = side.uniform(0, 0.6) if side.random() < 0.8 else 0.0
        self.network = Network(self)
        self.clusters = Clusters(self.seed)
        self.reachability = Reachability(self, self.seed)
        self.loop = asyncio.get_running_loop()
        assert isinstance(self.loop, VirtualTimeLoop)
        self.loop.blocking_s = lambda: self.rng.uniform(0, 0.01)
        self.loop.set_task_factory(_task_factory)

    @property
    def now_s(self) -> float:
        return self.loop.time()

    @property
    def wall_ms(self) -> int:
        """What the wall clock says."""
        return EPOCH_MS + int((self.now_s + self.wall_offset_s) * 1000)

    @property
    def clocks_differ(self) -> bool:
        """Whether what a control plane calls a time may be another one for the next."""
        return self.knobs.wall_jumps or any(getattr(plane, "_skew_s", 0) for plane in self.planes)

    def offered(self) -> Offer:
        """What a control plane sees of the slots."""
        return Offer(tuple(self.slots.items()), unreachable=self.reachability.is_lost)

    def tell(self, text: str) -> None:
        if self.tracing:
            self.story.append(f"{self.now_s:9.3f}  {text}")

    def batch_takes_s(self) -> float:
        rng = self.rng
        usual_s = rng.uniform(0.2, 2.5) if rng.random() < 0.97 else rng.uniform(3, 40)
        return usual_s * self.reachability.slowness

    def chance(self, probability: float) -> bool:
        return not self.quiet and self.rng.random() < probability

    def later(self, delay_s: float, work: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        """Run ``work`` after a while, outside of any control plane."""

        async def run() -> None:
            await asyncio.sleep(delay_s)
            await work(*args)

        self.spawn(run())

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """A task of the world; one that fails is an error of the simulator or a violation."""
        context = contextvars.copy_context()
        context.run(CURRENT.set, None)
        task = self.loop.create_task(work, context=context)
        self.tasks[task] = None
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self.tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.oracles.broken(error)

    @property
    def plane(self) -> Incarnation | None:
        """The control plane that is in charge, None while there is none."""
        newest = self.planes[-1] if self.planes else None
        return newest if newest is not None and newest.serving else None

    def pick_plane(self) -> Incarnation | None:
        """Whom a caller reaches: the one in charge, or one that was overtaken and does not know it."""
        if self.zombie is not None and not self.zombie.dead and self.rng.random() < 0.3:
            return self.zombie
        return self.plane


async def _nothing() -> None:
    return None


def _task_factory(
    loop: asyncio.AbstractEventLoop,
    work: Coroutine[Any, Any, Any],
    context: contextvars.Context | None = None,
) -> asyncio.Task[Any]:
    """Tasks of a control plane are its own: when it is killed they end, and it can make no more."""
    incarnation = context.get(CURRENT) if context is not None else CURRENT.get()
    if incarnation is None:
        return asyncio.Task(work, loop=loop, context=context)
    if incarnation.dead:
        work.close()
        return asyncio.Task(_nothing(), loop=loop, context=context)
    task = asyncio.Task(work, loop=loop, context=context)
    incarnation.tasks[task] = None
    task.add_done_callback(incarnation.tasks.pop)
    return task
