"""The attempts of a job, and the logs of their drivers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from app.api.answers import BytesResponse
from app.api.dependencies import Job, Plane, StillAllowed
from app.api.errors import bad_request
from app.api.openapi import answered
from app.api.parameters import MAX_NUMBER, Boolean, WholeNumber
from app.api.requests import while_connected
from app.api.routes import Operation
from app.api.schema import runs as schema
from app.api.schema.base import made_of
from app.worker.refusals import ControlPlaneError
from app.worker.requests.driver_logs import AttemptView
from app.worker.requests.log_parts import LogPart

LOG_LIMIT_BYTES = 1 << 20
MAX_LOG_LIMIT_BYTES = 2 << 20
_TEXT = "text/plain; charset=utf-8"
_NOT_ALLOWED = "The token of this request is not valid any more."
_NO_SNIFFING = {"X-Content-Type-Options": "nosniff"}
_HEADERS = {
    "X-Slotwise-Next": "The `from` with which to go on. Not with follow=true.",
    "X-Slotwise-Complete": "true if the attempt is over and its log ends here, else false. Not with follow=true.",
    "X-Slotwise-Size": "The bytes of the whole log. Not with follow=true.",
}

router = APIRouter(prefix="/jobs/{jobid}/attempts", tags=["jobs"], route_class=Operation)

AttemptNumber = Annotated[
    int,
    WholeNumber(1, MAX_NUMBER),
    Path(description="The number of the attempt, as the list of attempts has it."),
]


@router.get("")
async def list_attempts(job: Job, plane: Plane) -> schema.Attempts:
    """The attempts of a job, newest first

    The newest ten are kept, and the attempt that runs.
    """
    return schema.Attempts(attempts=[_attempt(view) for view in await plane.logs.attempts(job.job_id)])


def _attempt(view: AttemptView) -> schema.Attempt:
    row = view.row
    return made_of(
        schema.Attempt,
        row,
        parallelism=None if row.parallelism is None else dict(row.parallelism),
        log=schema.AttemptLog(
            available=view.log_bytes is not None,
            size_in_bytes=view.log_bytes or 0,
            cut_in_bytes=view.log_cut_bytes,
        ),
    )


@router.get(
    "/{attempt}/logs",
    response_model=None,
    responses=answered(
        headers=_HEADERS,
        refused={
            410: "The log of attempt 3 of job 0123456789abcdef0123456789abcdef is not there: it was removed.",
            416: "The query parameter from should be at most 1200, where the log ends now, found 5000.",
            503: "16 clients read logs at this server already: try again.",
        },
    ),
)
async def read_attempt_log(
    request: Request,
    job: Job,
    plane: Plane,
    is_allowed: StillAllowed,
    attempt: AttemptNumber,
    start: Annotated[
        int,
        WholeNumber(0, MAX_NUMBER),
        Query(alias="from", description="The first byte, counted from 0 for the begin of the attempt's log."),
    ] = 0,
    limit: Annotated[
        int | None,
        WholeNumber(1, MAX_LOG_LIMIT_BYTES),
        Query(description=f"The most bytes of the answer; default {LOG_LIMIT_BYTES}."),
    ] = None,
    follow: Annotated[
        Boolean, Query(description="Continue with later lines, until the attempt is over.")
    ] = False,
    executor: Annotated[
        int | None,
        WholeNumber(0, MAX_NUMBER),
        Query(description="Of this executor of a Spark standalone cluster, in place of the driver."),
    ] = None,
    output: Annotated[
        Literal["stderr", "stdout"], Query(description="Which output of the executor.")
    ] = "stderr",
) -> Response:
    """The log of the driver or of an executor of an attempt, as plain text without secrets

    Whole lines, if there are any within the limit. X-Slotwise-Next has the `from` of the next request, and
    X-Slotwise-Complete says whether the attempt is over and this is the end of its log.
    """
    if wrong := _wrongly_together(executor, output, follow=follow, limit=limit):
        raise bad_request(f"The query parameter {wrong}.")
    if not follow:
        most = limit or LOG_LIMIT_BYTES
        if executor is None:
            part = await plane.logs.read(job, attempt, start, most, request.is_disconnected)
        else:
            reading = plane.executor_logs.read(job, attempt, executor, output, start, most)
            part = await while_connected(request, reading)
        return BytesResponse(
            part.text.encode(),
            content_type=_TEXT.encode(),
            headers={
                "X-Slotwise-Next": str(part.next),
                "X-Slotwise-Complete": str(part.is_complete).lower(),
                "X-Slotwise-Size": str(part.size),
                **_NO_SNIFFING,
            },
        )
    parts = plane.logs.follow(lambda: plane.job(job.job_id), attempt, start)
    # What is wrong is found with the first part, while it can still be answered.
    first = await anext(parts)
    if request.method == "HEAD":
        await parts.aclose()
        return Response(media_type=_TEXT, headers=_NO_SNIFFING)
    return StreamingResponse(_texts(first, parts, is_allowed), media_type=_TEXT, headers=_NO_SNIFFING)


def _wrongly_together(executor: int | None, output: str, *, follow: bool, limit: int | None) -> str | None:
    if executor is None and output != "stderr":
        return "output should be given with executor only: a driver has one log"
    if executor is not None and follow:
        return "follow should not be true with executor: ask again from X-Slotwise-Next on"
    if follow and limit is not None:
        return "limit should not be given with follow=true, which has no end of its own"
    return None


async def _texts(
    first: LogPart, parts: AsyncGenerator[LogPart], is_allowed: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """Later errors are a line of the answer, because its status has been sent."""
    following, last, why = first.next, first.text, ""
    try:
        yield first.text.encode()
        async for part in parts:
            if not is_allowed():
                why = _NOT_ALLOWED
                break
            following = part.next
            if part.text:
                last = part.text
                yield part.text.encode()
    except ControlPlaneError as error:
        why = str(error)
    finally:
        await parts.aclose()
    if why:
        begin = "\n" if last and not last.endswith("\n") else ""
        yield f"{begin}... {why} Go on with from={following}.\n".encode()
