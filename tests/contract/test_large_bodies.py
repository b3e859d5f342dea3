"""Bodies that are made to be read slowly: whoever else asks is answered meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from typing import Any

import pytest

from app.api.errors import bad_request
from app.api.requests import BODY_LIMIT_BYTES
from app.api.routers import submission
from app.api.routers.submission import FORM_LIMIT_BYTES
from app.model.jobgraph import MAX_PARALLELISM_LIMIT
from tests.contract.live import Answer, answered_meanwhile, exchange, listening
from tests.contract.world import World, bounds, eventually

SIZE = BODY_LIMIT_BYTES - 100
TRIES = 4

JSON = {
    "lists": b"[" + b"[]," * (SIZE // 3) + b"[]]",
    "nested lists": b"[" + (b"[" * 60 + b"]" * 60 + b",") * (SIZE // 121) + b"[]]",
    "objects": b'{"vertices":[' + b"{}," * (SIZE // 3 - 10) + b"{}]}",
    "keys": ("{" + ",".join(f'"{n:x}":1' for n in range(SIZE // 10)) + "}").encode(),
    "a key twice at the end": ("{" + ",".join(f'"{n:x}":1' for n in range(SIZE // 11)) + ',"1":2}').encode(),
    "a long number": b'{"name":' + b"9" * (SIZE - 20) + b"}",
    "a long text": b'{"name":"' + b"a" * (SIZE - 20) + b'"}',
    "escapes": b'{"name":"' + b"\\ud83d\\ude00" * (SIZE // 12 - 10) + b'"}',
}
YAML = {
    "block": b"- 1\n" * (SIZE // 4),
    "flow": b"[" + b"[]," * (SIZE // 3 - 10) + b"[]]",
    "keys": "\n".join(f"k{n:x}: 1" for n in range(SIZE // 11)).encode(),
    "aliases": b"a: &x [" + b"1," * 1900 + b"1]\nb: [" + b"*x," * 99 + b"*x]\n",
    "aliases in aliases": b"a0: &a0 []\n"
    + b"".join(b"a%d: &a%d %s*a%d%s\n" % (n, n, b"[" * 60, n - 1, b"]" * 60) for n in range(1, 30)),
    "anchors": b"[" + b"&a 1," * (SIZE // 5 - 10) + b"1]",
}


def request(method: str, path: str, body: bytes, *headers: str) -> bytes:
    head = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


async def refused(port: int, sent: bytes) -> Answer:
    """The answer, while another client is answered quickly: if not at first, since the machine is busy, then later."""
    for _ in range(TRIES - 1):
        with contextlib.suppress(AssertionError):
            return await answered_meanwhile(port, asyncio.create_task(exchange(port, sent)))
    return await answered_meanwhile(port, asyncio.create_task(exchange(port, sent)))


@pytest.mark.parametrize("kind", JSON)
async def test_json(world: World, kind: str) -> None:
    job_id = await world.running()
    body = JSON[kind]
    async with listening(world) as port:
        for method, path in (
            ("POST", "/jobs"),
            ("PUT", f"/jobs/{job_id}/resource-requirements"),
            ("PUT", f"/jobs/{job_id}/slot-share"),
            ("PUT", f"/jobs/{job_id}/scaling-policy"),
            ("POST", f"/jobs/{job_id}/stop"),
        ):
            answer = await refused(port, request(method, path, body))
            assert answer.status == 400, (path, answer.body[:200])
            assert len(answer.body) < 500_000


@pytest.mark.parametrize("kind", YAML)
async def test_yaml(world: World, kind: str) -> None:
    async with listening(world) as port:
        answer = await refused(port, request("POST", "/jobs", YAML[kind], "Content-Type: application/yaml"))
    assert answer.status == 400
    assert len(answer.body) < 500_000


async def test_reports_of_drivers(world: World) -> None:
    job_id = await world.running()
    spec = world.driver().spec
    path = f"/internal/v1/jobs/{job_id}/attempts/1/reports"
    headers = [f"Authorization: Bearer {spec['secret']}", f"X-Slotwise-Epoch: {spec['epoch']}"]
    size = 15 * 1024 * 1024
    parts = [10**9] * MAX_PARALLELISM_LIMIT
    made = {
        "dataset": "d",
        "run": 1,
        "path": "/r",
        "manifest_sha256": "0",
        "bytes_of": parts,
        "rows_of": parts,
    }
    region = json.dumps({"seq": 0, "at_ms": 1, "type": "region-finished", "results": [made] * 4}).encode()
    report = {"seq": 0, "at_ms": 1, "type": "batch", "stack": "x" * 100}
    async with listening(world) as port:
        for body, status in (
            (b'{"reports": [' + b"[]," * (size // 3) + b"[]]}", 400),
            (b'{"reports": [[' + b"[]," * (size // 3) + b"[]]]}", 400),
            (b'{"reports": [{"seq":1,"vertices":[' + b"{}," * (size // 3) + b"{}]}]}", 400),
            (b'{"reports": [' + json.dumps(report).encode() + b" " * size + b"]}", 200),
            (b'{"reports": [' + b",".join([json.dumps(report).encode(), region, region]) + b"]}", 200),
            (b'{"reports": [' + b",".join([json.dumps(report).encode()] * (size // 170)) + b"]}", 200),
        ):
            answer = await refused(port, request("POST", path, body, *headers))
            assert answer.status == status, (body[:60], answer)


@pytest.mark.parametrize("kind", ["json", "yaml"])
async def test_a_driver_is_answered_while_the_body_of_a_user_is_read(
    world: World, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = await world.running()
    spec = world.driver().spec
    headers = {"Authorization": f"Bearer {spec['secret']}", "X-Slotwise-Epoch": str(spec["epoch"])}
    begun, goes_on = threading.Event(), threading.Event()

    def slow(body: bytes) -> Any:
        begun.set()
        assert goes_on.wait(30)
        raise bad_request("It was read slowly.")

    monkeypatch.setattr(submission, f"decode_{kind}_strict", slow)
    content = b"- 1\n" * 10_000
    user = asyncio.create_task(
        world.http.post("/jobs", content=content, headers={"Content-Type": f"application/{kind}"})
    )
    try:
        assert await asyncio.to_thread(begun.wait, 20)
        path = f"/internal/v1/jobs/{job_id}/attempts/1/reports"
        async with asyncio.timeout(20):
            answer = await world.http.post(path, content=b'{"reports": []}' + b" " * 40_000, headers=headers)
        assert answer.status_code == 200 and not user.done()
    finally:
        goes_on.set()
    assert (await user).status_code == 400


async def test_what_all_bodies_hold_is_bounded_and_given_back(world: World) -> None:
    job_id = await world.running()
    form = "Content-Type: multipart/form-data; boundary=b"
    large = request("POST", "/jobs", b"", form).replace(b"Length: 0", b"Length: %d" % FORM_LIMIT_BYTES)
    empty = request("POST", "/jobs", b"--b--\r\n" + b" " * 2_000_000, form)
    async with listening(world) as port:
        hoarders = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        for _, writer in hoarders:
            writer.write(large + b"--b\r\n")

        async def full() -> bool:
            answer = await exchange(port, empty)
            return answer.status == 503 and answer.headers["retry-after"] == "1"

        # Three of the largest forms and a fourth one that is not small.
        await eventually(full, "no further form is read")
        small = json.dumps(bounds(flights=(1, 4), delays=(1, 4), store=(1, 1))).encode()
        put = request("PUT", f"/jobs/{job_id}/resource-requirements", small)
        assert (await exchange(port, put)).status == 200
        for _, writer in hoarders:
            writer.close()

        async def free() -> bool:
            return (await exchange(port, empty)).status == 400

        await eventually(free, "forms are read again")
