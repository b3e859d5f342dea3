"""Housekeeping: what is too old to keep, or too many, is removed every few minutes.

Nothing waits for it, and it makes nobody wait for long: what there is to remove is looked for by a read, and removed
in small transactions, one after another, between which the writer serves everybody else. A pass that fails does no
harm: the next one finds the same rows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import structlog

from app.store.errors import StoreError
from app.store.store import Store
from app.worker.clock import Clock
from app.worker.views import JobView

log = structlog.get_logger()

EVERY_S = 300.0
FIRST_AFTER_S = 10.0
RETRY_AFTER_S = 30.0
_ROWS_PER_TRANSACTION = 500
_DAY_MS = 24 * 60 * 60 * 1000


class Housekeeper:
    """Keeps to ``max_age_days`` for all ``jobs``, and to `web.adaptive-scheduler.rescale-history.size` of each.

    Jobs are those that this control plane serves, and those that have ended.
    """

    def __init__(
        self,
        store: Store,
        *,
        jobs: Callable[[], Iterable[JobView]],
        clock: Clock,
        max_age_days: int,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._store = store
        self._jobs = jobs
        self._clock = clock
        self._max_age_ms = max_age_days * _DAY_MS
        self._sleep = sleep

    async def run(self) -> None:
        """Keep house until cancelled: soon after the start, then every few minutes; sooner after a failure."""
        await self._sleep(FIRST_AFTER_S)
        while True:
            await self._sleep(EVERY_S if await self._pass() else RETRY_AFTER_S)

    async def _pass(self) -> bool:
        try:
            removed, failed = await self.tidy()
        except StoreError as error:
            log.warning("old records could not be looked for", error=str(error), retry_in_s=RETRY_AFTER_S)
            return False
        except Exception:
            log.exception("housekeeping met a defect")
            return False
        if removed:
            log.info("old records removed", rows=removed)
        return not failed

    async def tidy(self) -> tuple[int, int]:
        """One pass over all jobs: the rows that were removed, and the jobs whose rows could not all be.

        Raises:
            StoreError: it cannot be told what there is to remove.
        """
        older_than_ms = self._clock.now_ms() - self._max_age_ms
        keep = {view.state.job_id: view.state.options.rescale_history_size for view in self._jobs()}
        removed = failed = 0
        for job_id in await self._store.prunable(keep, older_than_ms=older_than_ms):
            try:
                removed += await self._tidy_job(job_id, keep[job_id], older_than_ms)
            except StoreError as error:
                failed += 1
                log.warning("old records of a job could not be removed", job=job_id, error=str(error))
        return removed, failed

    async def _tidy_job(self, job_id: str, keep: int, older_than_ms: int) -> int:
        removed = 0
        while True:
            records = await self._store.prune(
                job_id, keep=keep, older_than_ms=older_than_ms, limit=_ROWS_PER_TRANSACTION
            )
            requests = await self._store.prune_requests(
                job_id, keep=keep, older_than_ms=older_than_ms, limit=_ROWS_PER_TRANSACTION
            )
            removed += records + requests
            if records + requests < _ROWS_PER_TRANSACTION:
                return removed
