"""A scrape: its formats, and what it may cost the server, its database and other clients."""

from __future__ import annotations

import asyncio
import dataclasses
import gzip
import types
from collections.abc import AsyncIterator
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

from app.plugins.prometheus import exposition
from app.plugins.prometheus.exposition import Exposition
from app.plugins.prometheus.meters import Meters
from app.store.errors import StoreUnavailable
from tests.contract.scraping import loaded, scrape, value
from tests.contract.world import World


@pytest.fixture(autouse=True)
def no_answer_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposition, "KEPT_S", 0.0)


@pytest.mark.parametrize(
    "accept",
    [
        "", "text/plain", "application/openmetrics-text", "application/openmetrics-text; version=1.0.0",
        "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1",
        "text/plain; version=nope", "application/openmetrics-text; version=\u00e9.\u00e9",
        "application/openmetrics-text;;==;",
        "text/plain; version=1.0.0; escaping=allow-utf-8", "application/json",
    ],
)  # fmt: skip
async def test_the_format_is_the_one_that_is_asked_for(world: World, accept: str) -> None:
    await world.running()
    answer = await world.http.get("/metrics", headers={"Accept": accept.encode()})
    assert answer.status_code == 200
    kind = answer.headers["content-type"]
    if accept.startswith("application/openmetrics-text") and ("version" not in accept or "1.0.0" in accept):
        assert kind.startswith("application/openmetrics-text")
        assert any(metric.name == "slotwise_job_running" for metric in parse_openmetrics(answer.text))
    elif not kind.startswith("application/openmetrics-text"):
        assert kind.startswith("text/plain")
        assert any(metric.name == "slotwise_job_running" for metric in parse(answer.text))


async def test_a_scrape_asks_the_database_for_nothing_and_works_without_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await loaded(world)
    world.host.hold()

    async def away(*_args: Any, **_options: Any) -> Any:
        raise StoreUnavailable("The database is away.")

    monkeypatch.setattr(world.store, "read", away)
    monkeypatch.setattr(world.store, "write", away)
    assert value(await scrape(world.http), "slotwise_jobs") == 1


async def test_scrapes_at_once_are_made_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.running()
    monkeypatch.setattr(exposition, "KEPT_S", 60.0)
    answers = await asyncio.gather(*(world.http.get("/metrics") for _ in range(20)))
    assert len({answer.text for answer in answers}) == 1
    told = {metric.name: metric for metric in parse(answers[0].text)}
    assert value(told, "slotwise_http_requests_total", route="/metrics") is None


async def test_there_are_two_formats_and_one_answer_of_each(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever versions clients ask for, and whether they want it compressed."""
    monkeypatch.setattr(exposition, "KEPT_S", 60.0)
    made, compressed = [], []

    async def parts(*_args: Any) -> AsyncIterator[bytes]:
        made.append(1)
        yield b"text"

    def compress(text: bytes, _level: int) -> bytes:
        compressed.append(text)
        return gzip.compress(text)

    monkeypatch.setattr(Exposition, "_parts", parts)
    monkeypatch.setattr(exposition, "gzip", types.SimpleNamespace(compress=compress))
    kinds = set()
    for number in range(20):
        for media in ("application/openmetrics-text", "text/plain"):
            answer = await world.http.get(
                "/metrics",
                headers={
                    "Accept": f"{media}; version=1.0.{number}",
                    "Accept-Encoding": ("gzip", "")[number % 2],
                },
            )
            assert answer.text == "text"
            kinds.add(answer.headers["content-type"])
    assert len(made) == len(compressed) == len(kinds) == 2


async def test_a_slow_reader_is_given_pieces(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"x" * 300_000

    async def parts(*_args: Any) -> AsyncIterator[bytes]:
        yield text

    monkeypatch.setattr(Exposition, "_parts", parts)
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request"}

    scope = {"type": "http", "method": "GET", "path": "/metrics", "query_string": b"", "root_path": ""}
    headers = [(b"host", b"localhost")]
    await world.app({**scope, "headers": headers, "app": world.app}, receive, send)
    start, *pieces = sent
    assert dict(start["headers"])[b"content-length"] == b"300000"
    assert b"".join(piece["body"] for piece in pieces) == text
    assert max(len(piece["body"]) for piece in pieces) <= 65_536


async def test_many_jobs_are_told_of_with_pauses(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those beyond the bounds, of which there are sums only."""
    job_id = await world.running()
    view = world.control_plane.job(job_id)
    census = dataclasses.replace(world.control_plane.census(), views=[view] * 200)
    told = Exposition(Meters(), lambda: census, lambda: 0, jobs_max=100, version="0")
    turns, over = 0, False

    async def others() -> None:
        nonlocal turns
        while not over:
            turns += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(exposition, "VERTICES_PER_JOB", 0)
    waiting = asyncio.create_task(others())
    await told._metrics(0)
    over = True
    await waiting
    assert turns >= 200 / exposition._JOBS_AT_ONCE
