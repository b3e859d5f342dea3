"""How long everybody else waits while one client is hostile.

    python benchmarks/hostile_requests.py [--repetitions 3] [--descriptors 256]

A server with tokens and four slots has one job that waits for slots. Each row is a hostile input: a job document whose
settings are hard on regular expressions, bodies that are hard on parsers, heads without an end, connections that say
nothing, uploads side by side. Meanwhile a process of its own asks `GET /health/live` again and again, each
time on a new connection. The table has the slowest answer to the hostile client, the median and the slowest answer to
the other one, how often that one was not answered, and what the hostile client was answered. The server has few file
descriptors (``--descriptors``), so that hoarded connections count. Exits with 1 if anybody else waited for a second.
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import json
import multiprocessing
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks._servers import server
from benchmarks._waiting_jobs import GRAPH

TOKEN = "a-token-of-the-benchmark"
LIMIT_MS = 1000.0
_TIMEOUT_S = 120.0
_MIB = 1024 * 1024
_HOARDED_CONNECTIONS = 300
_UPLOADS = 12
_UPLOAD_MIB = 31
_SETTING_CHARS = 32_000
_SETTINGS_CHARS = 240_000
"""Of one setting, and of all: a little less than is allowed, so that the jobs are taken."""
# Each is repeated until a setting is full: the signs that patterns for secrets start with, go on with, and wait for.
TEXTS = {
    "letters": "a",
    "pairs without end": "a=",
    "names before a sign": "password",
    "schemes": "a://",
    "users without host": "a://b:c",
    "open braces": "x={",
    "open quotation marks": "x='",
    "dots": "a.b-",
    "blanks": "x ",
    "java options": "-Da=b ",
}
_NO_JOB = "/jobs/00000000000000000000000000000000"


@dataclass
class Answers:
    """What the hostile client was answered."""

    statuses: Counter[str] = field(default_factory=Counter)
    slowest_ms: float = 0.0

    def note(self, status: object, began: float) -> None:
        self.statuses[str(status)] += 1
        self.slowest_ms = max(self.slowest_ms, (time.perf_counter() - began) * 1000)


class Hostile:
    """A client that sends what it likes."""

    def __init__(self, url: str, job_id: str) -> None:
        parts = urlsplit(url)
        self.address = (str(parts.hostname), int(parts.port or 0))
        self.job_id = job_id
        self.answers = Answers()

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> bytes:
        connection = http.client.HTTPConnection(*self.address, timeout=_TIMEOUT_S)
        began = time.perf_counter()
        status: object
        content = b""
        try:
            sent = {"Authorization": f"Bearer {TOKEN}", **headers}
            connection.request(
                method, path, body, {name.replace("_", "-"): value for name, value in sent.items()}
            )
            answer = connection.getresponse()
            content, status = answer.read(), answer.status
        except TimeoutError:
            status = "no answer"
        except (OSError, http.client.HTTPException):
            # An answer that comes before the body is read may be lost when the server closes the connection.
            status = "closed"
        finally:
            connection.close()
        self.answers.note(status, began)
        return content

    def raw(self, *pieces: bytes) -> None:
        """Send what is no whole request, and take what comes."""
        began = time.perf_counter()
        status: object = "closed"
        with socket.create_connection(self.address, timeout=_TIMEOUT_S) as connection:
            try:
                for piece in pieces:
                    connection.sendall(piece)
                first = connection.recv(4096).split(b" ", 2)
                status = first[1].decode() if len(first) > 1 else "closed"
            except TimeoutError:
                status = "no answer"
            except OSError:
                pass
        self.answers.note(status, began)


def settings_job(hostile: Hostile, text: str, settings: int) -> None:
    """A job whose settings are as full of ``text`` as they may be, and all answers that show them."""
    room = min(_SETTING_CHARS, _SETTINGS_CHARS // settings)
    value = (text * (room // len(text) + 1))[:room]
    config = {f"spark.hostile.s{number}": value for number in range(settings)}
    if text.startswith("-D"):
        config = {"spark.executor.extraJavaOptions": value}
    document = {**GRAPH, "name": "hostile", "config": {**GRAPH["config"], **config}}
    answer = hostile.ask("POST", "/jobs", json.dumps(document).encode(), Content_Type="application/json")
    job_id = json.loads(answer).get("jobid") if answer else None
    if job_id is None:
        return
    for path in ("graph", "config", "exceptions", "explanation", "jobmanager/config"):
        hostile.ask("GET", f"/jobs/{job_id}/{path}")
    hostile.ask("PATCH", f"/jobs/{job_id}?mode=cancel")


def bodies() -> Iterator[tuple[str, bytes]]:
    """Bodies of the greatest size that are hard on a parser."""
    size = _MIB - 1000
    yield "nested arrays", b"[" * size
    yield "nested objects", b'{"a":' * (size // 5)
    yield "equal keys", b"{" + b'"a":1,' * (size // 6) + b'"a":1}'
    yield "different keys", json.dumps({f"k{number}": number for number in range(size // 18)}).encode()
    yield "a long number", b'{"name": ' + b"9" * size + b"}"
    yield "many long numbers", b"[" + b",".join([b"9" * 4000] * (size // 4001)) + b"]"
    yield "escapes", b'{"name": "' + b"\\u0041" * (size // 6) + b'"}'
    vertices = [{"name": f"v{n}", "inputs": [f"v{n}"], "sql": "SELECT"} for n in range(size // 60)]
    yield "many vertices", json.dumps({"name": "x", "vertices": vertices}).encode()
    sql = {**GRAPH, "vertices": [{"name": "a", "sql": "SELECT ('" * (size // 9)}]}
    yield "SQL without end", json.dumps(sql).encode()


def yaml_bodies() -> Iterator[tuple[str, bytes]]:
    size = _MIB - 1000
    yield (
        "aliases of aliases",
        b"a0: &a0 [x]\n"
        + b"".join(b"a%d: &a%d [%s]\n" % (n, n, b",".join([b"*a%d" % (n - 1)] * 9)) for n in range(1, 30)),
    )
    yield "nested YAML", b"[" * size
    yield "many keys", b"".join(b"k%d: 1\n" % number for number in range(size // 12))
    yield "a long text", b"name: " + b"a " * (size // 2)


def parsers(hostile: Hostile) -> None:
    for _name, body in bodies():
        hostile.ask("POST", "/jobs", body, Content_Type="application/json")
        hostile.ask(
            "PUT", f"/jobs/{hostile.job_id}/resource-requirements", body, Content_Type="application/json"
        )
        hostile.ask("PUT", f"/jobs/{hostile.job_id}/slot-share", body, Content_Type="application/json")
    for _name, body in yaml_bodies():
        hostile.ask("POST", "/jobs", body, Content_Type="application/yaml")


def reports(hostile: Hostile) -> None:
    """Reports of a driver with a secret that is not the attempt's."""
    report = {"kind": "batch", "batch_id": 1, "vertices": [{"vertex_id": "0" * 32, "parallelism": 1}] * 50}
    body = json.dumps({"reports": [report] * 4300}).encode()[: 15 * _MIB]
    path = f"/internal/v1/jobs/{hostile.job_id}/attempts/1/reports"
    hostile.ask("POST", path, body, Authorization="Bearer wrong", X_Slotwise_Epoch="1")


def endless_head(hostile: Hostile) -> None:
    hostile.raw(b"GET /jobs HTTP/1.1\r\nHost: localhost\r\nX-Long: ", *[b"a" * _MIB] * 64, b"\r\n\r\n")
    hostile.raw(b"GET /" + b"a" * (8 * _MIB) + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
    hostile.raw(b"GET /jobs HTTP/1.1\r\nHost: localhost\r\n", *[b"X-Many: 1\r\n" * 10_000] * 64, b"\r\n")


def silent_connections(hostile: Hostile) -> None:
    """More connections than the server has descriptors, each at another point of a request."""
    starts = (
        b"",
        b"GET",
        b"GET /jobs HTTP/1.1\r\nHost: ",
        b"POST /jobs HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{",
    )
    opened = []
    began = time.perf_counter()
    try:
        for number in range(_HOARDED_CONNECTIONS):
            one = socket.create_connection(hostile.address, timeout=5)
            opened.append(one)
            one.sendall(starts[number % len(starts)])
        hostile.answers.note(f"{len(opened)} open", began)
        time.sleep(5)
    except OSError:
        hostile.answers.note(f"{len(opened)} open", began)
    finally:
        for one in opened:
            one.close()


def uploads(hostile: Hostile) -> None:
    """Forms of the greatest size, all at once."""
    content = b"x" * (_UPLOAD_MIB * _MIB)
    head = (
        b'--b\r\nContent-Disposition: form-data; name="graph"\r\n\r\n{}\r\n--b\r\n'
        b'Content-Disposition: form-data; name="files"; filename="a.py"\r\n\r\n'
    )
    form = head + content + b"\r\n--b--\r\n"

    def upload() -> None:
        hostile.ask("POST", "/jobs", form, Content_Type="multipart/form-data; boundary=b")

    threads = [threading.Thread(target=upload) for _ in range(_UPLOADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def probe(url: str, ready: Any, stop: Any, results: Any) -> None:
    """Ask whether the server lives, until told to stop; how long each answer took, in ms, and how many failed."""
    parts = urlsplit(url)
    took: list[float] = []
    failed = 0
    while not stop.is_set():
        began = time.perf_counter()
        connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=_TIMEOUT_S)
        try:
            connection.request("GET", "/health/live")
            failed += connection.getresponse().status != 200
        except (OSError, http.client.HTTPException):
            failed += 1
        finally:
            connection.close()
        took.append((time.perf_counter() - began) * 1000)
        ready.set()
        time.sleep(0.005)
    results.put((took, failed))


def measure(name: str, url: str, job_id: str, act: Callable[[Hostile], None]) -> bool:
    """Carry ``act`` out beside the probe and print its row; whether everybody was answered in time."""
    context = multiprocessing.get_context("spawn")
    ready, stop, results = context.Event(), context.Event(), context.Queue()
    process = context.Process(target=probe, args=(url, ready, stop, results))
    process.start()
    if not ready.wait(_TIMEOUT_S):
        raise TimeoutError("the process that asks beside did not start")
    hostile = Hostile(url, job_id)
    try:
        act(hostile)
    finally:
        stop.set()
    took, failed = results.get(timeout=_TIMEOUT_S + 10)
    process.join()
    answers = hostile.answers
    statuses = ", ".join(f"{status} x{count}" for status, count in sorted(answers.statuses.items()))
    fast = failed == 0 and max(took) < LIMIT_MS
    print(
        f"{name:28} {answers.slowest_ms:9.0f} {statistics.median(took):8.1f} {max(took):9.0f} {failed:7}"
        f"  {'yes' if fast else 'NO':4} {statuses}",
        flush=True,
    )
    return fast


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=1, help="how often each input is sent")
    parser.add_argument("--descriptors", type=int, default=256, help="file descriptors of the server")
    parser.add_argument("--only", default="", metavar="TEXT", help="only inputs with TEXT in their names")
    options = parser.parse_args()
    acts: list[tuple[str, Callable[[Hostile], None]]] = [
        (
            f"{settings} x {name}",
            lambda hostile, text=text, settings=settings: settings_job(hostile, text, settings),
        )
        for name, text in TEXTS.items()
        for settings in (1, 8, 400)
    ]
    acts += [
        ("bodies hard to parse", parsers),
        ("reports, wrong secret", reports),
        ("heads without end", endless_head),
        ("silent connections", silent_connections),
        ("uploads side by side", uploads),
    ]
    limit = ("prlimit", f"--nofile={options.descriptors}:{options.descriptors}")
    with tempfile.TemporaryDirectory(prefix="slotwise-hostile-") as directory:
        tokens = Path(directory) / "tokens"
        hashed = hashlib.sha256(TOKEN.encode()).hexdigest()
        tokens.write_text(f"benchmark:sha256:{hashed}\n", encoding="utf-8")
        tokens.chmod(0o600)
        settings = {"warm_drivers": "0", "appcds": "false", "token_file": str(tokens)}
        with server(slots=4, run_by=limit, **settings) as running:
            running.http.headers["Authorization"] = f"Bearer {TOKEN}"
            submitted = running.http.post("/jobs", json=GRAPH)
            submitted.raise_for_status()
            job_id = submitted.json()["jobid"]
            print(
                f"{'hostile input':28} {'its worst':>9} {'others':>8} {'slowest':>9} {'failed':>7}  <1 s  answers"
            )
            print(f"{'':28} {'ms':>9} {'p50 ms':>8} {'ms':>9}")
            fast = [
                measure(name, running.url, job_id, act)
                for name, act in acts
                for _ in range(options.repetitions)
            ]
            memory = subprocess.run(
                ["ps", "-o", "rss=", "-p", str(running.process.pid)], capture_output=True, text=True
            ).stdout
            print(f"memory of the server afterwards: {int(memory) // 1024} MiB")
    return 0 if all(fast) else 1


if __name__ == "__main__":
    sys.exit(main())
