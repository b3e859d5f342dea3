"""Servers that join and leave are told of as events, once."""

from __future__ import annotations

from sqlalchemy import text

from app.store.members import Member, Members
from app.store.store import Store
from tests.unit.store.test_store_events import all_of


def member(name: str, seat: int) -> Member:
    return Member(name, "here", seat, f"http://{name}", f"host-of-{name}", "kernel", 1, "1", 4)


async def members_told(store: Store) -> list[tuple[str, str]]:
    return [(one.type, one.fields.split('"url":"http://')[1].split('"')[0]) for one in await all_of(store)]


async def test_servers_that_join_and_leave_are_told_once(store: Store) -> None:
    members, one = Members(store), member("one", 1)
    await members.join(one)
    await members.join(one)
    await members.beat(one)
    assert await members_told(store) == [("member-joined", "one")]
    await members.leave(one)
    await members.leave(one)
    assert (await members_told(store))[1:] == [("member-left", "one")]


async def test_a_server_that_is_found_dead_has_left_and_joins_when_it_is_heard_again(store: Store) -> None:
    members, one = Members(store), member("one", 1)
    await members.join(one)
    await members.bury([one.member_id])
    await members.bury([one.member_id])
    await members.beat(one)
    assert [kind for kind, _ in await members_told(store)] == [
        "member-joined",
        "member-left",
        "member-joined",
    ]


async def test_a_server_that_is_silent_for_too_long_has_left_once_others_see_it(store: Store) -> None:
    members, one, other = Members(store), member("one", 1), member("other", 2)
    for each in (one, other):
        await members.join(each)
    expire = text("UPDATE members SET expires_ms = 5 WHERE member_id = 'one'")
    await store.write(lambda connection: connection.execute(expire).close())
    for _ in range(3):
        await members.beat(other)
    assert (await members_told(store))[2:] == [("member-left", "one")]
    await members.beat(one)
    await members.beat(other)
    await members.bury([one.member_id])
    await members.beat(other)
    assert (await members_told(store))[3:] == [("member-joined", "one"), ("member-left", "one")]


async def test_who_takes_a_seat_takes_it_from_one_that_has_left(store: Store) -> None:
    members = Members(store)
    await members.join(member("one", 1))
    await members.join(member("again", 1))
    assert await members_told(store) == [
        ("member-joined", "one"),
        ("member-left", "one"),
        ("member-joined", "again"),
    ]
    buried = member("again", 1)
    await members.bury([buried.member_id])
    await members.join(member("third", 1))
    assert (await members_told(store))[3:] == [("member-left", "again"), ("member-joined", "third")]


async def test_a_silent_server_has_left_also_where_its_seat_is_taken_before_anybody_saw_it(
    store: Store,
) -> None:
    members = Members(store)
    for each in (member("one", 1), member("other", 2)):
        await members.join(each)
    expire = text("UPDATE members SET expires_ms = 5")
    await store.write(lambda connection: connection.execute(expire).close())
    await members.join(member("again", 1))
    assert sorted((await members_told(store))[2:4]) == [("member-left", "one"), ("member-left", "other")]
    assert (await members_told(store))[4:] == [("member-joined", "again")]


async def test_a_server_that_left_is_not_told_of_again_when_its_event_has_been_pruned(store: Store) -> None:
    members, one, other = Members(store), member("one", 1), member("other", 2)
    for each in (one, other):
        await members.join(each)
    expire = text("UPDATE members SET expires_ms = 5 WHERE member_id = 'one'")
    await store.write(lambda connection: connection.execute(expire).close())
    await members.beat(other)
    assert ("member-left", "one") in await members_told(store)
    await store.write(lambda connection: connection.execute(text("DELETE FROM events")).close())
    await members.beat(other)
    assert await members_told(store) == []
