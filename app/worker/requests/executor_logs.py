"""What executors on a cluster have written, as the cluster tells it, without the secrets of their job."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final

from cachetools import LRUCache

from app.cluster.ports import (
    ExecutorCluster,
    ExecutorLog,
    ExecutorLogAway,
    ExecutorLogElsewhere,
    NoApplication,
    NoExecutorLog,
)
from app.model.status import AttemptState
from app.store.store import Store
from app.store.writes import Attempt
from app.worker.refusals import LogGone, StateConflict, Unavailable
from app.worker.requests.driver_logs import attempt_in, secrets_of_job
from app.worker.requests.log_parts import LINE_PATIENCE_S, LogPart, Window, around_bytes, part_of
from app.worker.retrying import reading
from app.worker.views import JobView

_REPLACED: Final = "\ufffd"
_NO_CHARACTER: Final = b"\xff"
_LOGS_KEPT: Final = 1_000
_READERS_MAX: Final = 4
"""Each asks all the workers."""
_WITHIN_S: Final = 20.0
"""A client of the command line waits for 30 s."""


class ExecutorLogs:
    """Those of the newest attempt of each job: who ran an older one, the cluster does not tell."""

    def __init__(self, store: Store, cluster: ExecutorCluster | None) -> None:
        self._store, self._cluster = store, cluster
        self._readers = asyncio.Semaphore(_READERS_MAX)
        # How long each log was when it was last read, and since when it has been so long.
        self._lengths: LRUCache[tuple[str, int, str], tuple[int, float]] = LRUCache(_LOGS_KEPT)

    async def read(
        self, job: JobView, number: int, executor: int, output: str, offset: int, limit: int
    ) -> LogPart:
        """At most ``limit`` bytes from ``offset``, whole lines if there are any."""
        rows = await reading(self._store.attempts(job.job_id))
        row = attempt_in(rows, job.job_id, number)
        if self._cluster is None:
            raise StateConflict(
                "Jobs of this server have no executors: their tasks run in the driver, whose log has what they print."
            )
        if (newest := rows[-1].attempt) != number:
            raise LogGone(
                f"Logs of executors can be had of the newest attempt only, which is {newest}, found {number}."
            )
        if self._readers.locked():
            raise Unavailable(
                f"{_READERS_MAX} clients read logs of executors at this server already: try again."
            )
        known = secrets_of_job(job)
        around = around_bytes(known)
        begin = max(0, offset - around)
        span = begin, offset - begin + limit + around
        try:
            async with self._readers, asyncio.timeout(_WITHIN_S):
                found = await self._found(job.job_id, rows, executor, output, *span)
        except TimeoutError as error:
            raise Unavailable(
                f"The cluster did not give the log of executor {executor} within {_WITHIN_S:.0f} s: this server has to "
                "reach the pages of all workers. Try again."
            ) from error
        is_over = row.state is AttemptState.DEAD
        is_growing = not is_over and self._has_grown((job.job_id, executor, output), found.length)

        def cut() -> LogPart:
            window = Window(_bytes_of(found), found.begin, found.length, is_over, is_growing)
            return part_of(window, offset, limit, known)

        return await asyncio.to_thread(cut)

    def _has_grown(self, log: tuple[str, int, str], length: int) -> bool:
        """Whether a log of ``length`` has grown lately, as far as is known here."""
        now_s = time.monotonic()
        known, since_s = self._lengths.get(log, (-1, now_s))
        self._lengths[log] = length, since_s if known == length else now_s
        return now_s - self._lengths[log][1] < LINE_PATIENCE_S

    async def _found(
        self, job_id: str, rows: Sequence[Attempt], executor: int, output: str, begin: int, size: int
    ) -> ExecutorLog:
        assert self._cluster is not None
        newest = rows[-1]
        before = max((each.attempt for each in rows if each.driver_id != newest.driver_id), default=0)
        attempts = range(before + 1, newest.attempt + 1)
        try:
            return await self._cluster.executor_log(job_id, attempts, executor, output, begin, size)
        except NoExecutorLog as error:
            # A driver that has started tells the master of itself soon; one that is over never will.
            is_early = isinstance(error, NoApplication) and newest.state is not AttemptState.DEAD
            may_come = is_early or isinstance(error, ExecutorLogAway)
            if isinstance(error, ExecutorLogElsewhere):
                raise StateConflict(str(error)) from error
            raise (Unavailable if may_come else LogGone)(str(error)) from error


def _bytes_of(found: ExecutorLog) -> bytes:
    """The bytes that were ``found`` as text, in which the cluster has replaced what is no character by U+FFFD: where
    the text begins or ends within a character, else wherever that is."""
    text, size = found.text, found.end - found.begin
    leading = len(text) - len(text.lstrip(_REPLACED))
    for begin in range(min(leading, 3) + 1):
        for end in (len(text), len(text.removesuffix(_REPLACED))):
            inner = text[begin:end].encode()
            if 0 <= (cut := size - begin - len(inner)) <= 3 * (len(text) - end):
                return _NO_CHARACTER * begin + inner + _NO_CHARACTER * cut
    content = text.encode().replace(_REPLACED.encode(), _NO_CHARACTER)
    return content + _NO_CHARACTER * (size - len(content))
