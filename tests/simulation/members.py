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

from app.scheduler.adaptive.effects import Effect
from app.store import AddEffect, Store, UnitOfWork, statements
from app.store.members import Member, Members
from app.store.statements import CLOCK_MS
from app.store.writer import Writer
from app.worker.cluster import Cluster
from app.worker.job import Job, JobPlaces
from app.worker.views import ControlPlaneError
from tests.simulation.database import LEASE_TTL_MS, database, let_go
from tests.simulation.freezing import FreezingLoop
from tests.simulation.oracles import Oracles, Violation
from tests.simulation.plane import RENEW_EVERY_S, Incarnation
from tests.simulation.scenario import ANSWER_WITHIN_S, REST_WITHIN_S, Scenario
from tests.simulation.world import CURRENT, Away, Network, SimClock, World

HOME = "sim"
_CALL_PATIENCE_S = 20.0


class SharedStore(Store):
    """On SQLite, but as on PostgreSQL: leases are taken when they have expired, and not before."""

    @property
    def _sole(self) -> bool:
        return False


class MemberPlane(Incarnation):
    """``seat`` as in `app.store.seats`; whoever had it before is dead. ``frozen``: what it would do if it went on."""

    world: MembersWorld
    cluster: Cluster

    def __init__(self, world: MembersWorld, directory: Path, seat: int) -> None:
        super().__init__(world, directory)
        self.seat = seat
        self.stops_before_effects = False
        self._skew_s = world.rng.choice((0, 0, -3600, 1800))

    def __repr__(self) -> str:
        return f"plane {self.number} at seat {self.seat}"

    def open_store(self) -> tuple[Store, Writer]:
        store, writer = database().open(f"plane-{self.number}", HOME, SharedStore)
        self.member = Member(
            store.owner, HOME, self.seat, f"sim://{self.number}", "sim", "sim", self.number, "1", 8
        )
        return store, writer

    def places(self) -> JobPlaces:
        directory = self._directory
        return JobPlaces(
            directory / "jobs",
            directory / "address",
            self.world.slots[self.member.task_manager],
            url=self.member.url,
            task_manager=self.member.task_manager,
        )

    def clock(self) -> SimClock:
        return SkewedClock(self.world, self._skew_s)

    async def begin(self) -> None:
        await Members(self.store).join(self.member)  # type: ignore[arg-type]
        self.cluster = await self.plane.start(
            renew_every_s=RENEW_EVERY_S, member=self.member, is_dead=self.world.is_dead
        )

    @property
    def overtaken(self) -> bool:
        return False

    def freeze(self) -> None:
        self.world.tell(f"{self}: stopped")
        self.frozen = []

    def thaw(self) -> None:
        frozen, self.frozen = self.frozen, None
        if frozen is not None:
            self.world.tell(f"{self}: goes on")
            for handle in frozen:
                if not handle.cancelled():
                    self.world.loop._ready.append(handle)  # type: ignore[attr-defined]

    def cut_now(self) -> None:
        super().cut_now()
        self.thaw()

    def before_effect(self, effect: Effect, job: Job) -> None:
        lease = database().lease_of(job.job_id)
        self.world.oracles.check(
            lease == (self.member.member_id, job.writer.epoch),
            "fencing",
            f"{self} performs {type(effect).__name__} of {job.job_id[-2:]} at epoch {job.writer.epoch} of {lease}",
        )
        super().before_effect(effect, job)


class SkewedClock(SimClock):
    """A clock that is wrong by ``skew_s``, on a machine that was started at another time."""

    def __init__(self, world: World, skew_s: float) -> None:
        self._skew_ms = int(skew_s * 1000)
        super().__init__(world)

    def _wall_ms(self) -> int:
        return super()._wall_ms() + self._skew_ms

    def _steady_ms(self) -> int:
        return super()._steady_ms() + abs(self._skew_ms)


class MembersOracles(Oracles):
    """One more promise: who was overtaken writes nothing."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._epochs: dict[str, int] = {}

    def committed(self, unit: UnitOfWork) -> None:
        newest = self._epochs.get(unit.job_id, 0)
        lease = database().lease_of(unit.job_id)
        epoch = max(newest, 0 if lease is None else lease[1])
        self.check(
            unit.epoch >= epoch,
            "fencing",
            f"job {unit.job_id[-2:]}: written under epoch {unit.epoch}, and {epoch} is known",
        )
        self._epochs[unit.job_id] = max(newest, unit.epoch)
        super().committed(unit)
        writer = CURRENT.get()
        decided = any(isinstance(write, AddEffect) for write in unit.writes)
        if isinstance(writer, MemberPlane) and writer.stops_before_effects and decided:
            writer.stops_before_effects = False
            writer.freeze()


class MembersNetwork(Network):
    """Drivers call the address in their job's file; clients call anybody, who sends them on to the owner."""

    world: MembersWorld

    async def target(self, who: str, about: Any) -> Incarnation | None:
        world = self.world
        if who == "driver":
            try:
                url = Path(about["address_file"]).read_text().split()[0]  # noqa: ASYNC240 - one line
            except (OSError, IndexError):
                return None
            plane = world.planes[int(url.removeprefix("sim://")) - 1]
            return plane if plane.serving else None
        asked = world.pick_plane()
        if asked is None or who == "submit" or asked.cluster.serves(about):
            return asked
        task = asked.spawn(asked.cluster.owner_of(about))
        if not (await asyncio.wait([task], timeout=_CALL_PATIENCE_S))[0] or task.cancelled():
            raise Away("there was no answer in time")
        owner = None if task.exception() is not None else task.result()
        if owner is None:
            return asked
        world.oracles.count("sent on")
        found = world.of_member(owner)
        if found is None or not found.serving:
            raise Away("the owner is gone")
        return found


class MembersWorld(World):
    """``planes`` has all that ever were; one at a time has a seat."""

    planes: list[MemberPlane]  # type: ignore[assignment]

    def living(self) -> list[MemberPlane]:
        return [plane for plane in self.planes if plane.serving and not plane.dead]

    @property
    def plane(self) -> MemberPlane | None:
        living = self.living()
        return living[-1] if living else None

    def pick_plane(self) -> MemberPlane | None:
        living = self.living()
        return self.rng.choice(living) if living else None

    def of_member(self, member: Member) -> MemberPlane | None:
        return next((plane for plane in self.planes if plane.member == member), None)

    def is_dead(self, member: Member) -> bool:
        """What the lock of a seat tells: of the dead, that they are."""
        plane = self.of_member(member)
        return plane is not None and plane.dead


class MembersScenario(Scenario):
    """Two or three control planes; at rest there are as many again."""

    loop_type = FreezingLoop

    def __init__(self, seed: int, directory: Path, tracing: bool) -> None:
        super().__init__(seed, directory, tracing)
        self._knobs.takeovers = self._knobs.crowd = False
        # Their clocks differ by up to an hour, so a watch period is as long as it likes.
        self._knobs.fragile = False
        self._knobs.slots = max(4, self._knobs.slots)
        rng = random.Random(f"members {seed}")
        self._seats = rng.choice((2, 3))
        self._pauses_every_s = rng.choice((8.0, 20.0))
        self._disturbed_s = 0.0

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
        world.network = MembersNetwork(world, _CALL_PATIENCE_S)
        names = ["host", *(f"host-{seat}" for seat in range(2, self._seats + 1))]
        world.slots = dict.fromkeys(names, self._knobs.slots)
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

    async def _stop_members(self) -> None:
        world, rng = self._members, self._members.rng
        while True:
            await asyncio.sleep(rng.expovariate(1 / self._pauses_every_s))
            plane = world.pick_plane()
            if plane is None or plane.frozen is not None:
                continue
            plane.stops_before_effects = rng.random() < 0.5
            until_s = world.now_s + 10
            while plane.stops_before_effects and not plane.dead and world.now_s < until_s:
                await asyncio.sleep(0.05)
            plane.stops_before_effects = False
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
            plane.stops_before_effects = False
            plane.thaw()
        taken = {plane.seat for plane in world.living()}
        for seat in range(1, self._seats + 1):
            if seat not in taken:
                await self._seat(seat)
        enough = 16 * max(1, len(world.oracles.jobs))
        for plane in world.living():
            plane.commits_left = plane.effects_left = None
            world.slots[plane.member.task_manager] = enough
            self._in(plane, lambda one: one.plane.offer_slots({one.member.task_manager: enough}))
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
