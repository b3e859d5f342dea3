"""Dependencies of endpoints: the control plane, the job of the path, the caller, and conditions."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Final, TypedDict

from fastapi import Depends
from starlette.requests import Request
from starlette.responses import Response

from app.api.auth import PRINCIPAL
from app.api.errors import bad_request
from app.api.info import ServerInfo
from app.api.parameters import IdempotencyKey, IfMatch, JobId, Reason
from app.model.sentences import shown
from app.model.status import JobStatus
from app.scheduler.adaptive.state import JobState
from app.worker.control_plane import ControlPlane
from app.worker.refusals import StaleVersion
from app.worker.views import JobView

_ETAG = re.compile(r'(W/)?"([\x21\x23-\x7e\x80-\xff]*)"\Z')
_VERSION = re.compile(r"[1-9][0-9]{0,14}\Z")


def _of(read: Callable[[Request], Any]) -> Any:
    """The dependency that gives what ``read`` finds in a request."""

    async def found(request: Request) -> Any:
        return read(request)

    return Depends(found)


Plane = Annotated[ControlPlane, _of(lambda request: request.app.state.control_plane)]
Info = Annotated[ServerInfo, _of(lambda request: request.app.state.info)]
Now = Annotated[int, _of(lambda request: request.app.state.control_plane.clock.now_ms())]
"""Epoch milliseconds."""
Principal = Annotated[str, _of(lambda request: request.scope[PRINCIPAL])]
"""The authenticated name."""


async def job_of_path(plane: Plane, jobid: JobId) -> JobView:
    return plane.job(jobid)


Job = Annotated[JobView, Depends(job_of_path)]
"""The job that the path names."""


async def _job_now_ms(job: Job, now_ms: Now) -> int:
    return now_ms + job.ahead_ms


JobNow = Annotated[int, Depends(_job_now_ms)]
"""Epoch milliseconds, by the time of the job that the path names."""


class Declaration(TypedDict):
    """What goes with a request that declares something: who makes it and why, for which version it is meant, and what
    makes a repeated request the same one."""

    requested_by: str
    if_match: int | None
    idempotency_key: str | None
    reason: str | None


def declaration(version_of: Callable[[JobState], int], subject: str) -> Any:
    """The dependency that gives a `Declaration`. ``version_of``: of what is declared, the version in force;
    ``subject`` begins a sentence: `The share is`."""

    async def declared(
        principal: Principal,
        job: Job,
        if_match: IfMatch = None,
        idempotency_key: IdempotencyKey = None,
        reason: Reason = None,
    ) -> Declaration:
        version = None if if_match is None else _version(if_match, version_of(job.state), subject)
        return Declaration(
            requested_by=principal, if_match=version, idempotency_key=idempotency_key, reason=reason or None
        )

    return Depends(declared)


def _version(if_match: str, current: int, subject: str) -> int | None:
    """None for any version.

    Raises:
        StaleVersion: it is an entity tag that can never be the current one.
    """
    if if_match == "*":
        return None
    match = _ETAG.match(if_match)
    if match is None:
        raise bad_request(
            f'The header If-Match should be one entity tag as GET answers it, such as "{current}", found'
            f" {shown(if_match)}."
        )
    if match[1] or not _VERSION.match(match[2]):
        raise StaleVersion(f"{subject} at version {current}, not at {shown(if_match)} as If-Match demands.")
    return int(match[2])


async def _still_allowed(request: Request) -> Callable[[], bool]:
    tokens, headers = request.app.state.tokens, request.scope["headers"]
    return lambda: tokens is None or tokens.authenticate(headers) is not None


def status_of(plane: ControlPlane, job_id: str) -> JobStatus:
    """The status of a job, which stands beside what of it may not be readable."""
    known = {job.job_id: job.status for job in plane.unreadable_jobs()}
    return known.get(job_id) or plane.job(job_id).status


def etag(version: int) -> str:
    return f'"{version}"'


_WARNING: Final = "X-Slotwise-Warning"
WARNING: Final = {_WARNING: "A sentence, if the lower bounds need more slots than there are now."}


def warn_of_slots(response: Response, plane: ControlPlane, job_id: str) -> None:
    """Give the answer the header of `WARNING`, where it applies."""
    if (warning := plane.short_of_slots(job_id)) is not None:
        response.headers[_WARNING] = warning


StillAllowed = Annotated[Callable[[], bool], Depends(_still_allowed)]
"""Whether the token of the request is valid at that moment: an answer may go on for days."""
