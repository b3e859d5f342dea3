"""One seed: jobs and clients in a faulty world for a while, then quiet, then the question whether all is well."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.model.jobgraph import JobGraph
from app.model.requirements import Bounds
from app.worker.refusals import ControlPlaneError
from app.worker.views import RequirementsUpdate
from tests.simulation.database import database, let_go
from tests.simulation.deadlines import Wishes
from tests.simulation.fragile import may_put, overreach
from tests.simulation.jobs import random_bounds, random_graph
from tests.simulation.logs import listen
from tests.simulation.oracles import Oracles
from tests.simulation.plane import Incarnation
from tests.simulation.policies import Operator
from tests.simulation.shares import put_share
from tests.simulation.truth import Violation, described
from tests.simulation.versions import Replacements
from tests.simulation.virtual_time import VirtualTimeLoop
from tests.simulation.world import Away, Knobs, World

REST_WITHIN_S = 1800.0
"""Virtual time that a quiet world with enough slots may take to come to rest: every timeout of a job fits in."""

ANSWER_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a seed. ``violation`` None: all is well."""

    seed: int
    violation: str | None
    story: tuple[str, ...]
    counts: dict[str, int]
    virtual_s: float


class Scenario:
    loop_type: type[VirtualTimeLoop] = VirtualTimeLoop

    @staticmethod
    def around() -> contextlib.AbstractContextManager[None]:
        """What has to be in force while the world runs."""
        return contextlib.nullcontext()

    def __init__(self, seed: int, directory: Path, tracing: bool) -> None:
        self._rng = random.Random(seed)
        self._knobs = Knobs.draw(self._rng)
        self._directory = directory
        self._world: World
        self._seed = seed
        self._tracing = tracing
        self._keys = self._marks = 0

    async def run(self) -> Outcome:
        world = self._world = self.make_world()
        listen(world)
        world.loop.set_exception_handler(lambda _loop, _context: None)
        world.tell(str(self._knobs))
        try:
            await self.chaos()
            await self.rest()
        except Violation as violation:
            world.oracles.broken(violation)
        except Exception as error:
            world.oracles.broken(error)
        for plane in world.planes:
            if not plane.dead:
                plane.cut_now()
        await asyncio.sleep(0.001)
        error = world.oracles.violation
        text = None if error is None else str(error) if isinstance(error, Violation) else described(error)
        return Outcome(self._seed, text, tuple(world.story), world.oracles.counts, world.now_s)

    def make_world(self) -> World:
        world = World(self._seed, self._rng, self._knobs, self._tracing)
        world.oracles = Oracles(world)
        world.slots = {"host": self._knobs.slots}
        return world

    # -- the time of faults

    async def chaos(self) -> None:
        world, knobs = self._world, self._knobs
        await self._revive()
        deeds = [world.spawn(self._client(number)) for number in range(knobs.jobs)]
        deeds += [world.spawn(self._cut_planes()), world.spawn(self._move_slots())]
        if knobs.driver_dies_every_s:
            deeds.append(world.spawn(self._kill_drivers()))
        if knobs.store_down:
            deeds.append(world.spawn(self._break_disk()))
        if knobs.wall_jumps:
            deeds.append(world.spawn(self._set_clocks()))
        if world.reachability.goes_after_s is not None:
            deeds.append(world.spawn(world.reachability.go(world.reachability.goes_after_s)))
        await self._watch(knobs.chaos_s)
        world.quiet = True
        world.tell("quiet")
        for deed in deeds:
            deed.cancel()
        if deeds:
            await asyncio.wait(deeds)
        if world.reachability.is_lost:
            await world.reachability.last(self._watch, self._revive)

    async def _watch(self, seconds: float) -> None:
        world = self._world
        until_s = world.now_s + seconds
        while world.now_s < until_s:
            if world.oracles.violation is not None:
                raise world.oracles.violation
            await asyncio.sleep(min(until_s - world.now_s, 5.0) if world.quiet else 0.5)

    async def _revive(self) -> None:
        """Start control planes until one serves."""
        world = self._world
        while True:
            plane = Incarnation(world, self._directory)
            if not world.quiet and world.chance(0.2):
                # It is killed while it starts.
                self._arm(plane, small=True)
            if await plane.start():
                plane.look()
                if world.quiet:
                    plane.commits_left = plane.effects_left = None
                return
            await asyncio.sleep(world.rng.uniform(0, 2))

    def _arm(self, plane: Incarnation, *, small: bool = False) -> None:
        """Choose the write or the effect at which it is killed."""
        rng = self._world.rng
        if rng.random() < 0.6:
            plane.cut_after_commit = rng.random() < 0.6
            plane.commits_left = rng.randint(0, 3 if small else 12)
        else:
            plane.effects_left = rng.randint(0, 2 if small else 6)

    async def _cut_planes(self) -> None:
        world, rng = self._world, self._world.rng
        for _ in range(self._knobs.crashes):
            await asyncio.sleep(rng.uniform(0, 2 * self._knobs.chaos_s / (self._knobs.crashes + 1)))
            plane = world.plane
            if plane is None:
                await self._revive()
                continue
            if self._knobs.takeovers and rng.random() < 0.5:
                await self._take_over(plane)
                continue
            if rng.random() < 0.3:
                plane.cut_now()
            else:
                self._arm(plane)
                patience_s = world.now_s + 20
                while not plane.dead and world.now_s < patience_s:
                    await asyncio.sleep(0.05)
                plane.cut_now()
            await asyncio.sleep(rng.uniform(0, 1) if rng.random() < 0.6 else rng.uniform(0, 25))
            await self._revive()
        while True:
            await asyncio.sleep(1)
            if world.plane is None:
                await self._revive()

    async def _take_over(self, old: Incarnation) -> None:
        """Another control plane takes the jobs while the old one goes on, not knowing it."""
        world = self._world
        world.tell(f"{old} is overtaken")
        world.zombie = old
        await self._revive()
        if world.rng.random() < 0.5:
            # What made the old one slow may well kill drivers: their next attempts are unknown to it.
            self._kill_a_driver()
        await asyncio.sleep(world.rng.uniform(0, 20))
        old.cut_now()
        world.zombie = None

    async def _move_slots(self) -> None:
        world, rng = self._world, self._world.rng
        while True:
            await asyncio.sleep(rng.expovariate(1 / 12))
            if rng.random() < 0.5:
                where, count = rng.choice(("host", "other")), rng.randint(0, self._knobs.slots)
                world.slots = {**world.slots, where: count}
                world.tell(f"slots: {world.slots}")
                if world.plane is not None:
                    self._in(world.plane, lambda plane: plane.look())

    def _in(self, plane: Incarnation, work: Any) -> None:
        async def run() -> None:
            work(plane)

        plane.spawn(run())

    async def _kill_drivers(self) -> None:
        rng = self._rng
        while True:
            await asyncio.sleep(rng.expovariate(1 / self._knobs.driver_dies_every_s))
            self._kill_a_driver()

    def _kill_a_driver(self) -> None:
        alive = [process for process in self._world.processes if process.python]
        if alive:
            self._rng.choice(alive).kill_python()

    async def _break_disk(self) -> None:
        world, rng = self._world, self._world.rng
        while True:
            await asyncio.sleep(rng.expovariate(1 / 20))
            world.store_down_until_s = world.now_s + rng.uniform(0.1, 12)
            world.tell(f"the disk fails until {world.store_down_until_s:.1f}")

    async def _set_clocks(self) -> None:
        world, rng = self._world, self._world.rng
        while True:
            await asyncio.sleep(rng.expovariate(1 / 15))
            world.wall_offset_s += rng.choice((-1, 1)) * rng.choice((0.5, 60, 3600))
            world.tell(f"the wall clock is set to {world.wall_offset_s:+.1f} s")

    # -- clients
    async def _client(self, number: int) -> None:
        world, rng, knobs = self._world, self._world.rng, self._knobs
        await asyncio.sleep(rng.uniform(0, 10) if number else 0)
        batch = rng.random() < 0.3 or knobs.crowd
        graph = random_graph(rng, number, batch=batch, fragile=knobs.fragile, seed=self._seed)
        replacements = Replacements(self._seed, number, graph, fragile=knobs.fragile)
        operator = Operator(self._seed, number, graph, fragile=knobs.fragile)
        wishes = Wishes(self._seed, number, graph)
        while True:
            try:
                submit = world.oracles.told.heard(graph.name, lambda plane: plane.submit(graph))
                job_id = await world.network.call("submit", submit)
                break
            except (Away, ControlPlaneError):
                await asyncio.sleep(1)
        while not (knobs.crowd and world.oracles.is_over(job_id)):
            await asyncio.sleep(rng.expovariate(1 / 4))
            if replacements.is_time():
                await self.ask(job_id, replacements.make(job_id))
                continue
            if operator.is_time():
                await self.ask(job_id, operator.make(world, job_id, self._mark("policy")))
                continue
            dice = rng.random()
            if dice < 0.03:
                world.oracles.truth(job_id).may_end_otherwise = True
                await self.ask(job_id, lambda plane: plane.plane.cancel(job_id))
            elif dice < 0.07:
                await self.ask(job_id, self._stop(job_id))
            elif dice < 0.15:
                await self.ask(job_id, lambda plane: plane.explained(job_id))
            elif dice < 0.25:
                await self.ask(job_id, put_share(world, job_id, self._mark("share")))
            elif may_put(graph, world.oracles.truth(job_id).state):
                await self._put(job_id, graph, wishes)

    async def ask(self, job_id: str, work: Any) -> Any:
        """One request. It is answered in time, unless the control plane or the disk is away meanwhile."""
        world = self._world
        began_s, plane = world.now_s, world.plane
        task = world.loop.create_task(world.network.call("client", work))
        done, _ = await asyncio.wait([task], timeout=ANSWER_WITHIN_S)
        if not done:
            task.cancel()
            away = plane is None or plane.dead or world.store_down_until_s > began_s
            if not away:
                raise Violation(
                    "an answer", f"a request for {job_id[-2:]} got none within {ANSWER_WITHIN_S} s"
                )
            return None
        try:
            return task.result()
        except (Away, ControlPlaneError):
            return None

    async def _put(self, job_id: str, graph: JobGraph, wishes: Wishes) -> None:
        world, rng = self._world, self._world.rng
        known = world.oracles.truth(job_id).state
        graph = known.graph if known is not None else graph
        wanted, partitions = random_bounds(rng, graph)
        if_match = known.requirements.version if known is not None and rng.random() < 0.3 else None
        key = None
        if rng.random() < 0.4:
            self._keys += 1
            key = f"key-{self._keys}"
        mark = self._mark("put")
        update = RequirementsUpdate(
            wanted,
            if_match=if_match,
            idempotency_key=key,
            requested_by="ann",
            reason=mark,
            state_partitions=partitions,
            deadline=wishes.deadline(world.oracles.deadlines.ledger(job_id), mark),
        )
        truth = world.oracles.truth(job_id)
        truth.numbered[mark] = {graph.by_name[name].id for name in partitions}
        truth.attempted[mark] = {graph.by_name[name].id: Bounds(*bounds) for name, bounds in wanted.items()}

        async def put(plane: Incarnation) -> None:
            worker = plane.decides_for(job_id)
            remembered = world.oracles.remembers(job_id, key, worker)
            result = await plane.plane.update_requirements(job_id, update)
            world.tell(f"PUT of {sorted(wanted.items())} key {key} answered {result}")
            # The answer leaves here, whether it arrives or not.
            if not plane.dead:
                same = None if key is None else (key, (*wanted.items(), *partitions.items()))
                world.oracles.put_answered(
                    job_id, mark, result, if_match=if_match, key=same, worker=worker, remembered=remembered
                )

        times = 1 if key is None else rng.choice((1, 2, 3))
        request = world.oracles.told.heard(mark, put)
        await asyncio.gather(*(self.ask(job_id, request) for _ in range(times)))
        if key is not None and rng.random() < 0.3:
            await asyncio.sleep(rng.uniform(0, 20))
            await self.ask(job_id, request)
        if (cancel := wishes.cancel(world.oracles, job_id, self._mark)) is not None:
            await self.ask(job_id, cancel)

    def _stop(self, job_id: str) -> Any:
        mark = self._mark("stop")
        return self._world.oracles.told.heard(mark, lambda plane: plane.plane.stop(job_id, trigger_id=mark))

    def _mark(self, what: str) -> str:
        self._marks += 1
        return f"{what}-{self._marks}"

    # -- the time of rest

    async def rest(self) -> None:
        """No more faults, and slots for everybody or, in a crowd, for one after another: then all is right."""
        world = self._world
        if world.zombie is not None:
            world.zombie.cut_now()
            world.zombie = None
        world.store_down_until_s = -1.0
        plane = world.plane
        if plane is None or self._knobs.takeovers or world.rng.random() < 0.3:
            for one in world.planes:
                one.cut_now()
            await self._revive()
            plane = world.plane
        assert plane is not None
        plane.commits_left = plane.effects_left = None
        if self._knobs.crowd:
            world.oracles.count("crowd")
            await self._until(world.oracles.settled, {"host": self._knobs.slots})
        else:
            if world.rng.random() < 0.5:
                world.oracles.count("scarce")
                await self._until_all_run()
            enough = dict.fromkeys(("host", "other"), world.oracles.enough_slots())
            await self._until(world.oracles.settled, enough)
            if await plane.spawn(overreach(plane, world.oracles, world.rng)):
                await self._until(world.oracles.settled, enough)
        world.oracles.check_slots()
        world.clusters.check(world, plane)
        world.oracles.shares.check_end(plane)
        store, writer = database().open("reader")
        await world.oracles.check_database(store)
        let_go(writer)
        if world.oracles.violation is not None:
            raise world.oracles.violation

    async def _until_all_run(self) -> None:
        oracles = self._world.oracles
        least = oracles.least_slots()

        def complaint() -> str | None:
            """A request that is late may declare bounds that need more slots than there are: then anything goes."""
            return oracles.all_run() if oracles.least_slots() <= least else None

        await self._until(complaint, {"host": least + self._world.rng.randint(0, 3)})

    async def _until(self, what: Callable[[], str | None], slots: dict[str, int]) -> None:
        """With ``slots``, until ``what`` has no complaint left."""
        world, plane = self._world, self._world.plane
        assert plane is not None
        world.slots = slots
        world.tell(f"slots: {slots}")
        self._in(plane, lambda one: one.look())
        until_s = world.now_s + REST_WITHIN_S
        reason: str | None = "it has just begun"
        pause_s = 1.0
        while reason is not None:
            await self._watch(pause_s)
            pause_s = min(pause_s * 1.5, 20)
            reason = what()
            if reason is not None and world.now_s > until_s:
                raise Violation("liveness", f"after {REST_WITHIN_S} s of rest: {reason}")
