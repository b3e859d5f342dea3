"""Retries: by this process, for one job, until it succeeds; or by the client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from app.store.errors import StoreError
from app.worker.refusals import Unavailable

T = TypeVar("T")

log = structlog.get_logger()

_AFTER_S = 0.5
_AFTER_MAX_S = 30.0


async def until_done(
    work: Callable[[], Awaitable[None]], sentence: str, job_id: str, *, is_over: Callable[[], bool]
) -> None:
    """Try ``work`` after a moment, and again later each time that it fails, which ``sentence`` says in the log."""
    delay_s = _AFTER_S
    while not is_over():
        await asyncio.sleep(delay_s)
        delay_s = min(2 * delay_s, _AFTER_MAX_S)
        try:
            await work()
            return
        except Exception as error:
            # A full disk, or no more file descriptors: whatever it is, it may pass.
            defect = None if isinstance(error, StoreError | OSError) else error
            log.error(sentence, job=job_id, error=str(error), retry_in_s=delay_s, exc_info=defect)


async def reading(work: Awaitable[T]) -> T:
    """What the store answers; that it is away is for the client to know, and to try again."""
    try:
        return await work
    except StoreError as error:
        raise Unavailable(str(error)) from error
