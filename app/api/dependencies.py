"""Dependencies of endpoints: the control plane, the job of the path, the caller, and conditions."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

from fastapi import Depends
from starlette.requests import Request

from app.api.auth import PRINCIPAL
from app.api.errors import bad_request
from app.api.info import ServerInfo
from app.api.parameters import IdempotencyKey, IfMatch, JobId, Reason
from app.model.sentences import shown
from app.model.status import JobStatus
from app.scheduler.adaptive.state import JobState
from app.worker.control_plane import ControlPlane
from app.worker.views import JobView, StaleVersion

_ETAG = re.compile(r'(W/)?"([\x21\x23-\x7e\x80-\xff]*)"\Z')
_VERSION = re.compile(r"[1-9][0-9]{0,14}\Z")


async def _control_plane(request: Request) -> ControlPlane:
    plane: ControlPlane = request.app.state.control_plane
    return plane


async def _info(request: Request) -> ServerInfo:
    info: ServerInfo = request.app.state.info
    return info


async def _now_ms(request: Request) -> int:
    now_ms: int = request.app.state.clock.now_ms()
    return now_ms


async def _principal(request: Request) -> str:
    name: str = request.scope[PRINCIPAL]
    return name


async def job_of_path(request: Request, jobid: JobId) -> JobView:
    view: JobView = request.app.state.control_plane.job(jobid)
    return view


async def _job_now_ms(
    job: Annotated[JobView, Depends(job_of_path)], now_ms: Annotated[int, Depends(_now_ms)]
) -> int:
    return now_ms + job.ahead_ms


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
        request: Request,
        job: Annotated[JobView, Depends(job_of_path)],
        if_match: IfMatch = None,
        idempotency_key: IdempotencyKey = None,
        reason: Reason = None,
    ) -> Declaration:
        version = None if if_match is None else _version(if_match, version_of(job.state), subject)
        return Declaration(
            requested_by=request.scope[PRINCIPAL],
            if_match=version,
            idempotency_key=idempotency_key,
            reason=reason or None,
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


Plane = Annotated[ControlPlane, Depends(_control_plane)]
Info = Annotated[ServerInfo, Depends(_info)]
Now = Annotated[int, Depends(_now_ms)]
"""Epoch milliseconds."""
JobNow = Annotated[int, Depends(_job_now_ms)]
"""Epoch milliseconds, by the time of the job that the path names."""
Principal = Annotated[str, Depends(_principal)]
"""The authenticated name."""
StillAllowed = Annotated[Callable[[], bool], Depends(_still_allowed)]
"""Whether the token of the request is valid at that moment: an answer may go on for days."""
Job = Annotated[JobView, Depends(job_of_path)]
"""The job that the path names."""
