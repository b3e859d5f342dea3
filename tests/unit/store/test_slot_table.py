"""The records of shared slots in the database: who may write them, and what is read of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from pydantic import TypeAdapter
from sqlalchemy import text

from app.cluster.ports import Offer
from app.cluster.shared_slots import decide
from app.model.plan import Slot
from app.model.slot_share import SlotShare
from app.scheduler.adaptive.slot_declaration import Releasable
from app.scheduler.arbiter import Allotment, Why
from app.scheduler.slot_ledger import Ask, Entry, SlotClaim, SlotGrant
from app.store.leases import full_name
from app.store.members import Member, Members
from app.store.slot_table import OwnClaim, SlotArbiter, SlotTable
from app.store.store import Store
from tests.unit.store.conftest import Opener
from tests.unit.store.samples import creation, finish

HOME = "here"
ASK = Ask(4, 2, Releasable(True, False, 3), SlotShare(weight=7, cap=5))
SLOTS = (Slot("host-0", "host"), Slot("host-2-1", "host-2"))


@pytest.fixture
async def one(open_store: Opener) -> AsyncIterator[Store]:
    yield await open_store("one", home=HOME, durable=False)


@pytest.fixture
async def two(open_store: Opener) -> AsyncIterator[Store]:
    yield await open_store("two", home=HOME, durable=False)


async def job(store: Store, number: int = 1) -> str:
    unit = creation(number)
    await store.commit(unit)
    return unit.job_id


def claim(job_id: str, seq: int = 1, seen: int = 0, holds: tuple[str, ...] = ()) -> SlotClaim:
    return SlotClaim(job_id, seq, seen, frozenset(holds), ASK)


async def arbiter_of(table: SlotTable) -> SlotArbiter:
    """The arbiter, as it is now: ``table``'s owner, if nobody was."""
    await table.become_arbiter()
    arbiter = (await table.ledger()).arbiter
    assert arbiter is not None
    return arbiter


def grant_json(job_id: str) -> str:
    return TypeAdapter(SlotGrant).dump_json(grant(job_id)).decode()


def grant(job_id: str, version: int = 1) -> SlotGrant:
    return SlotGrant(
        job_id,
        version,
        1,
        SLOTS,
        frozenset({"host-3"}),
        1,
        17,
        Allotment(1, 2, Why.SHARE),
        "Its share is 1.",
        9,
    )


async def test_what_was_written_is_read(one: Store) -> None:
    table, job_id = SlotTable(one, HOME), await job(one)
    assert await table.put_claims([OwnClaim(claim(job_id, 3, 2, ("host-0",)), 1, moved=True)]) == set()
    assert await table.become_arbiter() == 1
    assert await table.put_grants(await arbiter_of(table), [grant(job_id)])
    ledger = await table.ledger()
    (entry,) = ledger.entries
    assert (entry.claim.seq, entry.claim.seen, entry.claim.holds) == (3, 2, {"host-0"})
    assert (entry.claim.ask, entry.grant) == (ASK, grant(job_id))
    assert 0 <= ledger.now_ms - entry.claim.changed_ms < 60_000
    assert ledger.arbiter == SlotArbiter(one.owner, 1, is_over=False, decisions=1)
    assert await table.entries_of([job_id, "0" * 32]) == {job_id: entry}
    assert (await table.ledger()).entries == (entry,)
    assert (await SlotTable(one, "there").ledger()).entries == ()


async def test_who_does_not_hold_the_lease_at_this_epoch_claims_nothing(one: Store, two: Store) -> None:
    table, job_id = SlotTable(one, HOME), await job(one)
    assert await SlotTable(two, HOME).put_claims([OwnClaim(claim(job_id), 1, moved=False)]) == {job_id}
    assert await table.put_claims([OwnClaim(claim(job_id), 2, moved=False)]) == {job_id}
    assert (await table.ledger()).entries == ()


async def test_when_slots_moved_is_kept_until_they_move_again(one: Store) -> None:
    table, job_id = SlotTable(one, HOME), await job(one)
    await table.put_claims([OwnClaim(claim(job_id), 1, moved=True)])
    before = (await table.entries_of([job_id]))[job_id].claim.changed_ms
    await asyncio.to_thread(_pass_of_time)
    await table.put_claims([OwnClaim(claim(job_id, 2), 1, moved=False)])
    assert (await table.entries_of([job_id]))[job_id].claim.changed_ms == before
    await table.put_claims([OwnClaim(claim(job_id, 3), 1, moved=True)])
    assert (await table.entries_of([job_id]))[job_id].claim.changed_ms > before


def _pass_of_time() -> None:
    """Until the clock of the database, in milliseconds, has gone on."""
    import time

    until = time.time() + 0.02
    while time.time() < until:
        pass


async def test_there_is_one_arbiter_and_the_dead_are_followed_at_once(one: Store, two: Store) -> None:
    members = Members(one)
    member = Member(full_name("one", HOME), HOME, 1, "http://one", "host", "kernel", 1, "1", 4)
    await members.join(member)
    first, second, job_id = SlotTable(one, HOME), SlotTable(two, HOME), await job(one)
    await first.put_claims([OwnClaim(claim(job_id), 1, moved=False)])
    assert await first.become_arbiter() == 1
    assert await second.become_arbiter() is None
    was = await arbiter_of(first)
    assert not await second.put_grants(replace(was, owner=two.owner), [grant(job_id)])
    await members.bury([member.member_id])
    assert (await second.ledger()).arbiter == SlotArbiter(one.owner, 1, is_over=True)
    assert await second.become_arbiter() == 2
    assert not await first.put_grants(was, [grant(job_id)]), "it was overtaken"
    assert not await first.put_grants(replace(was, epoch=2), [grant(job_id)])
    assert await second.put_grants(await arbiter_of(second), [grant(job_id)])
    assert (await first.ledger()).entries[0].grant == grant(job_id)


async def test_an_arbiter_that_cannot_see_the_cluster_says_so(one: Store, two: Store) -> None:
    first, second = SlotTable(one, HOME), SlotTable(two, HOME)
    assert await first.become_arbiter() == 1
    assert (await second.ledger()).arbiter == SlotArbiter(
        one.owner, 1, is_over=False, cluster_unreachable=False
    )
    await first.tell_unreachable(1, True)
    assert (await second.ledger()).arbiter == SlotArbiter(
        one.owner, 1, is_over=False, cluster_unreachable=True
    )
    await second.tell_unreachable(1, False)
    await first.tell_unreachable(2, False)
    assert (await second.ledger()).arbiter == SlotArbiter(
        one.owner, 1, is_over=False, cluster_unreachable=True
    )
    await first.tell_unreachable(1, False)
    assert (await second.ledger()).arbiter == SlotArbiter(
        one.owner, 1, is_over=False, cluster_unreachable=False
    )


@pytest.mark.parametrize("ends", ["leaves", "is followed at its seat"])
async def test_who_goes_is_no_arbiter_any_more(one: Store, two: Store, ends: str) -> None:
    members = Members(one)
    member = Member(full_name("one", HOME), HOME, 1, "http://one", "host", "kernel", 1, "1", 4)
    await members.join(member)
    assert await SlotTable(one, HOME).become_arbiter() == 1
    if ends == "leaves":
        await members.leave(member)
    else:
        next_one = Member(full_name("two", HOME), HOME, 1, "http://two", "host", "kernel", 1, "1", 4)
        await members.join(next_one)
    assert await SlotTable(two, HOME).become_arbiter() == 2


async def test_the_slots_of_the_dead_are_there_and_those_of_who_has_left_are_not(one: Store) -> None:
    members, table = Members(one), SlotTable(one, HOME)
    for seat, name in enumerate(("one", "two", "three"), 1):
        await members.join(Member(full_name(name, HOME), HOME, seat, name, "host", "kernel", 1, "1", seat))
    await members.bury([full_name("two", HOME)])
    await members.leave(Member(full_name("three", HOME), HOME, 3, "three", "host", "kernel", 1, "1", 3))
    ledger = await table.ledger()
    assert ledger.task_managers == (("host", 1), ("host-2", 2))
    assert ledger.seats == ((full_name("one", HOME), 1),)


async def test_what_is_left_of_ended_jobs_is_told_and_dropped(one: Store) -> None:
    table, job_id = SlotTable(one, HOME), await job(one)
    await table.put_claims([OwnClaim(claim(job_id), 1, moved=False)])
    assert await table.put_grants(await arbiter_of(table), [grant(job_id)])
    await one.commit(finish(job_id, 2))
    ledger = await table.ledger()
    assert (ledger.entries, ledger.ended) == ((), (job_id,))
    assert await table.put_grants(await arbiter_of(table), [], drop=ledger.ended)
    assert (await table.ledger()).ended == ()
    assert await table.entries_of([job_id]) == {}
    assert await table.put_grants(await arbiter_of(table), [grant(job_id)]), (
        "of a job without a claim nothing is written"
    )
    assert await table.entries_of([job_id]) == {}


def test_an_entry_is_seen_when_its_claim_names_the_grant() -> None:
    assert Entry(claim("a")).is_seen
    assert not Entry(claim("a"), grant("a")).is_seen
    assert Entry(claim("a", seen=1), grant("a")).is_seen


async def test_a_decision_holds_only_if_there_was_no_other_since_it_was_looked(one: Store) -> None:
    """As if the answer to a write had been lost, and the write had landed after it was given up. The slots that it
    gave to one job may be those that the next decision gives to another."""
    table, first, second = SlotTable(one, HOME), await job(one), await job(one, 2)
    for job_id in (first, second):
        assert await table.put_claims([OwnClaim(claim(job_id), 1, moved=True)]) == set()
    await table.become_arbiter()
    before = (await table.ledger()).arbiter
    assert before is not None
    assert await table.put_grants(before, []), "its lease is renewed"
    assert await table.put_grants(before, [grant(first)])
    assert not await table.put_grants(before, [grant(second)])
    assert not await table.put_grants(before, [], drop=[first])
    assert not await table.put_grants(before, [])
    ledger = await table.ledger()
    assert {entry.claim.job_id: entry.grant for entry in ledger.entries} == {
        first: grant(first),
        second: None,
    }
    assert ledger.arbiter is not None and await table.put_grants(ledger.arbiter, [grant(second)])


async def rewrite(store: Store, statement: str, **values: str) -> None:
    await store.write(lambda connection: connection.execute(text(statement), values) and None)


async def test_what_a_newer_server_says_of_a_job_leaves_the_slots_of_all_known(one: Store) -> None:
    table, job_id, other = SlotTable(one, HOME), await job(one), await job(one, 2)
    arbiter = await arbiter_of(table)
    runs = replace(
        claim(job_id, seen=1, holds=("host-0", "host-2-1")), ask=Ask(2, 1, Releasable(running=True))
    )
    wants = replace(claim(other), ask=Ask(2, 2))
    claims = [OwnClaim(runs, 1, moved=True), OwnClaim(wants, 1, moved=True)]
    assert await table.put_claims(claims) == set()
    assert await table.put_grants(arbiter, [grant(job_id)])
    newer = {**json.loads(grant_json(job_id)), "verdict": {"why": "of-tomorrow"}, "more": 1}
    await rewrite(one, "UPDATE slot_grants SET document = :it", it=json.dumps(newer))
    await rewrite(
        one, "UPDATE slot_claims SET ask = :it WHERE job_id = :job", it='{"desired": "many"}', job=job_id
    )
    ledger = await SlotTable(one, HOME).ledger()
    found = {entry.claim.job_id: entry for entry in ledger.entries}[job_id]
    assert found.claim.holds == {"host-0", "host-2-1"} and ledger.unreadable == ()
    assert found.grant == replace(grant(job_id), verdict=None)
    for suspended in (False, True):
        offer = Offer((("host", 1), ("host-2", 2)), unreachable=suspended)
        decided = decide(ledger.entries, offer, now_ms=10**15, holding_ms=0)
        told = {one.job_id: one for one in decided.grants}
        kept = told.get(job_id, found.grant)
        assert kept.slots == SLOTS and kept.version == 2 - suspended, "it may use all of its own again"
        assert other not in told or told[other].slots == ()


@pytest.mark.parametrize("column", ["holds", "document"])
async def test_a_job_whose_slots_cannot_be_read_is_told_of_and_not_left_out(one: Store, column: str) -> None:
    table, job_id, other = SlotTable(one, HOME), await job(one), await job(one, 2)
    arbiter = await arbiter_of(table)
    await table.put_claims([OwnClaim(claim(each), 1, moved=True) for each in (job_id, other)])
    assert await table.put_grants(arbiter, [grant(job_id)])
    where = "slot_claims SET holds" if column == "holds" else "slot_grants SET document"
    await rewrite(one, f"UPDATE {where} = :it WHERE job_id = :job", it='{"slots": 3}', job=job_id)
    for _ in range(2):
        ledger = await table.ledger()
        assert ledger.unreadable == (job_id,)
        assert [entry.claim.job_id for entry in ledger.entries] == [other]
    assert await table.entries_of([job_id, other]) == {job_id: None, other: ledger.entries[0]}
