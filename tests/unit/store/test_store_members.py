"""Members and their seats: who is there, who is dead, and who may not join."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from app.store.datadir import DataDirectory
from app.store.errors import DataDirectoryInUse, StoreError
from app.store.leases import full_name
from app.store.members import Member, Members, task_manager_of
from app.store.seats import Seat, is_dead, this_place
from app.store.store import Store

HOME = "here"


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    opened = await Store.open(database_url, "one", home=HOME, durable=False)
    yield opened
    await opened.close()


def member(name: str, seat: int, place: str = "kernel") -> Member:
    return Member(full_name(name, HOME), HOME, seat, f"http://{name}", f"host-of-{name}", place, 1, "1", 4)


async def test_members_join_are_listed_by_seat_and_leave(store: Store) -> None:
    members = Members(store)
    assert await members.join(member("two", 2)) == []
    assert await members.join(member("one", 1)) == []
    found = await members.spread(HOME)
    assert [(state.member.url, state.is_alive, state.jobs) for state in found.members] == [
        ("http://one", True, 0),
        ("http://two", True, 0),
    ]
    assert (await members.spread("there")).members == ()
    await members.leave(member("one", 1))
    assert [state.member.seat for state in (await members.spread(HOME)).members] == [2]


async def test_who_takes_a_seat_follows_the_one_before(store: Store) -> None:
    members = Members(store)
    await members.join(member("one", 1))
    await members.join(member("again", 1))
    assert [state.member.url for state in (await members.spread(HOME)).members] == ["http://again"]


async def test_who_runs_jobs_elsewhere_cannot_join_while_others_are_alive(store: Store) -> None:
    members = Members(store)
    of_cluster = replace(member("two", 2), cluster="spark://master:7077")
    await members.join(member("one", 1))
    with pytest.raises(
        StoreError, match="one at http://one runs jobs on its host, and this one is to run them on"
    ):
        await members.join(of_cluster)
    assert [state.member.seat for state in (await members.spread(HOME)).members] == [1]
    await members.join(replace(of_cluster, seat=1))
    assert (await members.spread(HOME)).members[0].member.cluster == "spark://master:7077"


async def test_one_that_was_buried_alive_rises_with_its_next_beat(store: Store) -> None:
    members, one = Members(store), member("one", 1)
    await members.join(one)
    await members.bury([one.member_id])
    assert [state.is_alive for state in (await members.spread(HOME)).members] == [False]
    await members.beat(one)
    assert [state.is_alive for state in (await members.spread(HOME)).members] == [True]


async def test_a_server_of_another_place_is_refused_while_one_of_this_lives(store: Store) -> None:
    members, one = Members(store), member("one", 1)
    await members.join(one)
    stranger = member("stranger", 1, place="another kernel")
    assert await members.join(stranger) == ["host-of-one"]
    assert [state.member for state in (await members.spread(HOME)).members] == [one]
    await members.bury([one.member_id])
    assert await members.join(stranger) == []


def test_seats_are_counted_from_one_and_taken_again(tmp_path: Path) -> None:
    first, second = Seat.take(tmp_path), Seat.take(tmp_path)
    assert (first.number, second.number) == (1, 2)
    assert (first.run_dir, second.run_dir) == (tmp_path / "run", tmp_path / "run-2")
    assert [task_manager_of(seat.number) for seat in (first, second)] == ["host", "host-2"]
    first.release()
    with Seat.take(tmp_path) as again:
        assert again.number == 1
    second.release()


def test_the_dead_are_told_from_the_stopped(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib; from app.store.seats import Seat; seat = Seat.take(pathlib.Path(sys.argv[1]));"
        "seat.name('them'); print('seated', flush=True); sys.stdin.read()"
    )
    them = replace(member("x", 1, this_place()), member_id="them")
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"seated\n"
        assert not is_dead(tmp_path, them, this_place())
        os.kill(process.pid, signal.SIGSTOP)
        assert not is_dead(tmp_path, them, this_place())
        process.kill()
        process.wait()
        assert is_dead(tmp_path, them, this_place())
        assert not is_dead(tmp_path, them, "another kernel"), "its locks cannot be seen"
        with Seat.take(tmp_path) as mine:
            mine.name("me")
            assert is_dead(tmp_path, them, this_place()), "somebody else sits there"
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


def test_a_directory_is_shared_by_those_that_all_share_it(tmp_path: Path) -> None:
    with DataDirectory.claim(tmp_path, shared=True) as one, DataDirectory.claim(tmp_path, shared=True) as two:
        assert one.home() == two.home()
        with pytest.raises(DataDirectoryInUse, match="with SQLite there is a single server"):
            DataDirectory.claim(tmp_path)
    with DataDirectory.claim(tmp_path), pytest.raises(DataDirectoryInUse):
        DataDirectory.claim(tmp_path, shared=True)
