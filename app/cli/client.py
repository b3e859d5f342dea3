"""A thin client of the REST API: JSON in, JSON out, refusals as `Refused` with the server's own sentences."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import socket
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NoReturn
from urllib.parse import urlsplit

import httpx

from app.cli.errors import CliError, NoServer, Refused, Stranger, UsageError, is_away
from app.cli.output import warn
from app.cli.strangers import ADVICE, is_stranger, no_http, no_tls, stranger
from app.cli.tokens import read_token
from app.model.status import TERMINAL_STATUSES

DEFAULT_SERVER = "http://127.0.0.1:8081"
ANSWER_TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 5.0
UNAVAILABLE_PATIENCE_S = 10.0
_AWAY_PAUSE_S = 0.5
_LAST_TRY_S = 0.1
MAX_TRIES = 5

Json = Any
Purpose = Literal["look", "change", "delete"]
Headers = Mapping[str, str]
Files = list[tuple[str, tuple[str, bytes, str]]]

PREFIX_MIN_DIGITS = 4
"""Fewer digits of an id would too often be a name that was mistyped."""

_HEX = re.compile(rf"[0-9a-f]{{{PREFIX_MIN_DIGITS},32}}\Z")


class Client:
    """One server, one token. Close it in the end."""

    def __init__(
        self,
        server: str | None = None,
        token_file: Path | None = None,
        *,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        named = os.environ.get("SLOTWISE_SERVER") or DEFAULT_SERVER
        # An empty --server is refused: another server than was meant might be the default one.
        self.server = (named if server is None else server).rstrip("/")
        try:
            parts = urlsplit(self.server)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:  # a port that is no number, or brackets that do not match
            usable = False
        if not usable:
            raise UsageError(
                f"{self.server!r} is not the address of a server: write it like {DEFAULT_SERVER}."
            )
        self._away_patience_s = 0.0
        self._away_until_s = math.inf
        self._stream: Any = None
        headers = {"Accept": "application/json"}
        token = read_token(token_file)
        if token:
            headers["Authorization"] = f"Bearer {token}"
        # A proxy from the environment cannot reach this machine's loopback.
        loopback = parts.hostname in ("127.0.0.1", "localhost", "::1")
        try:
            self._http = httpx.Client(
                base_url=self.server, headers=headers, trust_env=not loopback, transport=transport
            )
        except httpx.InvalidURL as error:
            raise UsageError(f"{self.server!r} is not the address of a server: {error}.") from None

    def close(self) -> None:
        self._http.close()

    @contextlib.contextmanager
    def outlasting(self, patience_s: float, until_s: float = math.inf) -> Iterator[None]:
        """In this block a GET is repeated for ``patience_s`` while there is no server that can answer it, but not after
        ``until_s``, by the monotonic clock."""
        self._away_patience_s, self._away_until_s = patience_s, until_s
        try:
            yield
        finally:
            self._away_patience_s, self._away_until_s = 0.0, math.inf

    def get(self, path: str, params: Mapping[str, str | int] | None = None) -> Json:
        return self.request("GET", path, params=dict(params or {}))[0]

    def get_text(self, path: str, params: Mapping[str, str | int]) -> tuple[str, httpx.Headers]:
        """An answer that is plain text, and its headers; raises like `request`."""
        response = self._answered("GET", path, params=dict(params))
        return response.text, response.headers

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str | int] | None = None,
        body: Json = None,
        headers: Headers | None = None,
        files: Files | None = None,
        patience_s: float | None = None,
    ) -> tuple[Json, httpx.Headers]:
        """The decoded answer and its headers. ``patience_s``: for how long a 503 is asked again, if not as usual.

        A 503 is asked again for a while (a job's owner may be changing), but a POST only if the answer asks for that
        with Retry-After: it may have been carried out. For longer, and where nothing listens, see `outlasting`.

        Raises:
            Refused: any answer of 400 and above. NoServer: nothing listens there.
        """
        content = None if body is None else json.dumps(body, allow_nan=False)
        # Text such as a reason may be in any language: headers are sent as UTF-8.
        sent = {name: value.encode() for name, value in (headers or {}).items()}
        if content is not None:
            sent["Content-Type"] = b"application/json"
        response = self._answered(
            method,
            path,
            patience_s=patience_s,
            params=params,
            content=content,
            headers=sent,
            files=files,
        )
        return _decoded(response), response.headers

    def _answered(self, method: str, path: str, **request: Any) -> httpx.Response:
        """An answer below 400."""
        began_s, is_told = time.monotonic(), False
        while True:
            try:
                response = self._asked(method, path, **request)
                if is_told and response.status_code != 503:
                    warn("Waiting on: the server answers again.")
                if response.status_code >= 400:
                    _decoded(response)
                return response
            except CliError as error:
                end_s = min(began_s + self._away_patience_s, self._away_until_s)
                if method != "GET" or time.monotonic() >= end_s or not is_away(error):
                    raise
                if not is_told:
                    nobody = isinstance(error, NoServer | Stranger)
                    why = f"The server at {self.server} does not answer." if nobody else str(error)
                    for_s = f" for up to {end_s - time.monotonic():.0f} s" if end_s < math.inf else ""
                    warn(f"Waiting on: {why} The server is asked again{for_s}.")
                is_told = True
                time.sleep(min(_AWAY_PAUSE_S, max(0.0, end_s - time.monotonic())))

    def _asked(
        self,
        method: str,
        path: str,
        *,
        patience_s: float | None = None,
        **request: Any,
    ) -> httpx.Response:
        patience_s = UNAVAILABLE_PATIENCE_S if patience_s is None else patience_s
        deadline = min(time.monotonic() + patience_s, self._away_until_s)
        while True:
            response = self._send(method, path, **request)
            again = response.status_code == 503 and (method != "POST" or "Retry-After" in response.headers)
            if not again or time.monotonic() >= deadline:
                if is_stranger(response):
                    raise stranger(self.server, response)
                return response
            time.sleep(min(_retry_after_s(response), max(0.0, deadline - time.monotonic())))

    def declare(
        self,
        path: str,
        changed: Callable[[Json], Json],
        *,
        reason: str | None = None,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[bool, int | None, Headers]:
        """PUT what ``changed`` makes of what is declared at ``path``, under its ETag, again when another was faster:
        whether that was a change, the version in force, and the headers of the answer."""
        for attempt in range(1, MAX_TRIES + 1):
            current, found = self.request("GET", path)
            before = found.get("ETag")
            # A PUT that is repeated because its answer was lost is answered as the first one.
            sent = {**(headers or {}), **new_key(), **({} if before is None else {"If-Match": before})}
            if reason:
                sent["X-Slotwise-Reason"] = reason
            try:
                _, answer = self.request("PUT", path, params=params, body=changed(current), headers=sent)
            except Refused as refused:
                if refused.status != 412 or attempt == MAX_TRIES:
                    raise
                time.sleep(0.05 * attempt)
                continue
            after = answer.get("ETag")
            return before is None or after != before, _version(after), answer
        raise AssertionError("unreachable")

    def _send(self, method: str, path: str, **request: Any) -> httpx.Response:
        left_s = max(_LAST_TRY_S, self._away_until_s - time.monotonic())
        timeout = httpx.Timeout(
            ANSWER_TIMEOUT_S, connect=min(CONNECT_TIMEOUT_S, left_s), read=min(ANSWER_TIMEOUT_S, left_s)
        )
        try:
            return self._http.request(method, path, timeout=timeout, **request)
        except httpx.RequestError as error:
            raise self._unanswered(error, timeout) from None

    def lines(self, path: str, params: Mapping[str, str], headers: Headers | None = None) -> Iterator[str]:
        """The lines of a stream of events, as they come.

        Raises:
            CliError: as from `request`; or the stream broke off.
        """
        timeout = httpx.Timeout(ANSWER_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
        sent = {"Accept": "text/event-stream", **(headers or {})}
        try:
            with self._http.stream("GET", path, params=params, headers=sent, timeout=timeout) as response:
                self._stream = response.extensions.get("network_stream")
                if not response.headers.get("Content-Type", "").startswith("text/event-stream"):
                    response.read()
                    if is_stranger(response):
                        raise stranger(self.server, response)
                    _decoded(response)
                yield from lines_of(response.iter_text())
        except httpx.RequestError as error:
            raise self._unanswered(error, timeout) from None

    def end_lines(self) -> None:
        """End the stream of events that another thread reads, which is told that it broke off."""
        if self._stream is not None:
            # The socket may be closed already.
            with contextlib.suppress(OSError):
                self._stream.get_extra_info("socket").shutdown(socket.SHUT_RDWR)

    def _unanswered(self, error: httpx.RequestError, timeout: httpx.Timeout) -> CliError:
        """Why there is no answer, and what to do."""
        if isinstance(error, httpx.ConnectTimeout):
            return NoServer(
                f"The server at {self.server} could not be reached within {timeout.connect:.3g} s."
            )
        if isinstance(error, httpx.TimeoutException):
            return NoServer(
                f"The server at {self.server} did not answer within {timeout.read:.3g} s. If it is not a Slotwise "
                f"server: {ADVICE[0].lower()}{ADVICE[1:]}"
            )
        if isinstance(error, httpx.ConnectError):
            if "refused" in str(error):
                return NoServer(f"No Slotwise server at {self.server}; start one with: slotwise serve")
            detail = str(error).rstrip(".") or "no connection could be made"
            told = no_tls(self.server, detail) or f"The server {self.server} cannot be reached: {detail}."
            return NoServer(told)
        return no_http(self.server, error)

    def find_job(self, text: str, purpose: Purpose = "look") -> str:
        """The id that ``text`` means: an id, the one job of this name, or the unique start of an id.

        When several jobs had the name, the one that has not ended is meant. If all have ended, those who look are
        shown the newest, and are told so.
        """
        lowered = text.lower()
        if len(lowered) == 32 and _HEX.match(lowered):
            return lowered
        jobs = self.jobs()
        named = [job for job in jobs if job["name"] == text]
        live = [job for job in named if job["state"] not in TERMINAL_STATUSES]
        for candidates in (live, named):
            if len(candidates) == 1:
                return str(candidates[0]["jid"])
        if named:
            return _newest_ended(text, named, purpose) if not live else _ambiguous(text, live)
        prefixed = [job for job in jobs if str(job["jid"]).startswith(lowered)] if _HEX.match(lowered) else []
        if len(prefixed) == 1:
            return str(prefixed[0]["jid"])
        if prefixed:
            raise CliError(f"Several job ids start with {text!r}: {_ids(prefixed)}.")
        if len(text) < PREFIX_MIN_DIGITS:
            raise CliError(
                f"No job has the name {text!r} (of an id at least {PREFIX_MIN_DIGITS} digits are needed); "
                "see: slotwise jobs"
            )
        raise CliError(f"No job has the name {text!r} or an id that starts with it; see: slotwise jobs")

    def vertices_named(self, job_id: str, names: Iterable[str]) -> dict[str, str]:
        """The id of each vertex that is named by its id, or by a name that no other vertex of the job has.

        Raises:
            CliError: with every name that is not of one vertex.
        """
        ids: dict[str, list[str]] = {}
        for vertex in self.get(f"/jobs/{job_id}")["vertices"]:
            ids.setdefault(vertex["name"], []).append(vertex["id"])
        known = {vertex_id for own in ids.values() for vertex_id in own}
        found, errors = {}, []
        for name in names:
            own = [name] if name in known else ids.get(name, [])
            if len(own) == 1:
                found[name] = own[0]
            elif own:
                errors.append(
                    f"{name!r} is the name of several vertices; give one of the ids {', '.join(own)}."
                )
            else:
                errors.append(f"{name!r} is not a vertex of the job; its vertices are {', '.join(ids)}.")
        if errors:
            raise CliError(*errors)
        return found

    def jobs(self) -> list[dict[str, Any]]:
        """All jobs, as the overview has them."""
        answer = self.get("/jobs/overview")
        jobs = answer.get("jobs") if isinstance(answer, dict) else None
        if not isinstance(jobs, list):
            raise CliError(f"{self.server} answers, but not as a Slotwise server does.")
        return jobs


def new_key() -> dict[str, str]:
    """The header by which a server knows a request again that it may have carried out already."""
    return {"Idempotency-Key": uuid.uuid4().hex}


def lines_of(texts: Iterable[str]) -> Iterator[str]:
    """The lines of a stream that comes in pieces; one that was cut off at its end is none.

    Only a newline ends a line. `str.splitlines` also splits at U+2028 and others, which stand in JSON as they are.
    """
    rest = ""
    for text in texts:
        *whole, rest = (rest + text).split("\n")
        yield from whole


def _version(etag: str | None) -> int | None:
    digits = (etag or "").strip('W/"')
    return int(digits) if digits.isdigit() else None


def _ambiguous(name: str, jobs: list[dict[str, Any]]) -> NoReturn:
    raise CliError(f"Several jobs are called {name!r}; name one by its id: {_ids(jobs)}.")


def _newest_ended(name: str, jobs: list[dict[str, Any]], purpose: Purpose) -> str:
    """Of several jobs that have ended."""
    if purpose == "delete":
        _ambiguous(name, jobs)
    newest = max(jobs, key=lambda job: job["start-time"])
    count = f"All {len(jobs)} jobs that are called {name!r} have ended"
    told = f"{newest['jid']} ({newest['state']})"
    if purpose == "change":
        raise CliError(f"{count}; the newest is {told}.")
    warn(f"{count}. This is the newest, {told}; the others are named by their ids.")
    return str(newest["jid"])


def _ids(jobs: list[dict[str, Any]]) -> str:
    return ", ".join(f"{job['jid']} ({job['state']})" for job in jobs[:8]) + (" ..." if len(jobs) > 8 else "")


def _retry_after_s(response: httpx.Response) -> float:
    try:
        return min(max(float(response.headers.get("Retry-After", "1")), 0.1), 5.0)
    except ValueError:
        return 1.0


def _decoded(response: httpx.Response) -> Json:
    try:
        answer = response.json() if response.content else {}
    except ValueError:
        answer = None
    if response.status_code < 400 and answer is not None:
        return answer
    errors = answer.get("errors") if isinstance(answer, dict) else None
    sentences = [str(error) for error in errors] if isinstance(errors, list) and errors else []
    if not sentences:
        where = f"{response.request.method} {response.request.url}"
        if response.status_code < 400:
            sentences = [f"{where} did not answer with JSON: is it a Slotwise server?"]
        else:
            sentences = [f"{where} answered {response.status_code} {response.reason_phrase}."]
    if response.status_code == 401:
        sentences.append("Set SLOTWISE_TOKEN or give --token-file.")
    raise Refused(response.status_code, *sentences)
