"""Livy's batch calls, for clients such as Airflow's LivyOperator. Each batch is a job with an additional number."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Annotated, ClassVar

from fastapi import APIRouter, Depends, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from app.api.dependencies import Info, Plane, Principal, status_of
from app.api.errors import ApiError, bad_request
from app.api.forwarding import Forwarding
from app.api.held_bytes import claim
from app.api.info import ServerInfo
from app.api.limits import FORM_LIMIT_BYTES
from app.api.openapi import form_schema, refusals, request_body
from app.api.parameters import MAX_NUMBER, IdempotencyKey, WholeNumber
from app.api.plugin import Plugin
from app.api.requests import read_json_object
from app.api.routes import Operation
from app.model.grapherrors import GraphErrors
from app.model.status import JobStatus
from app.plugins.livy import schema
from app.plugins.livy.document import LivyBatch, LivyForm, in_words_of_livy, livy_state, parse_livy_batch
from app.plugins.livy.files import find_files, read_files
from app.plugins.livy.numbers import ADD_NUMBER, job_of_number, number_of_job, page_of_numbers
from app.worker.control_plane import ControlPlane
from app.worker.ownership.unreadable import UnreadableJob
from app.worker.refusals import (
    InDoubt,
    InvalidRequest,
    StateConflict,
    Unavailable,
    UnknownJob,
)
from app.worker.requests.submission_keys import key_of
from app.worker.retrying import reading
from app.worker.views import JobView

_MAX_NUMBER = 2**31 - 1
_PAGE = 100
_MAX_PAGE = 1000
_LAST_LINES = 10
_MAX_DIGITS = 10
"""Longer numbers are not given."""
_JOB_ID = "slotwise.batch_job"
"""Where the scope of a request has the id of the job whose number is in the path, once it is known."""


class BatchOperation(Operation):
    """Where several servers share the jobs, the owner of the batch answers it."""

    async def forwarded(self, request: Request, forwarding: Forwarding) -> Response | None:
        number = request.scope["path_params"].get("batchid")
        if number is None:
            return await super().forwarded(request, forwarding)
        job_id = None
        if number.isdecimal() and len(number) < _MAX_DIGITS:
            with contextlib.suppress(Unavailable):
                store = request.app.state.control_plane.store
                job_id = request.scope[_JOB_ID] = await reading(store.read(job_of_number, int(number)))
        # Of a batch that is not there, nothing is to be shown.
        return None if job_id is None else await forwarding.answer(request, job_id)


router = APIRouter(prefix="/batches", tags=["livy"], route_class=BatchOperation)


class Livy(Plugin):
    routers = (router,)
    tags: ClassVar = {"livy": "Batches as Livy has them, for its clients. Each is a job."}
    forms = (LivyForm,)


Size = Annotated[int, WholeNumber(1, _MAX_PAGE), Query(description="At most so many.")]
Number = Annotated[
    int, WholeNumber(0, _MAX_NUMBER), Path(description="The number of the batch, as POST answered it.")
]


async def _body(request: Request) -> tuple[LivyBatch, dict[str, object]]:
    """The batch, and the document as it was sent."""

    def parsed(document: dict[str, object]) -> tuple[LivyBatch, dict[str, object]]:
        try:
            return parse_livy_batch(document), document
        except GraphErrors as error:
            raise bad_request(*error.errors) from None

    return await read_json_object(request, parsed, what='{"file": "<the path of a Python program>"}')


async def _job_id(request: Request, batchid: Number, plane: Plane) -> str:
    job_id: str | None = request.scope.get(_JOB_ID) or await reading(plane.store.read(job_of_number, batchid))
    if job_id is None:
        raise ApiError(404, f"There is no Livy batch {batchid}.")
    return job_id


BatchJobId = Annotated[str, Depends(_job_id)]
"""The id of the job that has the number in the path."""


async def _job(job_id: BatchJobId, plane: Plane) -> JobView:
    return plane.job(job_id)


BatchJob = Annotated[JobView, Depends(_job)]
_UNKNOWN = refusals({404: "There is no Livy batch 7."})


@router.post(
    "",
    status_code=201,
    responses=refusals(
        {
            400: "file: '/etc/passwd' is not for programs: only files below /srv/jobs are.",
            409: "Idempotency-Key 'nightly-1' was used before for another submission, that of job "
            "0b7c1f6a9d2e4c58a1f03e9b6d7c2a44: the document of this one differs. Use a new key.",
        }
    ),
    openapi_extra=request_body("Which program, and how.", {"application/json": form_schema(LivyForm)}),
)
async def create_batch(
    request: Request,
    response: Response,
    plane: Plane,
    info: Info,
    principal: Principal,
    body: Annotated[tuple[LivyBatch, dict[str, object]], Depends(_body)],
    idempotency_key: IdempotencyKey = None,
) -> schema.LivyBatch:
    """Submit a Python program by its path, as to Livy

    The program and its files are read from the server's host, below its setting `livy_files_dir`. The job is a BATCH
    program with the upper bound numExecutors times executorCores, and runs once. Fields that Slotwise cannot fulfil
    are refused. A repeated request with its Idempotency-Key is answered with the batch of the first one, and submits
    nothing, if the files have not changed.
    """
    batch, document = body
    files = await _read(request, batch, info)
    key = await key_of(principal, idempotency_key, document, files)

    async def submitted() -> str:
        graph = await plane.submission.graph_of(batch.program, files)
        return await plane.submit(graph, files, principal, rows=[ADD_NUMBER], key=key)

    try:
        job_id = await plane.submission.keys.once(key, submitted)
    except InvalidRequest as error:
        raise bad_request(*map(in_words_of_livy, error.errors)) from None
    try:
        number = await reading(plane.store.read(number_of_job, job_id))
        if key is not None and (control_planes := request.app.state.control_planes) is not None:
            # It may be the job of another one.
            await reading(control_planes.look_up(job_id))
    except Unavailable as error:
        kind = InDoubt if key is None else Unavailable
        raise kind(
            f"Job {job_id} was submitted, but its number as a batch cannot be read: {error}"
        ) from error
    if number is None:
        raise ApiError(404, f"Job {job_id} is no Livy batch.")
    response.headers["Location"] = f"/batches/{number}"
    return _batch(number, _unreadable(plane).get(job_id) or plane.job(job_id), info.url)


def _unreadable(plane: ControlPlane) -> dict[str, UnreadableJob]:
    return {job.job_id: job for job in plane.unreadable_jobs()}


def _batch(number: int, job: JobView | UnreadableJob, url: str, log: Sequence[str] = ()) -> schema.LivyBatch:
    """``url``: of this server."""
    if isinstance(job, UnreadableJob):
        name, owner, page = job.summary.name, job.summary.submitted_by, None
    else:
        name, owner, page = job.state.graph.name, job.submitted_by, job.spark_ui
    return schema.LivyBatch(
        id=number,
        name=name,
        owner=owner,
        proxy_user=None,
        state=livy_state(job.status),
        app_id=job.job_id,
        app_info=schema.AppInfo(driver_log_url=f"{url}/jobs/{job.job_id}/attempts", spark_ui_url=page),
        log=list(log),
    )


def _last_words(view: JobView) -> list[str]:
    """What stands behind the log of a job that has failed: clients of Livy read nothing else."""
    if view.status is not JobStatus.FAILED:
        return []
    failures = view.state.recovery.failures
    cause = failures[-1][0].error if failures else getattr(view.state.phase, "cause", None)
    return f"Job {view.job_id} is FAILED: {cause or 'the reason is not known.'}".splitlines()


async def _read(request: Request, batch: LivyBatch, info: ServerInfo) -> dict[str, bytes]:
    settings = info.settings
    found = await asyncio.to_thread(find_files, settings.livy_files_dir, settings.private_paths, batch.files)
    size = sum(each.size for each in found.values())
    if size > FORM_LIMIT_BYTES:
        raise ApiError(
            413, f"The files have {size} bytes together: at most {FORM_LIMIT_BYTES} bytes are allowed."
        )
    claim(request.scope, size)
    return await asyncio.to_thread(read_files, found)


@router.get("")
async def list_batches(
    plane: Plane,
    info: Info,
    first: Annotated[
        int, WholeNumber(0, MAX_NUMBER), Query(alias="from", description="How many to leave out.")
    ] = 0,
    size: Size = _PAGE,
) -> schema.LivyBatchList:
    """The jobs that were submitted as batches, oldest first"""
    total, numbers = await reading(plane.store.read(page_of_numbers, first, size))
    sessions, unreadable = [], _unreadable(plane)
    for job_id, number in numbers.items():
        # It may have been forgotten meanwhile.
        with contextlib.suppress(UnknownJob):
            sessions.append(_batch(number, unreadable.get(job_id) or plane.job(job_id), info.url))
    return schema.LivyBatchList(first=first, total=total, sessions=sessions)


@router.get("/{batchid}", responses=_UNKNOWN)
async def get_batch(
    request: Request, batchid: Number, job: BatchJob, plane: Plane, info: Info
) -> schema.LivyBatch:
    """A batch"""
    log = await plane.logs.lines(job, None, _LAST_LINES, _last_words(job), request.is_disconnected)
    return _batch(batchid, job, info.url, log.lines)


@router.get("/{batchid}/state", responses=_UNKNOWN)
async def get_batch_state(batchid: Number, job_id: BatchJobId, plane: Plane) -> schema.LivyBatchState:
    """The state of a batch, as in Livy"""
    return schema.LivyBatchState(id=batchid, state=livy_state(status_of(plane, job_id)))


@router.get("/{batchid}/log", responses=_UNKNOWN)
async def get_batch_log(
    request: Request,
    batchid: Number,
    job: BatchJob,
    plane: Plane,
    first: Annotated[
        int | None,
        WholeNumber(0, MAX_NUMBER),
        Query(
            alias="from",
            description="The number of the first line, counted from 0; by default the last ones.",
        ),
    ] = None,
    size: Size = _PAGE,
) -> schema.LivyLog:
    """Log lines of the newest attempt, and the reason of a failure"""
    log = await plane.logs.lines(job, first, size, _last_words(job), request.is_disconnected)
    return schema.LivyLog(
        id=batchid, first=log.first, size=len(log.lines), total=log.total, log=list(log.lines)
    )


@router.delete("/{batchid}", responses=_UNKNOWN)
async def delete_batch(job_id: BatchJobId, plane: Plane, principal: Principal) -> schema.Deleted:
    """Cancel the job of a batch at once

    A batch that has ended is not changed. A batch can be read until its job is forgotten.
    """
    # It may have ended by itself.
    with contextlib.suppress(StateConflict):
        await plane.cancel(job_id, requested_by=principal)
    return schema.Deleted(msg="deleted")
