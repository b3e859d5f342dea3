"""Worlds in which several control planes share the jobs: leases that expire, processes that are stopped for a while and
do not know it, clocks that differ, and requests that reach somebody who does not own the job.

A control plane that is stopped is frozen where it is, between two steps of its tasks: it wakes up in the middle of
whatever it was doing, however long ago that was.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from app.store import statements
from app.store.statements import CLOCK_MS
from app.worker.refusals import ControlPlaneError
from tests.simulation.database import LEASE_TTL_MS, database, let_go
from tests.simulation.freezing import FreezingLoop
from tests.simulation.member_planes import (
    CALL_PATIENCE_S,
    MemberPlane,
    MembersNetwork,
    MembersOracles,
    MembersWorld,
)
from tests.simulation.scenario import ANSWER_WITHIN_S, REST_WITHIN_S, Scenario
from tests.simulation.truth import Violation
from tests.simulation.world import Away, World


class MembersScenario(Scenario):
    """Two or three control planes; at rest there are as many again."""

    loop_type = FreezingLoop

    def __init__(self, seed: int, directory: Path, tracing: bool) -> None:
        super().__init__(seed, directory, tracing)
        self._knobs.takeovers = self._knobs.crowd = False
        # Their clocks differ by up to an hour, so a watch period is as long as it likes.
        self._knobs.fragile = False
        rng = random.Random(f"members {seed}")
        self._knobs.slots = rng.choice((1, 2, self._knobs.slots))
        self._seats = rng.choice((2, 3))
        self._pauses_every_s = rng.choice((8.0, 20.0))
        self._disturbed_s = 0.0
        self._has_cluster = rng.random() < 0.4

    @staticmethod
    @contextlib.contextmanager
    def around() -> Iterator[None]:
        """Leases by the time of the world, which is that of its database."""
        clock, insert = CLOCK_MS["sqlite"], statements.INSERT_LEASE["sqlite"]
        loop = asyncio.get_event_loop_policy().get_event_loop()
        database().now_ms = lambda: int(loop.time() * 1000) + LEASE_TTL_MS
        CLOCK_MS["sqlite"] = "sim_now_ms()"
        statements.INSERT_LEASE["sqlite"] = statements.Statement(
            insert.before, "(?, ?, ?, sim_now_ms() + ?)", insert.after
        )
        try:
            yield
        finally:
            CLOCK_MS["sqlite"], statements.INSERT_LEASE["sqlite"] = clock, insert

    def make_world(self) -> World:
        world = MembersWorld(self._seed, self._rng, self._knobs, self._tracing)
        world.oracles = MembersOracles(world)
        world.network = MembersNetwork(world, CALL_PATIENCE_S)
        names = ["host", *(f"host-{seat}" for seat in range(2, self._seats + 1))]
        world.slots = dict.fromkeys(names, self._knobs.slots)
        if self._has_cluster:
            world.workers = world.slots = {"worker-1": self._knobs.slots, "worker-2": self._knobs.slots}
        self._members = world
        return world

    async def _seat(self, seat: int) -> MemberPlane:
        """A control plane at this seat, once one has started."""
        world = self._members
        while True:
            plane = MemberPlane(world, self._directory, seat)
            if await plane.start():
                return plane
            await asyncio.sleep(world.rng.uniform(0, 2))

    async def chaos(self) -> None:
        world, knobs = self._members, self._knobs
        world.oracles.count("several control planes")
        await self._seat(1)
        deeds = [world.spawn(self._seat(seat)) for seat in range(2, self._seats + 1)]
        deeds += [world.spawn(self._client(number)) for number in range(knobs.jobs + 1)]
        deeds += [world.spawn(self._cut_members()), world.spawn(self._stop_members())]
        if knobs.driver_dies_every_s:
            deeds.append(world.spawn(self._kill_drivers()))
        if self._has_cluster:
            deeds.append(world.spawn(self._move_workers()))
        if knobs.store_down:
            deeds.append(world.spawn(self._break_disk()))
        await self._watch(knobs.chaos_s)
        world.quiet = True
        world.tell("quiet")
        for deed in deeds:
            deed.cancel()
        await asyncio.wait(deeds)

    async def _cut_members(self) -> None:
        world, rng = self._members, self._members.rng
        while True:
            await asyncio.sleep(rng.expovariate(self._knobs.crashes / self._knobs.chaos_s + 0.01))
            plane = world.pick_plane()
            if plane is None:
                continue
            self._disturbed_s = world.now_s
            plane.cut_now()
            await asyncio.sleep(rng.uniform(0, 2) if rng.random() < 0.5 else rng.uniform(0, 25))
            await self._seat(plane.seat)

    async def _move_workers(self) -> None:
        """Workers come and go, and the master is away for a while."""
        world, rng = self._members, self._members.rng
        world.oracles.count("a cluster among several")
        while True:
            await asyncio.sleep(rng.expovariate(1 / 5))
            if rng.random() < 0.3:
                world.master_is_away = not world.master_is_away
            else:
                where = rng.choice(("worker-1", "worker-2"))
                world.workers = world.slots = {**world.slots, where: rng.randint(0, self._knobs.slots)}
            world.tell(f"workers: {world.offer()}")
            self._show_workers()

    def _show_workers(self) -> None:
        world = self._members
        for plane in world.living():
            world.later(0 if world.quiet else world.rng.uniform(0, 0.6), world.see_workers, plane)

    async def _stop_members(self) -> None:
        world, rng = self._members, self._members.rng
        while True:
            await asyncio.sleep(rng.expovariate(1 / self._pauses_every_s))
            plane = world.pick_plane()
            if plane is None or plane.frozen is not None:
                continue
            where = rng.random()
            plane.stops_before_effects, plane.stops_before_grants = where < 0.4, where > 0.6
            until_s = world.now_s + 10
            while plane.stops_somewhere and not plane.dead and world.now_s < until_s:
                await asyncio.sleep(0.05)
            plane.stops_before_effects = plane.stops_before_grants = False
            if plane.frozen is None:
                plane.freeze()
            world.oracles.count("stopped")
            pause_s = rng.uniform(0, 5) if rng.random() < 0.3 else rng.uniform(14, 40)
            self._disturbed_s = world.now_s + pause_s
            await asyncio.sleep(pause_s)
            plane.thaw()

    async def ask(self, job_id: str, work: Any) -> Any:
        """One request, answered in time unless somebody was stopped or killed meanwhile."""
        world = self._members
        began_s = world.now_s
        task = world.loop.create_task(world.network.call("client", work, job_id))
        done, _ = await asyncio.wait([task], timeout=ANSWER_WITHIN_S)
        if not done:
            task.cancel()
            if self._disturbed_s < began_s and world.store_down_until_s < began_s:
                raise Violation("an answer", f"a request for {job_id[-2:]} got none")
            return None
        try:
            return task.result()
        except (Away, ControlPlaneError):
            return None

    async def rest(self) -> None:
        """No more faults, every seat taken, and slots for everybody at each: then all is right."""
        world = self._members
        world.store_down_until_s = -1.0
        for plane in world.living():
            plane.stops_before_effects = plane.stops_before_grants = False
            plane.thaw()
        taken = {plane.seat for plane in world.living()}
        for seat in range(1, self._seats + 1):
            if seat not in taken:
                await self._seat(seat)
        # Some are being submitted.
        enough = 16 * (4 + len(world.oracles.jobs))
        for plane in world.living():
            plane.commits_left = plane.effects_left = None
        world.slots = dict.fromkeys(world.slots, enough)
        if self._has_cluster:
            world.workers, world.master_is_away = world.slots, False
            self._show_workers()
        database().change("UPDATE members SET slots = :enough", {"enough": enough})
        until_s = world.now_s + REST_WITHIN_S
        pause_s = 1.0
        while (reason := world.oracles.settled() or self._unevenly_owned()) is not None:
            await self._watch(pause_s)
            pause_s = min(pause_s * 1.5, 20)
            if world.now_s > until_s:
                raise Violation("liveness", f"after {REST_WITHIN_S} s of rest: {reason}")
        world.oracles.check_slots()
        store, writer = database().open("reader")
        await world.oracles.check_database(store)
        let_go(writer)
        if world.oracles.violation is not None:
            raise world.oracles.violation

    def _unevenly_owned(self) -> str | None:
        """Each job that is not over has one owner, and nobody has two more than another."""
        world = self._members
        live = [job_id for job_id in world.oracles.jobs if not world.oracles.is_over(job_id)]
        counts = []
        for plane in world.living():
            counts.append(sum(1 for job_id in live if plane.cluster.serves(job_id)))
        if sum(counts) != len(live):
            return f"{len(live)} jobs are served as {counts}"
        return f"jobs are owned as {counts}" if max(counts) - min(counts) > 1 else None
