"""One control plane where several share the slots: its cycle, on a real database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from sqlalchemy import Connection, text

from app.cluster.ports import Offer
from app.scheduler.adaptive.slot_declaration import Releasable
from app.scheduler.slot_ledger import Ask
from app.store.errors import StoreUnavailable
from app.store.slot_table import Ledger, SlotTable
from app.store.store import Store
from app.worker.slots import arbitration as slot_arbitration
from app.worker.slots import shared_broker
from tests.parts import with_part
from tests.unit.store.samples import creation
from tests.unit.worker.slots.broker_rig import FIRST, HOME, SECOND, FakeJob, Rig, names


@pytest.fixture
async def store(sqlite_url: str) -> AsyncIterator[Store]:
    store = await Store.open(sqlite_url, "one", home=HOME, durable=False)
    for number in (1, 2):
        await store.commit(creation(number))
    yield store
    await store.close()


async def test_a_job_that_asks_is_granted_and_says_that_it_has_seen_it(store: Store) -> None:
    rig = Rig(store)
    job = rig.declare(FakeJob(1))
    assert rig.broker.granted(FIRST).slots == ()
    await rig.cycle()
    assert names(rig.broker.granted(FIRST).slots) == ["host-0", "host-1"] and rig.told[-1] == {FIRST}
    assert rig.broker.grants_differ(job.state)
    assert not (await rig.entry(FIRST)).is_seen
    await rig.cycle()
    entry = await rig.entry(FIRST)
    assert entry.is_seen and entry.claim.holds == {"host-0", "host-1"} and rig.told[-1] == set()
    assert (rig.broker.pool.total, rig.broker.pool.free, rig.broker.arbiter) == (4, 2, store.owner)


@pytest.mark.parametrize(
    "error", [StoreUnavailable("away"), RuntimeError("a defect"), asyncio.CancelledError()]
)
async def test_a_claim_that_could_not_be_written_is_written_again(
    store: Store, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(store)
    rig.declare(FakeJob(1))

    async def fails(*_args: Any) -> set[str]:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(SlotTable, "put_claims", fails)
        with pytest.raises(type(error)):
            await rig.cycle()
    await rig.cycle()
    assert (await rig.entry(FIRST)).claim.ask.desired == 2


async def test_a_claim_that_cannot_be_made_keeps_no_other_from_being_written(store: Store) -> None:
    rig = Rig(store)
    rig.declare(FakeJob(1))
    rig.declare(FakeJob(2))
    second = rig.broker._own[SECOND]
    good, second.holding = second.holding, broken_holding()
    with pytest.raises(RuntimeError):
        await rig.cycle()
    second.holding = good
    await rig.cycle()
    assert (await rig.entry(FIRST)).claim.seq == 2 and (await rig.entry(SECOND)).claim.seq == 1


def broken_holding() -> Any:
    class Broken:
        fading: frozenset[str] = frozenset()

        def claim(self, _ask: Ask) -> Any:
            raise RuntimeError("a defect")

    return Broken()


class Deciding:
    """Counts the decisions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self._decide = slot_arbitration.decide
        monkeypatch.setattr(slot_arbitration, "decide", self)

    def __call__(self, *args: Any, **fields: Any) -> Any:
        self.count += 1
        return self._decide(*args, **fields)

    def taken(self) -> int:
        count, self.count = self.count, 0
        return count


async def test_the_arbiter_decides_when_something_has_changed_and_not_before(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, deciding = Rig(store), Deciding(monkeypatch)
    job = rig.declare(FakeJob(1))
    await rig.cycle(4)
    assert deciding.taken() <= 3
    await rig.cycle(5)
    assert deciding.taken() == 0
    rig.broker.declare(with_part(job.state, "supply", declared=3))
    await rig.cycle(4)
    assert 1 <= deciding.taken() <= 3 and len(rig.broker.granted(FIRST).slots) == 3
    rig.broker.take_offer(Offer((("host", 5),)))
    await rig.cycle(3)
    assert deciding.taken() >= 1
    await rig.cycle(3)
    assert deciding.taken() == 0


async def test_the_arbiter_decides_again_when_time_is_a_reason(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a job holds beyond its share may be taken from it after a while."""
    rig, deciding = Rig(store, holding_ms=1_500), Deciding(monkeypatch)

    async def shift(by_ms: int) -> None:
        """The holding time of the first job's slots begins so much later."""
        moved = text("UPDATE slot_claims SET changed_ms = changed_ms + :by WHERE job_id = :job")

        def write(connection: Connection) -> None:
            connection.execute(moved, {"by": by_ms, "job": FIRST})

        await store.write(write)

    rig.declare(FakeJob(1, desired=3))
    other = rig.declare(FakeJob(2, desired=1))
    await rig.cycle(2)
    # Its end does not come while this is looked at, on however slow a machine.
    await shift(3_600_000)
    own = rig.broker._own[FIRST]
    rig.broker._ask(own, replace(own.ask, giving=Releasable(running=True, in_place_floor=1)))
    rig.broker.declare(with_part(other.state, "supply", declared=2))
    await rig.cycle(3)
    assert rig.broker.granted(FIRST).allowed is None
    deciding.taken()
    await rig.cycle()
    assert deciding.taken() == 0
    await shift(-3_600_000)
    await rig.cycle()
    loop = asyncio.get_running_loop()
    until_s = loop.time() + 60
    while rig.broker.granted(FIRST).allowed is None:
        assert loop.time() < until_s, "nothing is taken from who has more than its share"
        async with asyncio.timeout(60):
            await rig.broker._wanted.wait()
        rig.broker._wanted.clear()
        await rig.cycle()
    assert rig.broker.granted(FIRST).allowed == 2 and deciding.taken() >= 1


async def test_a_decision_that_came_too_late_is_made_again(store: Store) -> None:
    rig = Rig(store)
    rig.declare(FakeJob(1))
    await rig.cycle(3)
    rig.declare(FakeJob(2))
    await rig.broker._write_claims()
    before = await rig.table.ledger()
    # A write of before lands.
    assert before.arbiter is not None
    entry = before.entry(FIRST)
    assert entry is not None and entry.grant is not None
    assert await rig.table.put_grants(before.arbiter, [replace(entry.grant, version=entry.grant.version + 1)])
    after = await rig.broker._arbitration.turn(before, rig.broker._offer_by)
    assert after is before and rig.broker._wanted.is_set()
    assert (await rig.entry(SECOND)).grant is None
    await rig.cycle(2)
    assert names(rig.broker.granted(SECOND).slots) == ["host-2", "host-3"]


async def test_a_slot_that_is_withdrawn_is_claimed_until_the_job_is_without_it(store: Store) -> None:
    rig = Rig(store)
    job = rig.declare(FakeJob(1, desired=4))
    await rig.cycle(2)
    rig.take(job)
    rig.broker.take_offer(Offer((("host", 1),)))
    await rig.cycle(3)
    assert names(rig.broker.granted(FIRST).slots) == ["host-0"] and job.told > 0
    assert (await rig.entry(FIRST)).claim.holds == {f"host-{number}" for number in range(4)}
    rig.broker.take_offer(Offer((("host", 4),)))
    rig.broker.declare(with_part(job.state, "supply", declared=1))
    await rig.cycle()
    assert rig.broker.pool.free == 0, "they are back, and the job may be using them still"
    rig.take(job)
    job.may_settle.set()
    await asyncio.wait(set(rig.tasks))
    await rig.cycle(2)
    assert (await rig.entry(FIRST)).claim.holds == {"host-0"} and rig.broker.pool.free == 3


async def test_a_job_that_is_anothers_is_told_nothing_more_and_claims_nothing(store: Store) -> None:
    rig = Rig(store)
    job = rig.declare(FakeJob(1))
    job.epoch = 7
    rig.broker._own[FIRST].epoch = 7
    await rig.cycle(2)
    assert rig.broker._own[FIRST].let_go_s is not None and not any(rig.told)
    assert await rig.table.entries_of([FIRST]) == {}


async def test_a_new_owner_finds_what_the_job_holds(store: Store) -> None:
    rig = Rig(store)
    job = rig.declare(FakeJob(1))
    await rig.cycle(2)
    rig.take(job)
    other = Rig(store)
    other.jobs[FIRST] = job
    assert await other.broker.look_up([FIRST, SECOND]) == set()
    other.broker.restore(job.state)
    assert not other.broker.grants_differ(job.state)
    await other.cycle(2)
    assert (await other.entry(FIRST)).claim.holds == {"host-0", "host-1"} and not any(other.told)


async def test_a_job_whose_slots_cannot_be_read_is_not_taken_up(store: Store) -> None:
    rig = Rig(store)
    rig.declare(FakeJob(1))
    await rig.cycle(2)
    broken = text("UPDATE slot_claims SET holds = '7' WHERE job_id = :job")
    await store.write(lambda connection: connection.execute(broken, {"job": FIRST}) and None)
    assert await rig.broker.look_up([FIRST, SECOND]) == {FIRST}


async def test_the_cycle_goes_on_without_a_bell_and_leaves_time_to_others(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(store)
    rig.bells.breaks = OSError("Too many open files")
    rig.declare(FakeJob(1))
    pause_s, loop = 0.05, asyncio.get_running_loop()
    monkeypatch.setattr(shared_broker, "FEW_JOBS", 0)
    monkeypatch.setattr(shared_broker, "PAUSE_PER_JOB_S", pause_s)
    began: list[float] = []
    cycle = rig.broker._cycle

    async def counted() -> None:
        began.append(loop.time())
        # There is always something.
        rig.broker.review_soon()
        await cycle()

    monkeypatch.setattr(rig.broker, "_cycle", counted)
    running = loop.create_task(rig.broker.run())
    until_s = loop.time() + 60
    while len(began) < 5:
        assert loop.time() < until_s and not running.done()
        await asyncio.sleep(0.01)
    running.cancel()
    assert len(rig.broker.granted(FIRST).slots) == 2
    assert all(later - before >= pause_s for before, later in pairwise(began[1:]))


@pytest.mark.parametrize("others", [True, False])
async def test_who_sees_nothing_of_the_cluster_leaves_slots_to_others(
    store: Store, monkeypatch: pytest.MonkeyPatch, others: bool
) -> None:
    rig = Rig(store)
    rig.declare(FakeJob(1))
    await rig.cycle(2)
    read, done = SlotTable.ledger, list[str]()

    async def ledger(table: SlotTable) -> Ledger:
        found = await read(table)
        return replace(found, seats=(("one", 0), ("two", 1))) if others else found

    async def put_grants(*_: Any, **__: Any) -> bool:
        done.append("renewed")
        return True

    async def become_arbiter(_: Any, *, partial: bool) -> None:
        done.append("taken")

    monkeypatch.setattr(SlotTable, "ledger", ledger)
    monkeypatch.setattr(SlotTable, "put_grants", put_grants)
    monkeypatch.setattr(SlotTable, "become_arbiter", become_arbiter)
    rig.broker.take_offer(Offer((("host", 4),), unreachable=True))
    rig.broker._arbitration._renew_at_s = 0.0
    await rig.cycle()
    assert done == ([] if others else ["renewed"])
    over = replace(await ledger(rig.table), arbiter=None)

    async def nobody(_: Any) -> Ledger:
        return over

    monkeypatch.setattr(SlotTable, "ledger", nobody)
    await rig.cycle()
    assert done == ([] if others else ["renewed", "taken"])
