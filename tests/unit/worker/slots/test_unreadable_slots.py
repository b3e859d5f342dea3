"""A job whose record of slots cannot be read must not keep other jobs from slots, nor lose its own."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import text

from app.store.slot_table import SlotTable
from app.store.store import Store
from tests.unit.store.samples import creation
from tests.unit.worker.slots.test_shared_broker import FIRST, HOME, SECOND, FakeJob, Rig, names


@pytest.fixture
async def one(database_url: str) -> AsyncIterator[Store]:
    store = await Store.open(database_url, "one", home=HOME, durable=False)
    for number in (1, 2):
        await store.commit(creation(number))
    yield store
    await store.close()


@pytest.fixture
async def two(one: Store, database_url: str) -> AsyncIterator[Store]:
    store = await Store.open(database_url, "two", home=HOME, durable=False)
    yield store
    await store.close()


async def rewrite(store: Store, where: str, value: str) -> None:
    statement = f"UPDATE {where} = :it WHERE job_id = :job"
    await store.write(
        lambda connection: connection.execute(text(statement), {"it": value, "job": FIRST}) and None
    )


async def holding_two(store: Store) -> Rig:
    """The first job holds two of four slots, and is not of this control plane any more."""
    rig = Rig(store)
    rig.declare(FakeJob(1))
    await rig.cycle(2)
    assert (await rig.entry(FIRST)).claim.holds == {"host-0", "host-1"}
    del rig.jobs[FIRST]
    rig.broker.let_go(FIRST)
    return rig


# The ids of its slots are in what a newer server has written, or they are not.
UNREADABLE = {
    "a grant of tomorrow": ("slot_grants SET document", None),
    "a grant in another form": ("slot_grants SET document", '{"ranges": [[0, 1]]}'),
    "a claim in another form": ("slot_claims SET holds", '{"host": [0, 1]}'),
    "a damaged claim": ("slot_claims SET holds", '["host-0", "ho'),
}


@pytest.mark.parametrize("what", UNREADABLE)
async def test_others_get_slots_and_it_keeps_its_own(one: Store, what: str) -> None:
    rig = await holding_two(one)
    where, value = UNREADABLE[what]
    if value is None:
        slots = [{"id": f"host-{number}", "task_manager_id": "host", "gpu": 1} for number in (0, 1)]
        value = json.dumps({"job_id": FIRST, "version": "of-tomorrow", "slots": slots, "withdrawn": []})
    await rewrite(one, where, value)
    job = rig.declare(FakeJob(2, desired=4))
    await rig.cycle(3)
    got = names(rig.broker.granted(SECOND).slots)
    if what == "a grant of tomorrow":
        assert got == ["host-2", "host-3"], "its own are known"
    else:
        assert got == [], "which are idle is not known: it may have any of them"
    arbiter = (await rig.table.ledger()).arbiter
    assert arbiter is not None and arbiter.is_partial and not arbiter.is_over
    rig.take(job)


async def test_slots_that_others_give_back_are_not_its_own(one: Store) -> None:
    rig = await holding_two(one)
    job = rig.declare(FakeJob(2))
    await rig.cycle(2)
    rig.take(job)
    assert names(job.state.slots) == ["host-2", "host-3"]
    await rewrite(one, "slot_claims SET holds", "of tomorrow")
    await rig.cycle()
    job.state = FakeJob(2, desired=1).state
    rig.broker.declare(job.state)
    rig.broker.release(SECOND, ["host-3"])
    await rig.cycle(2)
    assert names(rig.broker.granted(SECOND).slots) == ["host-2"]
    rig.broker.declare(FakeJob(2).state)
    await rig.cycle(2)
    assert names(rig.broker.granted(SECOND).slots) == ["host-2", "host-3"], "it is free, and nobody else's"


async def test_who_can_read_all_takes_the_place_of_who_cannot(
    one: Store, two: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    cannot = await holding_two(one)
    await rewrite(one, "slot_claims SET holds", "of tomorrow")
    await cannot.cycle()
    arbiter = (await cannot.table.ledger()).arbiter
    assert arbiter is not None and (arbiter.owner, arbiter.is_partial) == (one.owner, True)
    # One that cannot read it either leaves it where it is.
    neither = Rig(two)
    await neither.cycle()
    assert (await neither.table.ledger()).arbiter == arbiter
    # A newer server can: to it, what is written is readable.
    await rewrite(one, "slot_claims SET holds", '["host-0", "host-1"]')
    await neither.cycle()
    after = (await SlotTable(two, HOME).ledger()).arbiter
    assert after is not None and (after.owner, after.is_partial) == (two.owner, False)
    await cannot.cycle()
    assert (await cannot.table.ledger()).arbiter == after, "it is not taken back"
