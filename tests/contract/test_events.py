"""Events over HTTP: replayed, followed over restarts, given to many clients by one reader."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from app.api import event_streams
from app.api.auth import Tokens
from app.api.event_streams import Streams
from app.store.errors import StoreUnavailable
from app.store.store import Store
from app.worker.requests import event_feed
from tests.contract.event_client import following
from tests.contract.live import listening
from tests.contract.test_members import Network, server
from tests.contract.world import PATIENCE_S, World, bounds, open_world
from tests.unit.worker.fakes import FakeHost

OTHER_BOUNDS = bounds(flights=(1, 3), delays=(1, 3), store=(1, 1))


async def stored(world: World, path: str = "/events", **headers: str) -> list[dict[str, Any]]:
    """What is stored, by an answer that ends."""
    answer = await world.http.get(path + ("&" if "?" in path else "?") + "follow=false", headers=headers)
    assert answer.status_code == 200, answer.text
    return [json.loads(line[6:]) for line in answer.text.split("\n") if line.startswith("data: ")]


def ended(count: int) -> Callable[[Sequence[dict[str, Any]]], bool]:
    return lambda events: sum(one["type"] == "rescale-ended" for one in events) >= count


async def test_the_life_of_a_job_is_told_in_order_and_agrees_with_its_history(any_world: World) -> None:
    world = any_world
    job_id = await world.running()
    await world.put(job_id, OTHER_BOUNDS, **{"X-Slotwise-Reason": "more"})
    await world.completed(job_id, 2)
    await world.http.patch(f"/jobs/{job_id}?mode=cancel")
    await world.status(job_id, "CANCELED")
    events = await stored(world, f"/jobs/{job_id}/events")
    assert [one["id"] for one in events] == sorted({one["id"] for one in events})
    assert {one["jid"] for one in events} == {job_id}
    statuses = [one for one in events if one["type"] == "status"]
    assert statuses[0]["previousStatus"] is None and statuses[-1]["status"] == "CANCELED"
    assert [one["status"] for one in statuses][:-1] == [one["previousStatus"] for one in statuses][1:]
    history = (await world.get(f"/jobs/{job_id}/rescales/history"))[::-1]
    for kind in ("rescale-begun", "rescale-ended"):
        assert [(one["rescaleUuid"], one["triggerCause"]) for one in events if one["type"] == kind] == [
            (one["rescaleUuid"], one["triggerCause"]) for one in history
        ]
    tell = [one for one in events if one["type"] == "requirements"]
    assert [(one["version"], one["requestedBy"], one["reason"]) for one in tell] == [
        (1, "anonymous", None),
        (2, "anonymous", "more"),
    ]
    assert all(one["summary"] for one in events)
    assert tell[1]["summary"].startswith("version 2, flights 1 to ") and ": more" in tell[1]["summary"]
    attempts = [(one["type"], one["attempt"]) for one in events if one["type"].startswith("attempt")]
    assert attempts[0] == ("attempt-begun", 1) and attempts[-1][0] == "attempt-ended"
    assert events[0]["timestampInMillis"] <= events[-1]["timestampInMillis"]


async def test_a_client_follows_from_now_on_and_other_jobs_are_not_its_business(world: World) -> None:
    job_id, other = await world.running(), await world.running()
    async with listening(world) as port, following(port, f"/jobs/{job_id}/events") as client:
        first = await client.next()
        assert first.data is None and first.id is not None, "its id is known before anything happens"
        await world.put(other, OTHER_BOUNDS)
        await world.completed(other, 2)
        await world.put(job_id, OTHER_BOUNDS)
        await client.until(ended(1))
        assert {one["jid"] for one in client.events} == {job_id}
        assert [one["type"] for one in client.events][:2] == ["requirements", "rescale-begun"]
        assert all(int(first.id) < one["id"] for one in client.events)
        assert [one.id for one in client.got[1:]] == [str(one["id"]) for one in client.events]


async def test_everything_from_the_beginning_then_live_without_a_seam(any_world: World) -> None:
    world = any_world
    job_id = await world.running()
    async with listening(world) as port, following(port, "/events?after=0") as client:
        await client.until(ended(1))
        await world.put(job_id, OTHER_BOUNDS)
        await client.until(ended(2))
        assert client.events == await stored(world)


async def test_the_kinds_that_are_asked_for_are_given_and_no_others(world: World) -> None:
    job_id = await world.running()
    path = f"/jobs/{job_id}/events?types=status,rescale-ended"
    assert {one["type"] for one in await stored(world, path)} == {"status", "rescale-ended"}
    async with listening(world) as port, following(port, "/events?types=rescale-ended&after=0") as client:
        await client.until(ended(1))
        await world.put(job_id, OTHER_BOUNDS)
        await client.until(ended(2))
        assert {one["type"] for one in client.events} == {"rescale-ended"}


async def test_a_client_that_comes_again_after_a_restart_misses_nothing_and_gets_nothing_twice(
    database_url: str, tmp_path: Path
) -> None:
    seen: list[dict[str, Any]] = []
    async with open_world(database_url, tmp_path) as world:
        job_id = await world.running()
        async with listening(world) as port, following(port, "/events?after=0") as client:
            await client.until(ended(1))
            last = client.last_id or ""
            seen += client.events
        await world.put(job_id, OTHER_BOUNDS)
        await world.completed(job_id, 2)
        await world.store.expire_leases()
    async with open_world(database_url, tmp_path) as world:
        async with (
            listening(world) as port,
            following(port, "/events?after=1", **{"Last-Event-ID": last}) as client,
        ):
            await client.until(ended(1))
            await world.http.patch(f"/jobs/{job_id}?mode=cancel")
            await client.until(lambda events: any(one.get("status") == "CANCELED" for one in events))
            seen += client.events
        everything = await stored(world)
        assert [one["id"] for one in seen] == [one["id"] for one in everything]
        assert seen == everything


async def test_the_id_of_a_client_that_waits_moves_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_streams, "HEARTBEAT_MS", 20)
    job_id = await world.running()
    quiet = await world.running()
    async with listening(world) as port, following(port, f"/jobs/{quiet}/events") as client:
        first = await client.next()
        await world.put(job_id, OTHER_BOUNDS)
        await world.completed(job_id, 2)
        newest = (await stored(world))[-1]["id"]
        while int(client.last_id or 0) < newest:
            await client.next()
        assert client.events == [] and int(client.last_id or 0) > int(first.id or 0)


async def test_a_cursor_that_is_too_old_is_told_from_where_it_goes_on(world: World) -> None:
    job_id = await world.running()
    kept = (await stored(world))[-3:]
    await world.store.prune_events(older_than_ms=0, most=3, limit=1_000)
    async with (
        listening(world) as port,
        following(port, f"/jobs/{job_id}/events", **{"Last-Event-ID": "1"}) as client,
    ):
        await client.until(lambda events: len(events) == 3)
        (gone,) = [one for one in client.got if one.type == "gone"]
        assert gone.id == str(kept[0]["id"] - 1)
        assert gone.data == {
            "type": "gone",
            "cursor": 1,
            "after": kept[0]["id"] - 1,
            "message": f"Events 2 to {kept[0]['id'] - 1} are not kept any more. Read the state again.",
        }
        assert client.events == kept
        await world.put(job_id, OTHER_BOUNDS)
        await client.until(ended(2))
    from_the_oldest = await stored(world, "/events?after=0")
    assert from_the_oldest[:3] == kept, "0 is the oldest that is kept, and never too old"
    just_in_time = await stored(world, f"/events?after={kept[0]['id'] - 1}")
    assert just_in_time[0]["id"] == kept[0]["id"]


async def test_a_cursor_of_another_database_is_told_so_and_goes_on_from_now(world: World) -> None:
    await world.running()
    newest = (await stored(world))[-1]["id"]
    (gone,) = await stored(world, "/events?after=999999")
    assert (gone["type"], gone["after"]) == ("gone", newest)
    assert gone["message"].startswith("There is no event 999999 here yet: the database is another one")


async def test_fifty_clients_are_given_everything_by_one_reader(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = await world.running()
    reads: list[int] = []
    read = Store.events

    async def counted(self: Store, after: int, limit: int, **which: Any) -> Any:
        reads.append(after)
        return await read(self, after, limit, **which)

    monkeypatch.setattr(Store, "events", counted)
    async with listening(world) as port, contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(following(port, "/events")) for _ in range(50)]
        for client in clients:
            await client.next()
        joined = len(reads)
        await world.put(job_id, OTHER_BOUNDS)
        for client in clients:
            await client.until(ended(1))
        assert all(client.events == clients[0].events for client in clients)
        commits = len(clients[0].events)
        # The one reader looks twice a second, however long it takes them to come.
        assert joined < 50, "who comes while the others are there reads nothing"
        assert len(reads) - joined < 50, f"{len(reads) - joined} reads for {commits} events and 50 clients"
        assert world.control_plane.events._followers == 50

    async def all_gone() -> bool:
        return world.control_plane.events._followers == 0

    async with asyncio.timeout(PATIENCE_S):
        while not await all_gone():
            await asyncio.sleep(0.005)
    assert world.control_plane.events._reader is None, "nobody listens, and nothing is read"


async def test_a_server_that_stops_sends_its_clients_away_with_a_sentence(world: World) -> None:
    async with listening(world) as port, following(port, "/events") as client:
        await client.next()
        world.control_plane.events.close()
        assert await client.rest() == []
        assert client.got[-1].type == "closing"
        assert client.got[-1].data["message"].startswith("The server is stopping. Come again")
        assert client.got[-1].id is None, "the id stays that of the last event"


async def test_a_database_that_is_away_is_told_before_the_stream_and_in_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.running()

    async def away(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("The database is away.")

    monkeypatch.setattr(world.store, "events", away)
    for query in ("", "?follow=false"):
        answer = await world.http.get(f"/events{query}")
        assert (answer.status_code, answer.json()) == (503, {"errors": ["The database is away."]})
        assert answer.headers["retry-after"]
    monkeypatch.undo()
    monkeypatch.setattr(event_feed, "_RETRY_S", 0.01)
    monkeypatch.setattr(event_feed, "_AWAY_S", 0.05)
    async with listening(world) as port, following(port, "/events") as client:
        await client.next()
        with monkeypatch.context() as patched:
            patched.setattr(world.store, "events", away)
            assert await client.rest() == []
        assert client.got[-1].data == {"type": "closing", "message": "The database is away."}
        assert client.got[-1].id is None, "the id stays that of the last event"
    assert await stored(world)


async def test_there_are_only_so_many_streams(world: World) -> None:
    world.app.state.streams = Streams(1)  # type: ignore[attr-defined]
    async with listening(world) as port:
        async with following(port, "/events") as client:
            await client.next()
            answer = await world.http.get("/events")
            assert answer.status_code == 503 and answer.headers["retry-after"]
            assert answer.json()["errors"] == [
                "1 clients follow events already, which is the most: try again."
            ]
        async with asyncio.timeout(PATIENCE_S):
            while (await world.http.get("/events?follow=false")).status_code != 200:
                await asyncio.sleep(0.005)


async def test_a_stream_is_counted_before_the_store_is_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.app.state.streams = Streams(0)  # type: ignore[attr-defined]

    async def read(*_: Any, **__: Any) -> Any:
        raise AssertionError("nothing is read for one who is refused")

    monkeypatch.setattr(world.store, "events", read)
    for query in ("", "?follow=false"):
        assert (await world.http.get(f"/events{query}")).status_code == 503


async def test_one_principal_has_a_part_of_the_streams_only(sqlite_url: str, tmp_path: Path) -> None:
    secrets = {name: f"correct-horse-battery-{name}" for name in ("ann", "bob")}
    names = {hashlib.sha256(secret.encode()).digest(): name for name, secret in secrets.items()}
    ann, bob = ({"Authorization": f"Bearer {secret}"} for secret in secrets.values())
    async with open_world(sqlite_url, tmp_path, tokens=Tokens(names)) as world, listening(world) as port:
        world.app.state.streams = Streams(4)  # type: ignore[attr-defined]
        async with following(port, "/events", **ann) as client:
            await client.next()
            answer = await world.http.get("/events?follow=false", headers=ann)
            assert answer.status_code == 429 and answer.headers["retry-after"]
            assert answer.json()["errors"] == [
                "1 clients of ann follow events already, which is the most of one name: close some of them."
            ]
            assert (await world.http.get("/events?follow=false", headers=bob)).status_code == 200


async def test_texts_may_have_line_separators_that_json_leaves_as_they_are(world: World) -> None:
    job_id, reason = await world.running(), "one\u2028two\x85three"
    async with listening(world) as port, following(port, f"/jobs/{job_id}/events") as client:
        await client.next()
        headers = {"X-Slotwise-Reason": reason.encode()}
        path = f"/jobs/{job_id}/resource-requirements"
        assert (await world.http.put(path, json=OTHER_BOUNDS, headers=headers)).status_code < 300
        await client.until(lambda events: any(one.get("reason") == reason for one in events))


async def test_a_token_that_is_taken_away_ends_the_stream(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_streams, "HEARTBEAT_MS", 20)
    token = "correct-horse-battery-staple"
    names = {hashlib.sha256(token.encode()).digest(): "alice"}
    tokens = Tokens(names)
    async with open_world(sqlite_url, tmp_path, tokens=tokens) as world, listening(world) as port:
        for path in ("/events", f"/jobs/{'0' * 32}/events"):
            assert (await world.http.get(path)).status_code == 401
        async with following(port, "/events", Authorization=f"Bearer {token}") as client:
            await client.next()
            names.clear()
            await client.rest()
            assert client.got[-1].data == {
                "type": "closing",
                "message": "The token of this stream is not valid any more.",
            }


@pytest.mark.parametrize(
    ("query", "headers", "sentence"),
    [
        (
            "?after=-1",
            {},
            "The query parameter after should be a whole number between 0 and 1000000000000000",
        ),
        ("?after=x", {}, "The query parameter after should be a whole number"),
        ("?follow=yes", {}, "The query parameter follow should be true or false, found 'yes'."),
        (
            "?types=status,nope",
            {},
            "The query parameter types should be some of status, requirements, graph, slot-share,",
        ),
        ("?types=", {}, "The query parameter types should be some of"),
        ("?since=1", {}, "The query parameter 'since' is not known here; allowed: after, follow, types."),
        ("", {"Last-Event-ID": "abc"}, "The header Last-Event-ID should be a whole number between 0 and"),
        ("", {"Last-Event-ID": ""}, "The header Last-Event-ID should be a whole number between 0 and"),
    ],
)
async def test_what_is_wrong_is_named(
    world: World, query: str, headers: dict[str, str], sentence: str
) -> None:
    job_id = await world.submit()
    for path in ("/events", f"/v1/jobs/{job_id}/events"):
        answer = await world.http.get(path + query, headers=headers)
        assert answer.status_code == 400
        assert sentence in answer.json()["errors"][0]


async def test_head_and_unknown_jobs_are_answered_at_once(world: World) -> None:
    job_id = await world.submit()
    for path in ("/events", f"/jobs/{job_id}/events"):
        answer = await world.http.head(path)
        assert (answer.status_code, answer.content) == (200, b"")
        assert answer.headers["content-type"].startswith("text/event-stream")
    assert (await world.http.get(f"/jobs/{'f' * 32}/events")).status_code == 404
    assert (await world.http.post("/events")).status_code == 405


async def test_a_job_that_was_forgotten_is_told_to_all_and_ends_the_streams_of_its_own(world: World) -> None:
    job_id = await world.running()
    await world.http.patch(f"/jobs/{job_id}?mode=cancel")
    await world.status(job_id, "CANCELED")
    path = f"/jobs/{job_id}/events"
    async with listening(world) as port, following(port, "/events") as of_all, following(port, path) as own:
        await of_all.next()
        await own.next()
        assert (await world.http.delete(f"/jobs/{job_id}")).status_code < 300
        await of_all.until(lambda events: len(events) == 1)
        assert await own.rest() == of_all.events
        assert own.got[-1].data == {"type": "closing", "message": "The job was deleted, with its events."}
    (told,) = of_all.events
    assert (told["type"], told["forgottenJob"], told["jid"]) == ("job-forgotten", job_id, None)


async def test_any_server_tells_of_the_jobs_of_others(postgresql_url: str, tmp_path: Path) -> None:
    network, dead, host = Network(), set[str](), FakeHost()
    async with (
        server(postgresql_url, tmp_path, network, 1, dead, host) as first,
        server(postgresql_url, tmp_path, network, 2, dead, host) as second,
    ):
        job_id = await first.rig.run()
        owner, other = (first, second) if first.owns(job_id) else (second, first)
        path = f"/jobs/{job_id}/events?follow=false"
        network.calls.clear()
        answers = [(await one.http.get(path)).text for one in (owner, other)]
        assert answers[0] == answers[1] and "rescale-ended" in answers[0]
        assert network.calls == [], "nobody was asked"
        joined = (await first.http.get("/events?follow=false&types=member-joined")).text
        assert joined.count("event: member-joined") == 2
        assert (await other.http.get(f"/jobs/{'f' * 32}/events?follow=false")).status_code == 404
