"""Jobs of several servers are told when the cluster is unreachable, by their own server or by the one that decides."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from app.cluster.ports import Offer
from app.scheduler.adaptive.events import StartScheduling
from app.scheduler.slot_ledger import Entry, SlotClaim, SlotGrant
from app.store.slot_table import Ledger, SlotArbiter
from app.worker.slots.doorbell import NoBells
from app.worker.slots.shared_broker import SharedBroker
from tests.unit.scheduler.driving import Job, slots

SEEN = Offer((("w", 4),))
AWAY = replace(SEEN, unreachable=True, why=("The Spark master cannot be asked.",))


class Table:
    """The database, of which ``ledger`` was read last."""

    def __init__(self) -> None:
        self.store = SimpleNamespace(owner="me", lease_ttl_ms=15_000)
        self.arbiter = SlotArbiter("other", 1, is_over=False)
        self.grants: dict[str, SlotGrant] = {}
        self.claims: dict[str, SlotClaim] = {}
        self.told: list[tuple[int, bool]] = []

    async def ledger(self) -> Ledger:
        entries = tuple(Entry(claim, self.grants.get(job)) for job, claim in self.claims.items())
        return Ledger(0, self.arbiter, entries)

    async def put_claims(self, claims: list[Any]) -> set[str]:
        self.claims.update({one.claim.job_id: one.claim for one in claims})
        return set()

    async def put_grants(self, _epoch: int, grants: tuple[SlotGrant, ...], *, drop: Any = ()) -> bool:
        self.grants.update({one.job_id: one for one in grants})
        return True

    async def tell_unreachable(self, epoch: int, cluster_unreachable: bool) -> None:
        self.told.append((epoch, cluster_unreachable))
        self.arbiter = replace(self.arbiter, cluster_unreachable=cluster_unreachable)


class _Known:
    """What the broker has of a job."""

    def __init__(self, job: Job) -> None:
        self.writer = SimpleNamespace(epoch=1)
        self._job = job

    @property
    def state(self) -> Any:
        return self._job.state


class World:
    def __init__(self) -> None:
        self.table, self.told = Table(), [set[str]()]
        self.job = Job(lower=1, upper=2).do(StartScheduling())
        jobs: Any = {self.job.state.job_id: _Known(self.job)}
        table: Any = self.table
        self.broker = SharedBroker(
            table,
            jobs,
            self.told.append,
            lambda work: work.close(),
            bells=NoBells(),
            offer=SEEN,
            holding_ms=0,
        )
        self.broker.declare(self.job.state)

    async def cycle(self) -> set[str]:
        """The jobs that are told something."""
        await self.broker._cycle()
        return self.told[-1]

    def take(self) -> None:
        """The job is at what it was told."""
        self.job.do(self.granted)

    @property
    def granted(self) -> Any:
        return self.broker.granted(self.job.state.job_id)


@pytest.mark.parametrize("whose", ["its own server", "the arbiter"])
async def test_a_job_is_told_and_told_again_when_it_is_over(whose: str) -> None:
    world = World()
    assert await world.cycle() == set() and not world.granted.cluster_unreachable
    if whose == "the arbiter":
        world.table.arbiter = replace(world.table.arbiter, cluster_unreachable=True)
    else:
        world.broker.take_offer(AWAY)
    assert await world.cycle() == {world.job.state.job_id}
    assert world.granted.cluster_unreachable and world.broker.grants_differ(world.job.state)
    assert await world.cycle() == {world.job.state.job_id}, "until it is there"
    world.take()
    assert await world.cycle() == set()
    pool = world.broker.pool
    assert (world.broker.cluster_unreachable, pool.free, pool.free_on("w"), pool.idle) == (True, 0, 0, 4)
    assert pool.attainable_slots(world.job.state.job_id, 2, 1) == 0
    (why,) = pool.why
    assert why.startswith("The server that decides" if whose == "the arbiter" else "The Spark master")
    world.table.arbiter = replace(world.table.arbiter, cluster_unreachable=False)
    world.broker.take_offer(SEEN)
    assert await world.cycle() == {world.job.state.job_id}
    pool = world.broker.pool
    assert (world.granted.cluster_unreachable, pool.free, pool.why) == (False, 4, ())


async def test_an_arbiter_says_what_it_sees_and_grants_nothing_meanwhile() -> None:
    world = World()
    world.table.arbiter = SlotArbiter("me", 3, is_over=False)
    world.broker.take_offer(AWAY)
    await world.cycle()
    assert (world.table.told, world.table.grants) == ([(3, True)], {})
    await world.cycle()
    assert world.table.told == [(3, True)], "it is said once"
    # What its row says of itself is not what it goes by.
    world.broker.take_offer(SEEN)
    assert await world.cycle() == {world.job.state.job_id}
    assert world.table.told[1:] == [(3, False)]
    assert world.granted.slots == slots(2, manager="w") and not world.granted.cluster_unreachable
