"""Attempts of a job and the logs of their drivers, over the API."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.api.auth import Tokens
from tests.contract.drivers import ProtocolDriver
from tests.contract.live import listening
from tests.contract.test_tokens import TOKEN, guarded  # noqa: F401 - a fixture
from tests.contract.world import GRAPH, RESTART_AT_ONCE, World, eventually, open_world

PASSWORD = "hunter2-of-the-job"
CONFIG = {
    **RESTART_AT_ONCE,
    "restart-strategy.fixed-delay.attempts": "9",
    "spark.hadoop.fs.s3a.secret.key": PASSWORD,
}
NOBODY = "f" * 32


@pytest.fixture
def world(world: World) -> World:
    """With logs of drivers in the test's directory."""
    world.host.run_dir = world.directory
    return world


def write(driver: ProtocolDriver, text: str | bytes) -> None:
    with open(log_of(driver), "ab") as log:
        log.write(text if isinstance(text, bytes) else text.encode())


def log_of(driver: ProtocolDriver) -> Path:
    return Path(driver.ref.lock_file).with_suffix(".log")


async def read(world: World, job_id: str, attempt: int = 1, **params: Any) -> httpx.Response:
    return await world.http.get(f"/jobs/{job_id}/attempts/{attempt}/logs", params=params)


async def refused(world: World, status: int, path: str) -> str:
    answer = await world.http.get(path)
    assert answer.status_code == status, answer.text
    (sentence,) = answer.json()["errors"]
    return str(sentence)


async def attempts(world: World, job_id: str) -> list[dict[str, Any]]:
    return list((await world.get(f"/jobs/{job_id}/attempts"))["attempts"])


async def until_described(world: World, job_id: str) -> dict[str, Any]:
    async def described() -> Any:
        newest = (await attempts(world, job_id))[0]
        return newest if newest["host"] is not None else None

    found: dict[str, Any] = await eventually(described, "the driver is described")
    return found


async def test_an_attempt_tells_what_it_began_with_and_how_it_ended(any_world: World) -> None:
    world = any_world
    world.host.run_dir = world.directory
    job_id = await world.running({**GRAPH, "config": CONFIG})
    write(world.driver(), "hello\n")
    first = await until_described(world, job_id)
    vertices = {vertex["id"]: 2 for vertex in (await world.get(f"/jobs/{job_id}"))["vertices"]}
    assert first | {"startTimestampInMillis": 0} == {
        "attempt": 1,
        "startTimestampInMillis": 0,
        "endTimestampInMillis": None,
        "ending": None,
        "message": None,
        "planVersion": 1,
        "parallelism": vertices
        | {await world.vertex(job_id, "store"): first["parallelism"][list(vertices)[-1]]},
        "driverId": world.driver().ref.driver_id,
        "driverPid": world.driver().ref.pid,
        "host": "localhost",
        "sparkVersion": "4.3.0",
        "sparkUi": None,
        "log": {"available": True, "sizeInBytes": 6, "cutInBytes": 0},
    }
    world.driver().fail(f"Broken: password={PASSWORD}\nand more")
    await world.completed(job_id, 2)
    second, first = await attempts(world, job_id)
    assert (first["ending"], first["message"]) == ("FAILED", "Broken: password=******")
    assert first["endTimestampInMillis"] >= first["startTimestampInMillis"] > 0
    assert (second["attempt"], second["ending"]) == (2, None)
    assert second["log"] == {"available": False, "sizeInBytes": 0, "cutInBytes": 0}
    world.driver().die(-9)
    await world.completed(job_id, 3)
    second = (await attempts(world, job_id))[1]
    assert second["ending"] == "FAILED" and "was killed by signal 9" in second["message"]
    await world.http.patch(f"/jobs/{job_id}", params={"mode": "cancel"})
    await world.status(job_id, "CANCELED")
    assert [each["ending"] for each in await attempts(world, job_id)] == ["STOPPED", "FAILED", "FAILED"]


async def test_a_log_is_read_in_parts_and_without_secrets(world: World) -> None:
    job_id = await world.running({**GRAPH, "config": CONFIG})
    write(world.driver(), f"one\nkey {PASSWORD}\nthree")
    answer = await read(world, job_id)
    assert answer.text == "one\nkey ******\n"
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    following = answer.headers["x-slotwise-next"]
    assert (following, answer.headers["x-slotwise-complete"]) == (str(9 + len(PASSWORD)), "false")
    assert (await read(world, job_id, **{"from": following})).text == ""
    # In the middle of the password, and up to there.
    assert PASSWORD[4:] not in (await read(world, job_id, **{"from": 12})).text
    assert (await read(world, job_id, limit=12)).text == "one\n"
    head = await world.http.head(f"/jobs/{job_id}/attempts/1/logs", params={"follow": "true"})
    assert (head.status_code, head.content) == (200, b"")
    await world.http.post(f"/jobs/{job_id}/stop")
    await world.status(job_id, "FINISHED")
    answer = await read(world, job_id, **{"from": following})
    assert (answer.text, answer.headers["x-slotwise-complete"]) == ("three", "true")


async def test_a_log_that_is_larger_than_a_part_comes_whole(world: World) -> None:
    job_id = await world.running()
    lines = "".join(f"line {number} of many\n" for number in range(20_000))
    write(world.driver(), lines)
    text, at = "", 0
    while (answer := await read(world, job_id, **{"from": at, "limit": 100_000})).text:
        assert answer.status_code == 200 and len(answer.content) <= 100_000
        text, at = text + answer.text, int(answer.headers["x-slotwise-next"])
    assert text == lines
    assert (await read(world, job_id)).text == lines[: len(lines)]


async def test_what_is_asked_wrongly_is_refused_with_a_sentence(world: World) -> None:
    job_id = await world.running()
    write(world.driver(), "hello\n")
    base = f"/jobs/{job_id}/attempts"
    for query, sentence in (
        ("from=-1", "from should be a whole number between 0 and 1000000000000000, found '-1'"),
        ("from=x", "from should be a whole number"),
        ("limit=0", "limit should be a whole number between 1 and 2097152, found '0'"),
        ("limit=99999999999", "limit should be a whole number"),
        ("follow=yes", "follow should be true or false, found 'yes'"),
        ("follow=true&limit=5", "limit should not be given with follow=true"),
        ("tail=5", "'tail' is not known here; allowed: executor, follow, from, limit, output"),
        ("executor=-1", "executor should be a whole number between 0 and"),
        ("executor=0&output=log", "output should be 'stderr' or 'stdout'"),
        ("output=stdout", "output should be given with executor only"),
        ("executor=0&follow=true", "follow should not be true with executor"),
        ("from=1&from=2", "from is given twice"),
    ):
        assert sentence in await refused(world, 400, f"{base}/1/logs?{query}")
    assert "attempt should be a whole number" in await refused(world, 400, f"{base}/0/logs")
    assert "'foo' is not known here; allowed: none" in await refused(world, 400, f"{base}?foo=1")
    assert "at most 6, where the log ends now, found 7" in await refused(world, 416, f"{base}/1/logs?from=7")
    assert "at most 6" in await refused(world, 416, f"{base}/1/logs?from=7&follow=true")
    assert "has no attempt 2: its newest is 1" in await refused(world, 404, f"{base}/2/logs")
    assert "has no attempt 2" in await refused(world, 404, f"{base}/2/logs?follow=true")
    assert "was not found" in await refused(world, 404, f"/jobs/{NOBODY}/attempts")
    assert "was not found" in await refused(world, 404, f"/jobs/{NOBODY}/attempts/1/logs?follow=true")
    assert (await world.http.post(f"{base}/1/logs")).status_code == 405


async def test_a_log_that_is_gone_is_said_to_be(world: World) -> None:
    job_id = await world.running()
    path = f"/jobs/{job_id}/attempts/1/logs"
    assert "is not there: it was removed" in await refused(world, 410, path)
    assert "is not there" in await refused(world, 410, f"{path}?follow=true")
    secret = world.directory / "secret"
    secret.write_text("nothing for readers of logs\n")
    log_of(world.driver()).symlink_to(secret)
    assert "cannot be read" in await refused(world, 503, path)
    assert (await attempts(world, job_id))[0]["log"]["available"] is False


async def test_following_goes_on_until_the_attempt_is_over_and_nothing_is_missing(world: World) -> None:
    job_id = await world.running({**GRAPH, "config": CONFIG})
    driver = world.driver()
    write(driver, "begun\n")
    async with listening(world) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
        request = http.stream(
            "GET", f"/v1/jobs/{job_id}/attempts/1/logs", params={"follow": "true"}, timeout=60
        )
        async with request as answer:
            assert answer.status_code == 200
            assert answer.headers["content-type"] == "text/plain; charset=utf-8"
            lines = answer.aiter_lines()
            assert await anext(lines) == "begun"
            write(driver, "on and ")
            write(driver, f"on {PASSWORD}\n")
            assert await anext(lines) == "on and on ******"
            write(driver, b"\xff\n" + b"." * 200_000 + b"\n")
            assert await anext(lines) == "\ufffd"
            assert await anext(lines) == "." * 200_000
            write(driver, "the error, unended")
            driver.fail("Broken")
            assert [line async for line in lines] == ["the error, unended"]


async def test_a_client_that_leaves_and_a_server_that_stops_end_the_following(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = await world.running()
    write(world.driver(), "begun\n")
    one_at_a_time = asyncio.Semaphore(1)
    monkeypatch.setattr(world.control_plane.logs, "_followers", one_at_a_time)
    async with listening(world) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
        path = f"/jobs/{job_id}/attempts/1/logs"
        async with http.stream("GET", path, params={"follow": "true"}, timeout=60) as answer:
            assert await anext(answer.aiter_lines()) == "begun"
            assert one_at_a_time.locked()

        async def nobody() -> bool:
            return not one_at_a_time.locked()

        await eventually(nobody, "the client that left is let go of")
        async with http.stream("GET", path, params={"follow": "true"}, timeout=60) as answer:
            texts = answer.aiter_text()
            assert await anext(texts) == "begun\n"
            long_ago_s = time.time() - 60
            write(world.driver(), "on and ")
            os.utime(log_of(world.driver()), (long_ago_s, long_ago_s))
            assert await anext(texts) == "on and "
            world.control_plane._closing = True
            assert [text async for text in texts] == ["\n... This server is stopping. Go on with from=13.\n"]
        world.control_plane._closing = False


async def test_a_token_that_is_taken_away_ends_the_following(sqlite_url: str, tmp_path: Path) -> None:
    names = {hashlib.sha256(TOKEN.encode()).digest(): "alice"}
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with open_world(sqlite_url, tmp_path, tokens=Tokens(names)) as world:
        world.host.run_dir = world.directory
        world.http.headers.update(headers)
        job_id = await world.running()
        write(world.driver(), "begun\n")
        async with (
            listening(world) as port,
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60) as http,
            http.stream("GET", f"/v1/jobs/{job_id}/attempts/1/logs", params={"follow": "true"}) as answer,
        ):
            lines = answer.aiter_lines()
            assert await anext(lines) == "begun"
            names.clear()
            said = "... The token of this request is not valid any more. Go on with from=6."
            assert [line async for line in lines] == [said]


async def test_no_more_clients_follow_than_a_server_can_bear(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.control_plane.logs, "_followers", asyncio.Semaphore(0))
    job_id = await world.running()
    write(world.driver(), "begun\n")
    path = f"/jobs/{job_id}/attempts/1/logs"
    assert "100 clients follow logs" in await refused(world, 503, f"{path}?follow=true")
    assert (await world.http.get(path)).text == "begun\n"


async def test_only_who_may_read_a_job_may_read_its_logs(guarded: World) -> None:  # noqa: F811
    headers = {"Authorization": f"Bearer {TOKEN}"}
    job_id = (await guarded.http.post("/jobs", json=GRAPH, headers=headers)).json()["jobid"]
    for path in ("attempts", "attempts/1/logs", "attempts/1/logs?follow=true"):
        assert (await guarded.http.get(f"/jobs/{job_id}/{path}")).status_code == 401
    assert (await guarded.http.get(f"/jobs/{job_id}/attempts", headers=headers)).status_code == 200


async def test_the_page_of_spark_is_told_with_the_job_and_its_attempts(world: World) -> None:
    world.host.ui_url = "http://127.0.0.1:4040"
    asked = {**GRAPH, "config": {**CONFIG, "spark.ui.enabled": True, "spark.ui.port": 4040}}
    job_id = await world.running(asked)
    assert (await until_described(world, job_id))["sparkUi"] == world.host.ui_url
    assert (await world.get(f"/jobs/{job_id}"))["sparkUi"] == world.host.ui_url
    await world.http.patch(f"/jobs/{job_id}", params={"mode": "cancel"})
    await world.status(job_id, "CANCELED")
    assert (await world.get(f"/jobs/{job_id}"))["sparkUi"] is None


async def test_a_page_that_would_be_open_to_the_network_is_refused(world: World) -> None:
    submission = world.control_plane.submission
    submission._places = replace(submission._places, page_address="10.0.0.5")
    asked = {**GRAPH, "config": {"spark.ui.enabled": "true"}}
    for query in ("", "?dryRun=true"):
        answer = await world.http.post(f"/jobs{query}", json=asked)
        assert answer.status_code == 400
        (sentence,) = answer.json()["errors"]
        assert "drivers of this server listen on 10.0.0.5" in sentence
    assert (await world.http.post("/jobs", json=GRAPH)).status_code == 202
