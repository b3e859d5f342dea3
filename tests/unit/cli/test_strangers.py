"""The address of something that is not a Slotwise server: a sentence on what it is, and one on what to do."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.contract.shapes import sample

Run = Callable[..., Any]


@contextlib.contextmanager
def listening(answer: bytes | None) -> Iterator[str]:
    """The host and port of something that answers every connection with these bytes; None: it says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.05)
        over = threading.Event()

        def serve() -> None:
            kept = []
            while not over.is_set():
                with contextlib.suppress(TimeoutError):
                    connection, _ = listener.accept()
                    kept.append(connection)
                    if answer is not None:
                        connection.recv(65536)
                        connection.sendall(answer)
                        connection.close()
            for each in kept:
                each.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            over.set()
            thread.join()


def http(status: str, body: str, **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body.encode())}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", body]).encode()


JSON = "application/json; charset=UTF-8"
TRACE = "<Exception on server side:\njava.lang.Exception\n" + "\tat org.apache.flink.X(X.java:1)\n" * 90 + ">"
FLINKS_JOBS = http("200 OK", json.dumps(sample("006")["body"]), Content_Type=JSON)
FLINKS_ERROR = http(
    "500 Internal Server Error",
    json.dumps({"errors": ["Internal server error.", TRACE]}),
    Content_Type=JSON,
)
PAGE = "<html>\n<head><title>404 Not Found</title></head>\n<body>\n<h1>404 Not Found</h1></body></html>"


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (FLINKS_JOBS, '200 OK, application/json; charset=UTF-8. The answer begins with: {"jobs"'),
        (
            FLINKS_ERROR,
            "500 Internal Server Error, application/json; charset=UTF-8. The answer begins with: {",
        ),
        (
            http("404 Not Found", PAGE, Content_Type="text/html", Server="nginx/1.22.1"),
            "404 Not Found, text/html, from nginx/1.22.1. The answer begins with: 404 Not Found\n",
        ),
        (
            http("301 Moved Permanently", "", Location="https://there/"),
            "301 Moved Permanently, go to https://there/, no content type, and nothing else.",
        ),
        (http("200 OK", "\x1b]0;owned\x07", Content_Type="text/plain"), "begins with: ?]0;owned?"),
        (
            http("503 Service Unavailable", "away", Retry_After="0"),
            "503 Service Unavailable, no content type. The answer begins with: away",
        ),
    ],
    ids=["flink", "flink's trace", "nginx", "redirect", "controls", "proxy"],
)
@pytest.mark.parametrize("command", [("jobs",), ("show", "delays"), ("cancel", "0" * 32)])
def test_what_answers_in_http_is_named(
    slotwise: Run, monkeypatch: pytest.MonkeyPatch, answer: bytes, told: str, command: tuple[str, ...]
) -> None:
    monkeypatch.setattr("app.cli.client.UNAVAILABLE_PATIENCE_S", 0.1)
    with listening(answer) as place:
        outcome = slotwise(*command, "--server", f"http://{place}")
    assert (outcome.status, outcome.out) == (1, "")
    assert outcome.err.startswith(f"What answers at http://{place} is not a Slotwise server: ")
    assert told in outcome.err
    advice = outcome.err.splitlines()[1:]
    flink = " It may be Flink's JobManager, which has the same port and paths." * ("json" in told)
    assert advice == [f"Name the right server with --server or SLOTWISE_SERVER.{flink}"]
    assert "\x1b" not in outcome.err


@pytest.mark.parametrize(
    ("answer", "scheme", "told"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "http", "does not speak HTTP (illegal"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "http", "does not speak HTTP"),
        (b"", "http", "closed the connection without an answer. If it speaks TLS, write https://"),
        (http("400 Bad Request", ""), "https", "does not speak TLS"),
    ],
    ids=["ssh", "tls", "closes", "plain"],
)
def test_what_does_not_answer_in_http_is_told(slotwise: Run, answer: bytes, scheme: str, told: str) -> None:
    with listening(answer) as place:
        outcome = slotwise("jobs", "--server", f"{scheme}://{place}")
    assert (outcome.status, outcome.out) == (1, "")
    (line,) = outcome.err.splitlines()
    assert line.startswith(f"What listens at {scheme}://{place} ")
    assert told in line
    other = {"http": "https", "https": "http"}[scheme]
    assert f"{other}://{place}" in line


def test_what_says_nothing_is_told(slotwise: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.cli.client.ANSWER_TIMEOUT_S", 0.2)
    with listening(None) as place:
        outcome = slotwise("jobs", "--server", f"http://{place}")
    assert outcome.status == 1
    assert "did not answer within" in outcome.err
    assert "name the right server with --server or SLOTWISE_SERVER." in outcome.err
