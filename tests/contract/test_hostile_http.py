"""Hostile and clumsy HTTP, over real sockets and in process: refused with a sentence, and the server goes on."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from app.api.requests import BODY_LIMIT_BYTES
from tests.contract.live import Answer, exchange, listening
from tests.contract.world import GRAPH, World, bounds

ZERO = "0" * 32
GOOD = json.dumps(bounds(flights=(1, 4), delays=(1, 4), store=(1, 1))).encode()


def put(job_id: str, body: bytes, *headers: str, length: int | None = None) -> bytes:
    head = [
        f"PUT /jobs/{job_id}/resource-requirements HTTP/1.1",
        "Host: localhost",
        f"Content-Length: {len(body) if length is None else length}",
        *headers,
    ]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


def refusal(answer: Answer, status: int) -> str:
    assert answer.status == status, answer
    (sentence,) = json.loads(answer.body)["errors"]
    return str(sentence)


async def test_too_large_bodies_get_their_answer_and_the_connection_goes_on(world: World) -> None:
    job_id = await world.running()
    large = b" " * (8 * BODY_LIMIT_BYTES)
    chunked = b"".join(b"%x\r\n%s\r\n" % (65536, b" " * 65536) for _ in range(100)) + b"0\r\n\r\n"
    head = put(job_id, b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    async with listening(world) as port:
        for request in (put(job_id, large), head + chunked):
            assert str(BODY_LIMIT_BYTES) in refusal(await exchange(port, request), 413)
        # A body that is never sent is refused by what it announces.
        refusal(await exchange(port, put(job_id, b"", length=10**12)), 413)
        assert (await exchange(port, head + b"%x\r\n%s\r\n0\r\n\r\n" % (len(GOOD), GOOD))).status == 200


async def test_what_is_wrong_about_a_request_itself_is_told_before_its_body_is_read(world: World) -> None:
    job_id = await world.running()
    put_of_it = put(job_id, b"", length=500).replace
    async with listening(world) as port:
        for head, status, count in (
            (put_of_it(b"requirements HTTP", b"requirements?dryRun=x&retry=y HTTP"), 400, 2),
            (put("xyz", b"", "Idempotency-Key: a b", length=500), 400, 2),
            (put(job_id, b"", "X-Slotwise-Reason: " + "x" * 1001, length=500), 400, 1),
            (put(job_id, b"", 'If-Match: "x"', length=500), 412, 1),
            (b"POST /jobs?dryRun=x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500\r\n\r\n", 400, 1),
        ):
            answer = await exchange(port, head)
            assert (answer.status, len(json.loads(answer.body)["errors"])) == (status, count), head


async def test_a_client_that_leaves_in_the_middle_changes_nothing(world: World) -> None:
    job_id = await world.running()
    async with listening(world) as port:
        for sent in (put(job_id, b"", length=500), put(job_id, GOOD[:-5], length=len(GOOD)), b"GET /jo"):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            await writer.drain()
            writer.close()
            await writer.wait_closed()
        assert (await exchange(port, b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")).status == 200
    assert (await world.http.get(f"/jobs/{job_id}/resource-requirements")).headers["etag"] == '"1"'


@pytest.mark.parametrize(
    "target",
    [
        "/jobs/%zz", "/jobs/%", "/jobs/%ff%fe", "/jobs/%00", "/jobs/..%2f..%2fetc%2fpasswd", "/jobs/" + "a" * 5000,
        "/jobs/JOB?%zz", "/jobs/JOB?a=%ff", "/jobs/JOB?=",
        "/jobs?" + "&".join(f"a{n}=1" for n in range(5000)), "/jobs/JOB/vertices/xyz",
        "/jobs/JOB/rescales/history?limit=0", "/jobs/JOB/rescales/history?limit=1e3",
        "/jobs/JOB/rescales/history?limit=99999999999999999999999", "/jobs/JOB/rescales/history?after=-1",
        "/jobs/JOB/rescales/history?cause=nope", "/jobs/JOB/rescales/history?state=completed",
        "/jobs/JOB/rescales/history?limit=%D9%A3", "/jobs/JOB/exceptions?maxExceptions=x",
        "/jobs/JOB/rescales/details/00000000-0000-0000-0000-000000000000", "/jobs/JOB/metrics?get=a&get=b",
    ],
)  # fmt: skip
async def test_bad_targets_are_400_and_name_what_is_wrong(world: World, target: str) -> None:
    target = target.replace("JOB", await world.submit())
    async with listening(world) as port:
        answer = await exchange(port, f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    assert answer.status in (400, 404), answer
    for error in json.loads(answer.body)["errors"]:
        assert len(error) < 400
        assert "Traceback" not in error
    assert answer.status == 400 or "etc" in target or "a" * 99 in target


@pytest.mark.parametrize(
    "path",
    ["/", "/nope", "/v2/overview", "/jobs//", "//jobs", "/v1", "/jobs/nope/nope", "/internal", "/v1/v1/jobs"],
)
async def test_what_is_not_there_is_404(world: World, path: str) -> None:
    answer = await world.http.get(path)
    assert answer.status_code in (400, 404)
    assert answer.json()["errors"]


@pytest.mark.parametrize(
    "path", ["/config", "/overview", "/jobs", "/jobs/overview", "/taskmanagers", "/health/live", "/docs"]
)
async def test_head_is_get_without_the_body(world: World, path: str) -> None:
    async with listening(world) as port:
        get = await exchange(port, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        head = await exchange(port, f"HEAD {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-type"] == get.headers["content-type"]
    assert head.headers["content-length"] == get.headers["content-length"]


async def test_options_and_wrong_methods_tell_what_is_allowed(world: World) -> None:
    for path, methods in {
        "/jobs": "GET, HEAD, OPTIONS, POST",
        f"/jobs/{ZERO}": "DELETE, GET, HEAD, OPTIONS, PATCH",
        f"/jobs/{ZERO}/resource-requirements": "GET, HEAD, OPTIONS, PUT",
        f"/v1/jobs/{ZERO}/stop/": "OPTIONS, POST",
    }.items():
        options = await world.http.options(path)
        assert (options.status_code, options.headers["allow"], options.content) == (204, methods, b"")
        for method in ("TRACE", "DELETE", "PUT", "POST", "PATCH", "BREW"):
            if method not in methods:
                answer = await world.http.request(method, path)
                assert (answer.status_code, answer.headers["allow"]) == (405, methods)
                assert method in answer.json()["errors"][0]


async def test_every_read_refuses_unknown_query_parameters(world: World) -> None:
    job_id = await world.running()
    vertex = await world.vertex(job_id, "delays")
    uuid = (await world.get(f"/jobs/{job_id}/rescales/history"))[0]["rescaleUuid"]
    document = (await world.http.get("/openapi.json")).json()
    values = {
        "jobid": job_id,
        "vertexid": vertex,
        "rescaleuuid": uuid,
        "triggerid": ZERO,
        "taskmanagerid": "host",
        "attempt": "1",
        "batchid": "1",
    }
    count = 0
    for path, methods in document["paths"].items():
        for method in methods:
            answer = await world.http.request(method, path.format(**values), params={"foo": "1"}, json={})
            assert answer.status_code == 400, (method, path, answer.text)
            assert "'foo'" in answer.json()["errors"][0]
            count += 1
    assert count > 30


async def test_a_web_page_of_another_origin_is_refused(world: World) -> None:
    """A browser on this machine reaches loopback: neither its forms nor a rebound host name may do anything."""
    job_id = await world.running()
    for origin in ("http://evil.example", "null", "http://localhost:1"):
        answer = await world.http.post("/jobs", json=GRAPH, headers={"Origin": origin})
        assert answer.status_code == 403, origin
        assert (await world.http.post(f"/jobs/{job_id}/stop", headers={"Origin": origin})).status_code == 403
    for site in ("cross-site", "same-site", "CROSS-SITE", ""):
        answer = await world.http.post(f"/jobs/{job_id}/stop", headers={"Sec-Fetch-Site": site})
        assert answer.status_code == 403, site
    # A link on someone's page may lead here.
    assert (await world.http.get("/docs", headers={"Sec-Fetch-Site": "cross-site"})).status_code == 200
    same = {"Host": "localhost:8081", "Origin": "http://localhost:8081", "Sec-Fetch-Site": "same-origin"}
    assert (await world.http.post("/jobs", json=GRAPH, headers=same)).status_code == 202


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost", 200), ("LOCALHOST:8081", 200), ("127.0.0.1:8081", 200), ("[::1]:8081", 200), ("127.0.0.2", 200),
     ("a.localhost:1", 200), ("localhost.evil.com", 403), ("evillocalhost", 403), ("localhost:evil.example", 403),
     ("localhost:8081.evil.example", 403), ("127.0.0.1.evil.example", 403), ("evil.example:8081", 403),
     ("[::1].evil.example", 403), ("[::1", 403), ("[]", 403), ("[localhost]", 403), ("", 403), ("0.0.0.0", 403),
     ("localhost@evil.example", 403), ("localhost evil.example", 403), ("localhost:123456", 403)],
)  # fmt: skip
async def test_only_names_of_this_machine_are_loopback(world: World, host: str, status: int) -> None:
    assert (await world.http.get("/jobs", headers={"Host": host})).status_code == status


async def test_a_request_has_one_host(world: World) -> None:
    get = b"GET /jobs HTTP/1.1\r\n"
    async with listening(world) as port:
        for hosts in (
            b"",
            b"Host: localhost\r\nHost: localhost\r\n",
            b"Host: evil.example\r\nhost: localhost\r\n",
        ):
            assert "Host" in refusal(await exchange(port, get + hosts + b"\r\n"), 400)
        # HTTP/1.0 knows none.
        assert (await exchange(port, b"GET /jobs HTTP/1.0\r\n\r\n")).status == 200


async def test_a_crash_of_ours_is_500_with_an_error_id_and_no_trace(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def crash(*_: Any) -> None:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(world.control_plane, "jobs", crash)
    answer = await world.http.get("/jobs", headers={"X-Request-Id": "abc-1"})
    assert answer.status_code == 500
    assert answer.headers["x-request-id"] == "abc-1"
    (sentence,) = answer.json()["errors"]
    assert "secret" not in answer.text
    error_id = sentence.rpartition(" ")[2].rstrip(".")
    logged = capsys.readouterr().out
    assert error_id in logged
    assert "secret detail" in logged


async def test_request_ids_are_echoed_only_if_they_are_harmless(world: World) -> None:
    assert (await world.http.get("/jobs", headers={"X-Request-Id": "r-1"})).headers["x-request-id"] == "r-1"
    for bad in ("x" * 129, "with blank", ""):
        assert "x-request-id" not in (await world.http.get("/jobs", headers={"X-Request-Id": bad})).headers


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"", 202), (b"{}", 202), (b'{"drain": true}', 202), (b'{"drain": 1}', 400), (b"[]", 400), (b"null", 400),
     (b'{"triggerId": "xyz"}', 400), (b'{"triggerId": 5}', 400), (b'{"foo": 1}', 400),
     (b'{"drain": true, "drain": true}', 400),
     (b'{"targetDirectory": "/tmp/x"}', 400), (b'{"targetDirectory": null}', 202), (b'{"formatType": "NATIVE"}', 202),
     (b'{"formatType": "XML"}', 400), (b'{"formatType": []}', 400)],
)  # fmt: skip
async def test_bodies_of_stop(world: World, body: bytes, status: int) -> None:
    job_id = await world.running()
    answer = await world.http.post(f"/jobs/{job_id}/stop", content=body)
    assert answer.status_code == status, answer.text
    if status == 400:
        assert (await world.get(f"/jobs/{job_id}/status"))["status"] == "RUNNING"


async def test_stop_with_the_clients_own_trigger_id_is_repeatable(world: World) -> None:
    job_id = await world.running()
    trigger = "AB" * 16
    for _ in range(3):
        answer = await world.http.post(f"/jobs/{job_id}/stop", json={"triggerId": trigger})
        assert answer.json() == {"request-id": trigger.lower()}
    await world.status(job_id, "FINISHED")
    assert (await world.get(f"/jobs/{job_id}/savepoints/{trigger}"))["status"]["id"] == "COMPLETED"
    assert (await world.http.get(f"/jobs/{job_id}/savepoints/{ZERO}")).status_code == 404
    assert (await world.http.post(f"/jobs/{job_id}/stop")).status_code == 409


async def test_ending_and_forgetting(any_world: World) -> None:
    world = any_world
    job_id = await world.running()
    for method, path in (
        ("PATCH", f"/jobs/{ZERO}?mode=cancel"),
        ("DELETE", f"/jobs/{ZERO}"),
        ("POST", f"/jobs/{ZERO}/stop"),
    ):
        assert (await world.http.request(method, path)).status_code == 404
    for target in (f"/jobs/{job_id}?mode=stop", f"/jobs/{job_id}?mode=", f"/jobs/{job_id}"):
        refused = await world.http.patch(target)
        assert refused.status_code == 400 and "mode should be cancel" in refused.json()["errors"][0], target
    assert (await world.http.delete(f"/jobs/{job_id}")).status_code == 409
    await world.http.post(f"/jobs/{job_id}/stop")
    await world.status(job_id, "FINISHED")
    canceled = await world.http.patch(f"/jobs/{job_id}", params={"mode": "cancel"})
    assert canceled.status_code == 409
    assert "FINISHED" in canceled.json()["errors"][0]
    assert (await world.http.delete(f"/jobs/{job_id}")).json() == {}
    assert (await world.http.get(f"/jobs/{job_id}")).status_code == 404
    assert (await world.get("/jobs"))["jobs"] == []


async def test_a_wrong_secret_is_refused_before_anything_of_the_body_is_read(world: World) -> None:
    job_id = await world.running()
    spec = world.driver().spec
    for secret, attempt in (("wrong", 1), (spec["secret"], 2)):
        for path in ("reports", "register"):
            head = (
                f"POST /internal/v1/jobs/{job_id}/attempts/{attempt}/{path} HTTP/1.1\r\nHost: localhost\r\n"
                f"Authorization: Bearer {secret}\r\nX-Slotwise-Epoch: {spec['epoch']}\r\n"
                "Content-Length: 15000000\r\n\r\n"
            ).encode()
            async with listening(world) as port:
                assert (await exchange(port, head)).status == 410, "the body was never sent"


async def test_numbers_of_drivers_are_such_that_can_be_stored(world: World) -> None:
    job_id = await world.running()
    spec = world.driver().spec
    path = f"/internal/v1/jobs/{job_id}/attempts/1/reports"
    good = {"Authorization": f"Bearer {spec['secret']}", "X-Slotwise-Epoch": str(spec["epoch"])}
    for number in (str(2**63), "-" + str(2**63 + 1), "9" * 4000, "NaN", "Infinity", "1e999", "9" * 400_000):
        body = f'{{"reports": [{{"seq": {number}, "at_ms": 1, "type": "batch"}}]}}'
        answer = await world.http.post(path, headers=good, content=body.encode())
        assert answer.status_code == 400, number[:20]
    assert (await world.get(f"/jobs/{job_id}/status"))["status"] == "RUNNING"


async def test_more_reports_than_a_call_may_have_are_taken_by_and_by(world: World) -> None:
    job_id = await world.running()
    spec = world.driver().spec
    path = f"/internal/v1/jobs/{job_id}/attempts/1/reports"
    good = {"Authorization": f"Bearer {spec['secret']}", "X-Slotwise-Epoch": str(spec["epoch"])}
    driver = world.driver()
    async with driver._reporting:
        first = driver._seq + 1
        report = {"at_ms": 1, "type": "batch", "stack": "x" * 1000}
        reports = [{"seq": seq, **report} for seq in range(first, first + 2500)]
        acknowledged = []
        for taken in (0, 1000, 2000):
            answer = await world.http.post(path, headers=good, json={"reports": reports[taken:]})
            acknowledged.append(answer.json()["acknowledged"] - first + 1)
        driver._seq += 2500
    assert acknowledged == [1000, 2000, 2500]


async def test_drivers_are_fenced(world: World) -> None:
    job_id = await world.running()
    spec = world.driver().spec
    base = f"/internal/v1/jobs/{job_id}/attempts"
    good = {"Authorization": f"Bearer {spec['secret']}", "X-Slotwise-Epoch": str(spec["epoch"])}
    assert (await world.http.get(f"{base}/1/orders", headers=good)).status_code == 200
    for attempt, headers in {
        "1": {**good, "Authorization": "Bearer wrong"},
        "2": good,
    }.items():
        for method, path, body in (
            ("GET", "orders", None),
            (
                "POST",
                "register",
                {"pid": 1, "pid_started_at": 0.0, "host": "", "spark_version": "", "spark_app_id": ""},
            ),
            ("POST", "reports", {"reports": []}),
        ):
            answer = await world.http.request(method, f"{base}/{attempt}/{path}", headers=headers, json=body)
            assert (answer.status_code, answer.json()["fenced"]) == (410, True)
            # By which a driver of another server's data directory knows that it is not meant.
            assert answer.json()["home"] == spec["home"] == "that of this world"
    assert (await world.http.get(f"{base}/1/orders")).status_code == 410
    newer = {**good, "X-Slotwise-Epoch": "99"}
    assert (await world.http.get(f"{base}/1/orders", headers=newer)).status_code == 503
    batch = {"seq": 10**6, "at_ms": 1, "type": "batch"}
    wrong = [
        {"at_ms": 1, "type": "batch"}, {**batch, "seq": "1"}, {**batch, "seq": True}, {**batch, "type": "nope"},
        {**batch, "type": "query-failed", "query": 5}, {**batch, "run": "1"}, {**batch, "user_error": 5},
        {**batch, "vertices": 5}, {**batch, "vertices": [5]}, {**batch, "vertices": [{}]}, {**batch, "error": 5},
    ]  # fmt: skip
    bodies = [b"", b"[]", b"{}", b"null", b'{"reports": [1]}', b'{"reports": {}}', b"[" * 10_000]
    for body in bodies + [json.dumps({"reports": [report]}).encode() for report in wrong]:
        answer = await world.http.post(f"{base}/1/reports", headers=good, content=body)
        assert answer.status_code == 400, body[:80]
    for text in ("nonsense", "ab:", "ab:x", "ab:1,", "AB:1", "ab:-1", "ab:1;cd:2"):
        answer = await world.http.get(f"{base}/1/orders", headers=good, params={"restarts": text})
        assert answer.status_code == 400 and "<vertex id>:<number" in answer.json()["errors"][0], text
    known = await world.http.get(f"{base}/1/orders", headers=good, params={"restarts": "ab:1,cd:22"})
    assert (known.status_code, known.json()["restarts"]) == (200, {})
    # A driver may be newer than its server: what is not known is passed over.
    newer_report = {**batch, "seq": 1, "colour": "red"}
    answer = await world.http.post(f"{base}/1/reports", headers=good, json={"reports": [newer_report]})
    assert answer.status_code == 200
