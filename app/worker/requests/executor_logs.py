"""What executors on a cluster have written, as the cluster tells it, without the secrets of their job."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from app.cluster.ports import ExecutorCluster, ExecutorLog, ExecutorLogAway, NoApplication, NoExecutorLog
from app.model.secret_texts import part_without_secrets
from app.store.store import Store
from app.store.tables import AttemptState
from app.store.writes import Attempt
from app.worker.requests.views_of_logs import LogPart, no_such_attempt, secrets_of_job
from app.worker.retrying import reading
from app.worker.views import BeyondLog, JobView, LogGone, Unavailable, UnknownAttempt

_AROUND_BYTES: Final = 16 << 10
_READERS_MAX: Final = 4
"""Each asks all the workers."""
_WITHIN_S: Final = 20.0
"""A client of the command line waits for 30 s."""


class ExecutorLogs:
    """Those of the newest attempt of each job: who ran an older one, the cluster does not tell."""

    def __init__(self, store: Store, cluster: ExecutorCluster | None) -> None:
        self._store, self._cluster = store, cluster
        self._readers = 0

    async def read(
        self, job: JobView, number: int, executor: int, output: str, offset: int, limit: int
    ) -> LogPart:
        """At most ``limit`` bytes from ``offset``, whole lines if there are any."""
        rows = await reading(self._store.attempts(job.job_id))
        row = next((each for each in rows if each.attempt == number), None)
        if row is None:
            raise no_such_attempt(job.job_id, number, rows)
        if self._cluster is None:
            raise UnknownAttempt(
                "Jobs of this server have no executors: their tasks run in the driver, whose log has what they print."
            )
        if (newest := rows[-1].attempt) != number:
            raise LogGone(
                f"Logs of executors can be had of the newest attempt only, which is {newest}, found {number}."
            )
        if self._readers >= _READERS_MAX:
            raise Unavailable(
                f"{_READERS_MAX} clients read logs of executors at this server already: try again."
            )
        self._readers += 1
        try:
            async with asyncio.timeout(_WITHIN_S):
                before, text, after = await self._parts(job.job_id, rows, executor, output, offset, limit)
        except TimeoutError as error:
            raise Unavailable(
                f"The cluster did not give the log of executor {executor} within {_WITHIN_S:.0f} s: this server has to "
                "reach the pages of all workers. Try again."
            ) from error
        finally:
            self._readers -= 1
        if offset > text.length:
            raise BeyondLog(
                f"The query parameter from should be at most {text.length}, where the log ends now, found {offset}."
            )
        shown, rest = _whole_lines(text)
        words = await asyncio.to_thread(
            part_without_secrets, before.text, shown, rest + after.text, secrets_of_job(job)
        )
        end = text.end - len(rest.encode())
        is_over = row.state is AttemptState.DEAD and end >= text.length
        return LogPart(words, text.begin, end, is_complete=is_over)

    async def _parts(
        self, job_id: str, rows: Sequence[Attempt], executor: int, output: str, offset: int, limit: int
    ) -> list[ExecutorLog]:
        assert self._cluster is not None
        newest = rows[-1]
        before = max((each.attempt for each in rows if each.driver_id != newest.driver_id), default=0)
        attempts = range(before + 1, newest.attempt + 1)
        begin = max(0, offset - _AROUND_BYTES)
        parts = ((begin, offset - begin), (offset, limit), (offset + limit, _AROUND_BYTES))
        try:
            return await self._cluster.executor_log(job_id, attempts, executor, output, parts)
        except NoExecutorLog as error:
            # A driver that has started tells the master of itself soon; one that is over never will.
            is_early = isinstance(error, NoApplication) and newest.state is not AttemptState.DEAD
            may_come = is_early or isinstance(error, ExecutorLogAway)
            raise (Unavailable if may_come else LogGone)(str(error)) from error


def _whole_lines(part: ExecutorLog) -> tuple[str, str]:
    """The text up to the end of its last line, and what is left of it. Where bytes are no characters it is not known
    where in the log a line ends."""
    is_known = len(part.text.encode()) == part.end - part.begin
    cut = part.text.rfind("\n") + 1 if is_known and part.end < part.length else 0
    return (part.text[:cut], part.text[cut:]) if cut else (part.text, "")
