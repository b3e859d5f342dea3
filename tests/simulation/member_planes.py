"""Control planes that share jobs, the network between them, and what must be true of them: see
`tests.simulation.members`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from app.cluster.ports import Offer
from app.scheduler.adaptive.effects import Effect
from app.scheduler.slot_ledger import SlotGrant
from app.store.members import Member, Members, task_manager_of
from app.store.slot_table import SlotArbiter, SlotTable
from app.store.store import Store
from app.store.writer import Writer
from app.store.writes import SaveState, UnitOfWork
from app.worker.job.job import Job
from app.worker.job.orders import implied_effects
from app.worker.job.places import JobPlaces
from app.worker.ownership.control_planes import ControlPlanes
from tests.simulation.database import database
from tests.simulation.oracles import Oracles
from tests.simulation.plane import RENEW_EVERY_S, Incarnation
from tests.simulation.world import CURRENT, Away, Network, SimClock, World

HOME = "sim"
CALL_PATIENCE_S = 20.0


class SharedStore(Store):
    """On SQLite, but as on PostgreSQL: leases are taken when they have expired, and not before."""

    @property
    def _sole(self) -> bool:
        return False


class MemberPlane(Incarnation):
    """``seat`` as in `app.store.seats`; whoever had it before is dead. ``frozen``: what it would do if it went on."""

    world: MembersWorld
    cluster: ControlPlanes

    def __init__(self, world: MembersWorld, directory: Path, seat: int) -> None:
        super().__init__(world, directory)
        self.seat = seat
        self.stops_before_effects = False
        self.stops_before_grants = False
        self.bells: SimBells | None = None
        self._skew_s = world.rng.choice((0, 0, -3600, 1800))

    def __repr__(self) -> str:
        return f"plane {self.number} at seat {self.seat}"

    def open_store(self) -> tuple[Store, Writer]:
        store, writer = database().open(f"plane-{self.number}", HOME, SharedStore)
        slots = self.world.slots.get(task_manager_of(self.seat), 1)
        self.member = Member(
            store.owner, HOME, self.seat, f"sim://{self.number}", "sim", "sim", self.number, "1", slots
        )
        return store, writer

    def places(self) -> JobPlaces:
        directory = self._directory
        return JobPlaces(
            directory / "jobs",
            directory / "address",
            self.member.slots,
            url=self.member.url,
            task_manager=self.member.task_manager,
        )

    def offer(self) -> Offer | None:
        return self.world.offer()

    def clock(self) -> SimClock:
        return SkewedClock(self.world, self._skew_s)

    async def begin(self) -> None:
        await Members(self.store).join(self.member)  # type: ignore[arg-type]
        self.cluster = await self.plane.start(
            renew_every_s=RENEW_EVERY_S,
            member=self.member,
            is_dead=self.world.is_dead,
            bells=SimBells(self),
        )
        broker: Any = self.plane._keeper.broker
        broker._table = broker._arbitration.table = StoppingTable(self, broker._table)

    @property
    def overtaken(self) -> bool:
        return False

    @property
    def stops_somewhere(self) -> bool:
        return self.stops_before_effects or self.stops_before_grants

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


class StoppingTable(SlotTable):
    """One that decides about slots may be stopped when it has decided, and before it writes that down."""

    def __init__(self, plane: MemberPlane, table: SlotTable) -> None:
        super().__init__(table.store, table.home)
        self.plane = plane

    async def put_grants(
        self, arbiter: SlotArbiter, grants: Iterable[SlotGrant], *, drop: Sequence[str] = ()
    ) -> bool:
        if grants and self.plane.stops_before_grants:
            self.plane.stops_before_grants = False
            self.plane.freeze()
            await asyncio.sleep(0)
        rows = list(grants)
        written = await super().put_grants(arbiter, rows, drop=drop)
        if written and rows:
            self.plane.world.oracles.granted(self.plane, arbiter)
        return written


class SimBells:
    """Rings after a moment, or not at all. Implements `app.worker.slots.doorbell.Bells`."""

    def __init__(self, plane: MemberPlane) -> None:
        self._plane = plane
        self.rung: Callable[[], None] = lambda: None

    def listen(self, rung: Callable[[], None]) -> None:
        self.rung = rung
        self._plane.bells = self

    def ring(self, seats: Iterable[int]) -> None:
        world = self._plane.world
        for seat in seats:
            if world.rng.random() < 0.7:
                world.later(world.rng.uniform(0, 0.01), self._ring, seat)

    async def _ring(self, seat: int) -> None:
        for plane in self._plane.world.living():
            if plane.seat == seat and plane.bells is not None:
                self._plane.world.loop.call_soon(plane.bells.rung, context=plane.context)

    def close(self) -> None:
        pass


class SkewedClock(SimClock):
    """A clock that is wrong by ``skew_s``, on a machine that was started at another time."""

    def __init__(self, world: World, skew_s: float) -> None:
        self._skew_ms = int(skew_s * 1000)
        super().__init__(world)

    def wall_ms(self) -> int:
        return super().wall_ms() + self._skew_ms

    def _steady_ms(self) -> int:
        return super()._steady_ms() + abs(self._skew_ms)


class MembersOracles(Oracles):
    """One more promise: who was overtaken writes nothing."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._epochs: dict[str, int] = {}
        self._decided = (0, -1)

    def granted(self, plane: MemberPlane, arbiter: SlotArbiter) -> None:
        """Slots were granted, by what ``plane`` had read when ``arbiter`` was as it says."""
        based_on = (arbiter.epoch, arbiter.decisions)
        self.check(
            based_on > self._decided,
            "fencing",
            f"{plane} decided about slots at {based_on}, and {self._decided} was decided at before",
        )
        self._decided = max(self._decided, based_on)

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
        decided = any(isinstance(write, SaveState) and implied_effects(write.state) for write in unit.writes)
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
        if not (await asyncio.wait([task], timeout=CALL_PATIENCE_S))[0] or task.cancelled():
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
    """``planes`` has all that ever were; one at a time has a seat. ``workers``: of a cluster, if there is one, whose
    master may be away."""

    planes: list[MemberPlane]  # type: ignore[assignment]
    workers: dict[str, int] | None = None
    master_is_away = False

    def offer(self) -> Offer | None:
        if self.workers is None:
            return None
        return Offer(tuple(self.workers.items()), unreachable=self.master_is_away)

    async def see_workers(self, plane: MemberPlane) -> None:
        """One control plane looks at the cluster, each in its own moments."""
        offer = self.offer()
        if not plane.dead and offer is not None:
            self.loop.call_soon(plane.plane.take_offer, offer, context=plane.context)

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
