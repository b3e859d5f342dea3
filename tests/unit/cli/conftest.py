"""A small in-process server that speaks enough of the REST contract for the command line, over real HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from app.api.mark import API_VERSION, MARK
from app.cli import events, main
from app.model.ids import vertex_id

JOB_ID = "0123456789abcdef0123456789abcdef"
OTHER_ID = "0199999999999999999999999999999f"
VERTICES = ("flights", "delays", "store")

Answer = tuple[int, Any] | tuple[int, Any, dict[str, str]]


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class FakeServer:
    """Answers by ``routes``: (method, path) -> a function of the request. Every request is kept.

    What is answered is bytes as they are, a generator of them for a stream that goes on, or else sent as JSON.
    """

    routes: dict[tuple[str, str], Callable[[Request], Answer]] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    url: str = ""

    def on(self, method: str, path: str, *answers: Answer) -> None:
        """Give these answers one after another, the last one for ever."""
        left = list(answers)
        self.routes[method, path] = lambda _: left.pop(0) if len(left) > 1 else left[0]

    def sent(self, method: str, path: str) -> list[Request]:
        return [request for request in self.requests if (request.method, request.path) == (method, path)]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    server = FakeServer()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            parts = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = Request(self.command, parts.path, dict(parse_qsl(parts.query)), headers, body)
            server.requests.append(request)
            route = server.routes.get((self.command, parts.path))
            missing = (404, {"errors": [f"{self.command} {parts.path} is not faked."]})
            answer = route(request) if route else missing
            told = answer[1]
            pieces = iter(told) if isinstance(told, Generator) else None
            content = told if isinstance(told, bytes) else b"" if pieces else json.dumps(told).encode()
            self.send_response(answer[0])
            self.send_header(MARK, API_VERSION)
            for name, value in (answer[2] if len(answer) > 2 else {}).items():
                self.send_header(name, value)
            if pieces is None:
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            for piece in pieces or ():
                self.wfile.write(piece)

        do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = _answer

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    server.url = f"http://127.0.0.1:{http.server_port}"
    monkeypatch.setenv("SLOTWISE_SERVER", server.url)
    monkeypatch.delenv("SLOTWISE_TOKEN", raising=False)
    monkeypatch.setattr(events, "POLL_S", 0.01)
    with_jobs(server)
    try:
        yield server
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


def with_jobs(server: FakeServer) -> None:
    """Two jobs; the running one has the vertices `VERTICES` with bounds 1 to 2."""
    overview = [
        {"jid": JOB_ID, "name": "delays", "state": "RUNNING", "start-time": 1, "duration": 1500},
        {"jid": OTHER_ID, "name": "other", "state": "FINISHED", "start-time": 2, "duration": 90_000},
    ]
    server.on("GET", "/jobs/overview", (200, {"jobs": overview}))
    server.on("GET", f"/jobs/{JOB_ID}", (200, details()))
    server.on("GET", f"/jobs/{JOB_ID}/status", (200, {"status": "RUNNING"}))
    server.on("GET", f"/jobs/{JOB_ID}/resource-requirements", (200, bounds(), {"ETag": '"1"'}))
    server.on("GET", f"/jobs/{JOB_ID}/rescales/history", (200, [record()]))
    server.on("GET", f"/jobs/{JOB_ID}/metrics", (200, [{"id": "lastCheckpointDuration", "value": "-1"}]))


@pytest.fixture
def batch(fake: FakeServer) -> FakeServer:
    """The fake's job as one of type BATCH: the source is done, the next vertex runs, the sink is not decided."""
    running = details()
    none: dict[str, Any] = {"read-bytes": 0, "read-bytes-complete": False}
    none |= {"write-bytes": 0, "write-bytes-complete": False}
    done = {**none, "write-bytes": 12_345_678, "write-bytes-complete": True}
    reads = {**none, "read-bytes": 999, "read-bytes-complete": True}
    no_tasks = {"RUNNING": 0}
    changes: tuple[dict[str, Any], ...] = (
        {"status": "FINISHED", "metrics": done, "duration": 61_000, "progress": progress(None, 100, 0)},
        {"status": "RUNNING", "metrics": reads, "duration": 1500, "progress": progress(12, 30, 8100)},
        {"status": "CREATED", "metrics": none, "duration": -1, "parallelism": -1, "tasks": no_tasks},
    )
    vertices = [
        {"progress": None, **vertex, **change}
        for vertex, change in zip(running["vertices"], changes, strict=True)
    ]
    fake.on("GET", f"/jobs/{JOB_ID}", (200, {**running, "job-type": "BATCH", "vertices": vertices}))
    told = {vertex["id"]: {"lowerBound": 1, "upperBound": 2} for vertex in vertices}
    explanation = {"sentences": [], "violations": [], "vertices": told}
    fake.on("GET", f"/jobs/{JOB_ID}/explanation", (200, explanation))
    return fake


def progress(tasks_done: int | None, percent: int, rest_ms: int) -> dict[str, Any]:
    known = None if tasks_done is None else 40
    return {
        "tasksDone": tasks_done,
        "tasksKnown": known,
        "percent": percent,
        "estimatedRestInMillis": rest_ms,
    }


def details(state: str = "RUNNING") -> dict[str, Any]:
    return {
        "jid": JOB_ID,
        "name": "delays",
        "state": state,
        "start-time": 1_795_204_804_384,
        "end-time": -1,
        "timestamps": {"RUNNING": 1_795_204_805_801},
        "attempt": 1,
        "underWay": state == "RUNNING",
        "lastFailure": None,
        "vertices": [
            {
                "id": vertex_id("delays", name),
                "name": name,
                "parallelism": 1,
                "maxParallelism": 8,
                "status": state,
                "tasks": {"RUNNING": 1},
            }
            for name in VERTICES
        ],
    }


def bounds(**upper: int) -> dict[str, Any]:
    return {
        vertex_id("delays", name): {"parallelism": {"lowerBound": 1, "upperBound": upper.get(name, 2)}}
        for name in VERTICES
    }


def explained(*queued: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """What commands read of the explanation. ``queued``: bounds that wait for their deadline."""
    supply = {"total": 4, "idle": 0, "outOfSight": False, "why": []}
    told = {"status": "RUNNING", "supply": supply, "vertices": {}, "rollback": None, "cancelableRescales": []}
    told["schedulerState"] = "Executing"
    return {**told, "queued": list(queued), **changes}


def record(**changes: Any) -> dict[str, Any]:
    """A completed rescale of `delays` from 1 to 4."""
    vertex = {"jobVertexName": "delays", "preRescaleParallelism": 1, "postRescaleParallelism": 4}
    return {
        "number": 1,
        "rescaleUuid": "a" * 32,
        "vertices": {vertex_id("delays", "delays"): vertex},
        "startTimestampInMillis": 1_795_204_804_651,
        "endTimestampInMillis": 1_795_204_805_251,
        "terminalState": "COMPLETED",
        "triggerCause": "UPDATE_REQUIREMENT",
        "terminatedReason": "SUCCEEDED",
        "requestedBy": "ops",
        "reason": "more flights",
        "rung": "in-place",
        "outputGapInMillis": 12,
        "parallelismInWords": "delays 1->4",
        **changes,
    }


@dataclass(frozen=True)
class Outcome:
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def slotwise(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run the command line as a user does: arguments in; exit status, stdout and stderr out."""

    def run(*arguments: str) -> Outcome:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        captured = capsys.readouterr()
        return Outcome(int(ended.value.code or 0), captured.out, captured.err)

    return run
