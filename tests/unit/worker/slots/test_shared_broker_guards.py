"""What keeps a broker of shared slots from saying, or claiming, what is not true any more of jobs that come and go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest

from app.cluster.ports import Offer
from app.store.slot_table import OwnClaim, SlotTable
from app.store.store import Store
from tests.parts import with_part
from tests.unit.store.samples import creation
from tests.unit.worker.slots.broker_rig import FIRST, HOME, FakeJob, Rig, names


@pytest.fixture
async def store(sqlite_url: str) -> AsyncIterator[Store]:
    store = await Store.open(sqlite_url, "one", home=HOME, durable=False)
    await store.commit(creation(1))
    yield store
    await store.close()


async def holding(rig: Rig, desired: int = 2) -> FakeJob:
    """A job that has what it asks for, as everybody can read."""
    job = rig.declare(FakeJob(1, desired))
    await rig.cycle(2)
    rig.take(job)
    return job


async def test_a_job_that_comes_back_at_a_newer_epoch_has_what_the_owner_between_has_left_it(
    store: Store,
) -> None:
    rig = Rig(store)
    job = await holding(rig)
    rig.broker.let_go(FIRST)
    between = Rig(store)
    job.epoch = (await store.acquire_lease(FIRST)).epoch
    between.jobs[FIRST] = job
    job.state = with_part(job.state, "supply", declared=1)
    await between.broker.look_up([FIRST])
    between.broker.restore(job.state)
    between.broker.release(FIRST, ["host-1"])
    await between.cycle()
    job.epoch = (await store.acquire_lease(FIRST)).epoch
    between.take(job)
    await rig.broker.look_up([FIRST])
    rig.broker.restore(job.state)
    assert names(rig.broker.granted(FIRST).slots) == ["host-0"]
    await rig.cycle()
    assert rig.broker._own[FIRST].let_go_s is None, "its claim is not refused"


async def test_slots_of_a_job_that_is_taken_up_again_are_claimed_as_long_as_its_state_has_them(
    store: Store,
) -> None:
    rig = Rig(store)
    job = await holding(rig)
    rig.broker.release(FIRST, ["host-1"])
    rig.broker.let_go(FIRST)
    await rig.broker.look_up([FIRST])
    rig.broker.restore(job.state)
    assert names(rig.broker.granted(FIRST).slots) == ["host-0"]
    await rig.cycle()
    assert (await rig.entry(FIRST)).claim.holds == {"host-0", "host-1"}


async def test_a_job_that_was_let_go_claims_nothing_and_is_told_nothing(store: Store) -> None:
    rig = Rig(store)
    await holding(rig)
    rig.broker.let_go(FIRST)
    rig.broker.release(FIRST, ["host-1"])
    rig.told.clear()
    rig.broker.take_offer(Offer((("other", 1),)))
    await rig.cycle(3)
    entry = await rig.entry(FIRST)
    assert entry.claim.holds == {"host-0", "host-1"}
    assert entry.grant is not None and names(entry.grant.slots) == ["other-0"], "there is news"
    assert not any(rig.told)


async def test_jobs_are_told_when_the_cluster_becomes_unreachable_and_when_it_is_reachable_again(
    store: Store,
) -> None:
    rig = Rig(store)
    job = await holding(rig)
    rig.broker.take_offer(Offer((("host", 4),), unreachable=True))
    await rig.cycle()
    assert rig.told[-1] == {FIRST}
    granted = rig.broker.granted(FIRST)
    assert granted.cluster_unreachable and granted.slots == job.state.slots
    rig.broker.take_offer(Offer((("host", 4),)))
    await rig.cycle()
    assert not rig.broker.granted(FIRST).cluster_unreachable


async def test_a_claim_counts_as_a_move_only_if_the_slots_are_others(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The holding time begins anew with each move."""
    moves = []
    put = SlotTable.put_claims

    async def noted(self: SlotTable, claims: Sequence[OwnClaim]) -> set[str]:
        moves.extend([(sorted(one.claim.holds), one.moved) for one in claims])
        return await put(self, claims)

    monkeypatch.setattr(SlotTable, "put_claims", noted)
    rig = Rig(store)
    job = await holding(rig, desired=1)
    job.state = FakeJob(1, desired=5).state
    rig.broker.take_offer(Offer((("host", 1),)))
    rig.declare(job)
    await rig.cycle()
    assert moves == [([], False), (["host-0"], True), (["host-0"], False)]


async def test_of_withdrawn_slots_those_that_the_job_still_has_are_claimed_on(store: Store) -> None:
    rig = Rig(store)
    job = await holding(rig, desired=4)
    rig.broker.take_offer(Offer((("host", 1),)))
    await rig.cycle(3)
    job.state = replace(job.state, slots=job.state.slots[:2])
    job.may_settle.set()
    await asyncio.wait(set(rig.tasks))
    await rig.cycle(2)
    assert (await rig.entry(FIRST)).claim.holds == {"host-0", "host-1"}
