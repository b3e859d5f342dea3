"""Requests that reach a control plane that does not own the job."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.api import forwarding
from app.api.limits import BODY_LIMIT_BYTES
from app.plugins.livy.numbers import ADD_NUMBER, job_of_number
from app.store.errors import StoreUnavailable
from app.store.members import Member, Members
from tests.contract.members import (
    Server,
    body,
    hold_renewals,
    two,
    until,
)
from tests.unit.worker.fakes import graph


async def test_any_process_answers_and_writes_reach_the_owner(postgresql_url: str, tmp_path: Path) -> None:
    async with two(postgresql_url, tmp_path) as (first, second, _):
        job = await first.rig.run()
        assert (await second.http.get(f"/jobs/{job}")).json()["state"] == "RUNNING"
        path = f"/jobs/{job}/resource-requirements"
        answer = await second.http.put(path, json=body(4), headers={"Idempotency-Key": "a"})
        assert (answer.status_code, answer.headers["etag"]) == (200, '"2"')
        again = await second.http.put(path, json=body(4), headers={"Idempotency-Key": "a"})
        assert (again.status_code, again.headers["etag"]) == (200, '"2"')
        stale = await second.http.put(path, json=body(3), headers={"If-Match": '"1"'})
        assert stale.status_code == 412
        wrong = await second.http.put(path, json={"nothing": 1})
        assert wrong.status_code == 400
        assert wrong.json() == (await first.http.put(path, json={"nothing": 1})).json()
        listed = (await second.http.get("/jobs/overview")).json()["jobs"]
        assert [one["jid"] for one in listed] == [job]
        overview = (await second.http.get("/overview")).json()
        assert (overview["slots-total"], overview["jobs-running"]) == (16, 1)
        assert (await second.http.get(f"/jobs/{'0' * 32}")).status_code == 404
        assert first.rig.plane.job(job).state.requirements.version == 2
        assert not second.owns(job)


async def test_any_process_answers_for_a_livy_batch(
    postgresql_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two(postgresql_url, tmp_path) as (first, second, network):
        job = await first.rig.plane.submit(graph(1), {}, rows=[ADD_NUMBER])
        await first.rig.bring_up(job, 1)
        asked: list[tuple[int, int]] = []
        for number, store in ((1, first.rig.store), (2, second.rig.store)):

            async def read(
                query: Any, *args: Any, number: int = number, read: Any = store.read, **more: Any
            ) -> Any:
                if query is job_of_number:
                    asked.append((number, *args))
                return await read(query, *args, **more)

            monkeypatch.setattr(store, "read", read)
        assert (await first.http.get("/batches/1/state")).json() == {"id": 1, "state": "running"}
        assert asked == [(1, 1)], "the number is looked up once"
        assert (await second.http.get("/batches/1/state")).json() == {"id": 1, "state": "running"}
        assert asked[1:] == [(2, 1), (1, 1)], "and once by each server that the request comes to"
        listed = (await second.http.get("/batches")).json()
        assert [(one["id"], one["appId"]) for one in listed["sessions"]] == [(1, job)]
        looked_up: list[str | None] = []
        look_up = second.cluster.look_up

        async def noted(job_id: str | None = None) -> None:
            looked_up.append(job_id)
            await look_up(job_id)

        monkeypatch.setattr(second.cluster, "look_up", noted)
        for unknown in ("2", "9" * 9, "9" * 30, "x"):
            assert (await second.http.get(f"/batches/{unknown}")).status_code in (400, 404)
        assert looked_up == [], "no jobs are read for a number that nobody has"
        network.calls.clear()
        assert (await second.http.delete("/batches/1")).json() == {"msg": "deleted"}
        assert network.calls == [(httpx.URL(first.member.url).host, "DELETE")]


async def test_without_the_owner_reads_are_answered_and_writes_are_not(
    postgresql_url: str, tmp_path: Path
) -> None:
    async with two(postgresql_url, tmp_path) as (first, second, network):
        job = await first.rig.run()
        network.down.add(httpx.URL(first.member.url).host)
        path = f"/jobs/{job}/resource-requirements"
        assert (await second.http.get(f"/jobs/{job}")).json()["state"] == "RUNNING"
        assert (await second.http.get(path)).headers["etag"] == '"1"'
        refused = await second.http.put(path, json=body(4))
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert "cannot be reached" in refused.json()["errors"][0]
        assert first.rig.plane.job(job).state.requirements.version == 1


async def test_what_cannot_be_read_is_not_said_to_be_missing(
    postgresql_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two(postgresql_url, tmp_path) as (first, second, _):
        job = await first.rig.run()

        async def away(*_: Any) -> Any:
            raise StoreUnavailable("the database is away")

        with monkeypatch.context() as patch:
            for name in ("owner_of", "marks"):
                patch.setattr(Members, name, away)
            path = f"/jobs/{job}/resource-requirements"
            for refused in (await second.http.put(path, json=body(4)), await second.http.get(f"/jobs/{job}")):
                assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
                assert "the database cannot be read" in refused.json()["errors"][0]
        # What has been seen once is shown as it was.
        assert (await second.http.get("/jobs/overview")).json()["jobs"]
        for name in ("owner_of", "marks"):
            monkeypatch.setattr(Members, name, away)
        assert (await second.http.get(f"/jobs/{job}")).json()["state"] == "RUNNING"
        assert (await second.http.put(path, json=body(4))).status_code == 503


async def test_what_was_sent_on_is_not_sent_on_again(postgresql_url: str, tmp_path: Path) -> None:
    async with two(postgresql_url, tmp_path) as (first, second, network):
        job = await first.rig.run()
        network.calls.clear()
        path = f"/jobs/{job}/resource-requirements"
        refused = await second.http.put(path, json=body(4), headers={"X-Slotwise-Forwarded": "1"})
        assert (refused.status_code, network.calls) == (503, [])
        assert refused.headers["retry-after"]


async def test_an_owner_that_gives_no_answer_is_not_waited_for_when_the_job_has_another(
    postgresql_url: str, tmp_path: Path
) -> None:
    async with two(postgresql_url, tmp_path) as (first, second, network):
        job = await first.rig.run()

        async def silent(*_: Any) -> None:
            await asyncio.Event().wait()

        network.apps[httpx.URL(first.member.url).host] = silent
        path = f"/jobs/{job}/resource-requirements"
        hold_renewals(first)
        asking = asyncio.create_task(second.http.put(path, json=body(4)))
        await until(lambda: network.calls, "it was sent")
        second.dead.add(first.member.member_id)
        await until(lambda: second.owns(job), "the job is taken over")
        async with asyncio.timeout(60):
            answer = await asking
        assert answer.status_code == 503
        assert "Whether the request was carried out is not known" in answer.json()["errors"][0]
        assert (await second.http.put(path, json=body(4))).status_code == 200


async def _lose(first: Server, second: Server, job: str) -> None:
    """The first server dies, and the second one has the job."""
    hold_renewals(first)
    second.dead.add(first.member.member_id)
    await until(lambda: second.owns(job), "the job is taken over")


async def test_a_body_that_was_under_way_when_the_owner_died_is_for_the_next_owner(
    postgresql_url: str, tmp_path: Path
) -> None:
    async with two(postgresql_url, tmp_path) as (first, second, network):
        job = await first.rig.run()
        network.calls.clear()

        async def slow() -> AsyncIterator[bytes]:
            text = json.dumps(body(4)).encode()
            yield text[:9]
            await _lose(first, second, job)
            yield text[9:]

        answer = await second.http.put(f"/jobs/{job}/resource-requirements", content=slow())
        assert (answer.status_code, answer.headers["etag"]) == (200, '"2"')
        assert not network.calls


async def test_what_the_owner_did_not_get_is_answered_by_who_has_the_job_then(
    postgresql_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two(postgresql_url, tmp_path) as (first, second, network):
        job = await first.rig.run()

        async def refuse(request: httpx.Request) -> httpx.Response:
            await _lose(first, second, job)
            raise httpx.ConnectError("refused", request=request)

        monkeypatch.setattr(network, "handle_async_request", refuse)
        answer = await second.http.put(f"/jobs/{job}/resource-requirements", json=body(4))
        assert (answer.status_code, answer.headers["etag"]) == (200, '"2"')
        assert second.rig.plane.job(job).state.requirements.version == 2


async def test_a_form_reaches_the_owner_whole(postgresql_url: str, tmp_path: Path) -> None:
    async with two(postgresql_url, tmp_path) as (first, second, network):
        job = await first.rig.run()
        files = [("graph", ("graph.json", b"{}")), ("files", ("big.bin", bytes(BODY_LIMIT_BYTES + 1)))]
        network.calls.clear()
        there, here = [await one.http.put(f"/jobs/{job}/graph", files=files) for one in (second, first)]
        assert (there.status_code, there.json()) == (here.status_code, here.json())
        assert there.status_code == 400 and "vertices" in there.text
        assert len(network.calls) == 1


async def test_a_new_version_that_is_planned_elsewhere_is_waited_for_while_its_client_is_there(
    postgresql_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "_ANSWER_TIMEOUT_S", 0.0)
    monkeypatch.setattr(forwarding, "_LOOK_EVERY_S", 0.01)
    async with two(postgresql_url, tmp_path) as (first, second, network):
        job = await first.rig.run()
        looks, wanted, ended, gone = 0, 5, asyncio.Event(), asyncio.Event()
        host, here = (httpx.URL(one.member.url).host for one in (first, second))
        owner, owner_of = network.apps[host], second.cluster.owner_of

        async def counted(job_id: str) -> Member | None:
            nonlocal looks
            looks += 1
            return await owner_of(job_id)

        async def slow(*call: Any) -> None:
            try:
                await until(
                    lambda: looks >= wanted, "the other server has looked again and again who owns the job"
                )
                await owner(*call)
            finally:
                ended.set()

        monkeypatch.setattr(second.cluster, "owner_of", counted)
        network.apps[host] = slow
        request = second.http.build_request(
            "PUT", f"/jobs/{job}/graph", files=[("graph", ("graph.json", b"{}"))]
        )
        body_sent = request.read()
        answer = await second.http.send(request)
        assert answer.status_code == 400 and "vertices" in answer.text

        looks = 0
        given_up = await second.http.put(f"/jobs/{job}/resource-requirements", json=body(4))
        assert given_up.status_code == 503, "any other request has its limit"

        looks, wanted = 0, 1_000_000
        ended.clear()
        network.calls.clear()
        messages = iter([{"type": "http.request", "body": body_sent, "more_body": False}])

        async def receive() -> dict[str, Any]:
            if (message := next(messages, None)) is not None:
                return message
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(_message: Any) -> None:
            pass

        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "PUT",
            "scheme": "http",
            "path": request.url.path,
            "raw_path": request.url.raw_path,
            "query_string": b"",
            "root_path": "",
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "server": (here, 80),
            "client": ("127.0.0.1", 1),
        }
        asking = asyncio.create_task(network.apps[here](scope, receive, send))
        await until(lambda: network.calls, "it was sent on")
        gone.set()
        await until(ended.is_set, "its caller has gone")
        await asking
