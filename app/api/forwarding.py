"""Requests for jobs of other control planes: forwarded to the owner. Without an owner, reads are answered from
the database.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator

import httpx
import structlog
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse

from app.api.answers import BytesResponse
from app.api.errors import RETRY, error_response
from app.api.limits import BODY_LIMIT_BYTES, FORM_LIMIT_BYTES
from app.api.mark import MARK
from app.api.requests import keep_body, while_connected
from app.model.ids import InvalidId, normalize_id
from app.store.errors import StoreError
from app.store.members import Member
from app.worker.ownership.control_planes import ControlPlanes

log = structlog.get_logger()

FORWARDED = b"x-slotwise-forwarded"
"""Has been sent on once: whoever gets it answers it, since two that take each other for the owner would never end."""

_CONNECT_TIMEOUT_S = 2.0
_ANSWER_TIMEOUT_S = 45.0
"""How long an owner may take that is alive. What a new version of a job is to run in may take longer to build than any
number here: its client waits for as long as it likes."""
_LOOK_EVERY_S = 1.0
_READS = frozenset({"GET", "HEAD"})

# Of the connection and not of the request, or judged already: the origin, by the one that the client called.
_NOT_SENT_ON = {
    b"host", b"origin", b"connection", b"keep-alive", b"transfer-encoding", b"content-length", b"upgrade", b"te",
    b"expect", b"accept-encoding", FORWARDED,
}  # fmt: skip
# Those at the end every server adds to its answers, and so does the one that sends this answer back.
_NOT_SENT_BACK = {
    b"connection", b"keep-alive", b"transfer-encoding", b"content-length", b"x-request-id", b"date",
    MARK.lower().encode(),
}  # fmt: skip


class Forwarding:
    """For one control plane among several. Close it in the end."""

    def __init__(
        self, control_planes: ControlPlanes, *, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self._control_planes = control_planes
        self._http = httpx.AsyncClient(
            # An answer that goes on for as long as its client likes may be silent meanwhile.
            timeout=httpx.Timeout(_ANSWER_TIMEOUT_S, connect=_CONNECT_TIMEOUT_S, read=None, pool=None),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
            trust_env=False,
            transport=transport,
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def answer(self, request: Request, job_id: str | None, *, here: bool = False) -> Response | None:
        """The owner's answer; None if this control plane is to give one. The body can be read again then. ``job_id``:
        of the request, if it is for one job. ``here``: this control plane can answer, whoever owns the job."""
        if job_id is None:
            if request.method in _READS:
                await self._look_up(None)
            return None
        if self._control_planes.serves(job_id):
            return None
        owner = None
        if not here and not any(name == FORWARDED for name, _ in request.scope["headers"]):
            # Before the owner is looked for: a body may take its time, and the job have another owner then.
            await keep_body(request, _body_limit_bytes(request))
            if self._control_planes.serves(job_id):
                return None
            with contextlib.suppress(StoreError):
                owner = await self._control_planes.owner_of(job_id)
        if owner is not None:
            asking = self._ask(request, job_id, owner)
            answer = await (while_connected(request, asking) if _may_build(request) else asking)
            if answer is not None or self._control_planes.serves(job_id):
                return answer
        if await self._look_up(job_id) or self._control_planes.knows(job_id):
            return None
        # It may be there all the same, so it is not for us to say that it is not.
        sentence = (
            f"Whether there is a job {job_id} is not known now: the database cannot be read. Nothing was changed; try "
            "again."
        )
        return error_response(503, [sentence], RETRY)

    async def _look_up(self, job_id: str | None) -> bool:
        """Whether it could be read. What could not is shown as it was, and what was never seen is not in lists."""
        try:
            await self._control_planes.look_up(job_id)
        except StoreError as error:
            log.warning("jobs of other control planes cannot be read", error=str(error))
            return False
        return True

    async def _ask(self, request: Request, job_id: str, owner: Member) -> Response | None:
        """What ``owner`` answers; None if it gives none to a request that changes nothing, or did not get the request
        and has lost the job to this control plane."""
        is_read = request.method in _READS
        try:
            sent = await self._send(request, job_id, owner)
        except (httpx.ConnectError, httpx.ConnectTimeout):
            if is_read or self._control_planes.serves(job_id):
                return None
            sentence = (
                f"The control plane that owns job {job_id} cannot be reached. Nothing was changed; try again."
            )
            return error_response(503, [sentence], RETRY)
        except httpx.HTTPError:
            sent = None
        if sent is not None:
            return sent
        if is_read:
            return None
        sentence = (
            f"The control plane that owned job {job_id} gave no answer. Whether the request was carried out is not "
            "known: read the job again, or repeat the request with its Idempotency-Key."
        )
        return error_response(503, [sentence], RETRY)

    async def _send(self, request: Request, job_id: str, owner: Member) -> Response | None:
        """One request to the owner, for as long as it is the owner: one that is stopped answers nobody."""
        headers = [(name, value) for name, value in request.scope["headers"] if name not in _NOT_SENT_ON]
        path = request.scope.get("raw_path") or request.scope["path"].encode()
        query = request.scope["query_string"]
        url = httpx.URL(owner.url).copy_with(raw_path=path + (b"?" + query if query else b""))
        content = await request.body()
        sent = self._http.build_request(
            request.method,
            url,
            content=content if content or request.method not in _READS else None,
            headers=[*headers, (FORWARDED, b"1")],
        )
        waiting = asyncio.create_task(self._exchange(sent))
        limit_s = math.inf if _may_build(request) else _ANSWER_TIMEOUT_S
        until_s = asyncio.get_running_loop().time() + limit_s
        try:
            while True:
                done, _ = await asyncio.wait({waiting}, timeout=_LOOK_EVERY_S)
                if done:
                    return waiting.result()
                if asyncio.get_running_loop().time() > until_s:
                    raise httpx.ReadTimeout("The owner gives no answer.")
                with contextlib.suppress(StoreError):
                    if await self._control_planes.owner_of(job_id) != owner:
                        return None
        finally:
            waiting.cancel()

    async def _exchange(self, request: httpx.Request) -> Response:
        """The answer: whole, or if it has no length of its own, as it comes."""
        answer = await self._http.send(request, stream=True)
        if answer.status_code == 200 and "content-length" not in answer.headers and request.method != "HEAD":
            response = StreamingResponse(_passed_on(answer), answer.status_code)
            response.raw_headers = _headers_back(answer)
            return response
        try:
            await answer.aread()
        finally:
            await answer.aclose()
        return _sent_back(answer)


def job_of_path(request: Request) -> str | None:
    """The job that the path names; None if it names none, or nothing that could be one."""
    text = request.scope["path_params"].get("jobid")
    with contextlib.suppress(InvalidId):
        return None if text is None else normalize_id(text)
    return None


def _may_build(request: Request) -> bool:
    """Whether the owner may build an environment before it answers: that of a job graph."""
    return request.method == "PUT" and request.scope["path"].endswith("/graph")


def _body_limit_bytes(request: Request) -> int:
    kinds = [value for name, value in request.scope["headers"] if name == b"content-type"]
    is_form = any(kind.strip().lower().startswith(b"multipart/form-data") for kind in kinds)
    return FORM_LIMIT_BYTES if is_form else BODY_LIMIT_BYTES


def _sent_back(answer: httpx.Response) -> Response:
    content_type = answer.headers.get("content-type", "").encode("latin-1")
    response = BytesResponse(answer.content, answer.status_code, content_type=content_type)
    response.raw_headers += [each for each in _headers_back(answer) if each[0] != b"content-type"]
    return response


def _headers_back(answer: httpx.Response) -> list[tuple[bytes, bytes]]:
    return [(name.lower(), value) for name, value in answer.headers.raw if name.lower() not in _NOT_SENT_BACK]


async def _passed_on(answer: httpx.Response) -> AsyncIterator[bytes]:
    """Breaks off where the owner does, so that the client does not take it for the end."""
    try:
        async for part in answer.aiter_raw():
            yield part
    except httpx.HTTPError as error:
        raise ClientDisconnect from error
    finally:
        await answer.aclose()
