"""Housekeeping: removal of old and surplus data every few minutes.

Nothing waits for housekeeping, and it delays nothing for long: old data is found by a read and removed in small
transactions, between which the writer serves others. A pass that fails does no harm, because the next pass
finds these rows again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import structlog

from app.settings import Settings
from app.store.errors import StoreError
from app.store.store import Store
from app.worker.clock import Clock
from app.worker.housekeeping.age_clock import AgeClock
from app.worker.job.files import has_files, tidy_attempts
from app.worker.job.places import JobPlaces
from app.worker.refusals import ControlPlaneError, UnknownJob
from app.worker.views import JobView

log = structlog.get_logger()

EVERY_S = 300.0
FIRST_AFTER_S = 10.0
RETRY_AFTER_S = 30.0
_ROWS_PER_TRANSACTION = 500
# Who looks for what went wrong reads the newest logs; a job that fails and restarts may have thousands of attempts.
ATTEMPTS_KEPT = 10
_DAY_MS = 24 * 60 * 60 * 1000


@dataclass(slots=True)
class _Done:
    """What a pass has removed, in rows, and how often it failed."""

    removed: int = 0
    failed: int = 0

    @contextlib.contextmanager
    def counting(self, sentence: str, **of: str) -> Iterator[None]:
        """What fails in it goes to the log with ``sentence``, and the pass goes on."""
        try:
            yield
        except (StoreError, OSError) as error:
            self.failed += 1
            log.warning(sentence, **of, error=str(error))


class Housekeeper:
    """Removes rescale records, Idempotency-Keys and versions older than ``history_max_age_days`` of all ``jobs``, and
    rescale records beyond `web.adaptive-scheduler.rescale-history.size` of each. Of each job there are at most
    ``requests_max_count`` Idempotency-Keys, and as many versions of its requirements. Of events there are at most
    ``events_max_count``, none older than ``events_max_age_days``.

    Jobs are those that this control plane serves, and those that have ended. Of the latter, ``forget`` is told those
    that ended more than ``ended_jobs_max_age_days`` ago, and those beyond the newest ``ended_jobs_max_count``, but for
    those that have files in their working directories. Of attempts of which nothing lives, the newest few are kept,
    without their secrets. What regions of a job that has ended left for each other is removed, and by ``drop_strays``
    what submissions left that were cut off.
    """

    def __init__(
        self,
        store: Store,
        settings: Settings,
        places: JobPlaces,
        clock: Clock,
        *,
        jobs: Callable[[], Iterable[JobView]],
        forget: Callable[[str], Awaitable[None]],
        drop_strays: Callable[[], Awaitable[int]],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._store, self._settings, self._places = store, settings, places
        self._age_clock = AgeClock(store, clock)
        self._jobs = jobs
        self._forget = forget
        self._drop_strays = drop_strays
        # Up to which attempt the files of a job are tidy, and whether they are so for good.
        self._tidy_to: dict[str, tuple[int, bool]] = {}
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
        now_ms = await self._age_clock.trusted_ms()
        failed_to_forget = await self._forget_ended(now_ms)
        older_than_ms = now_ms - self._settings.history_max_age_days * _DAY_MS
        views = {view.state.job_id: view for view in self._jobs()}
        keep = {job_id: view.state.options.rescale_history_size for job_id, view in views.items()}
        done = _Done()
        for job_id in await self._store.prunable(
            keep, older_than_ms=older_than_ms, most=self._settings.requests_max_count
        ):
            with done.counting("old records of a job could not be removed", job=job_id):
                done.removed += await self._tidy_job(job_id, keep[job_id], older_than_ms)
        with done.counting("old events could not be removed"):
            done.removed += await _in_slices(
                self._store.prune_events,
                older_than_ms=now_ms - self._settings.events_max_age_days * _DAY_MS,
                most=self._settings.events_max_count,
            )
        await self._tidy_attempts(views, done)
        with done.counting("what submissions left could not be removed"):
            await self._drop_strays()
        return done.removed, done.failed + failed_to_forget

    async def _forget_ended(self, now_ms: int) -> int:
        """Forget the jobs that ended long ago, or that are too many; the number of those that could not be."""
        ended = sorted(
            ((view.ended_ms, view.state.job_id) for view in self._jobs() if view.ended_ms is not None),
            reverse=True,
        )
        older_than_ms = now_ms - self._settings.ended_jobs_max_age_days * _DAY_MS
        failed = 0
        for place, (ended_ms, job_id) in enumerate(ended):
            if place < self._settings.ended_jobs_max_count and ended_ms >= older_than_ms:
                continue
            if await asyncio.to_thread(has_files, self._places.own_working_dir(job_id)):
                # They are the user's: a checkpoint, output, tables.
                continue
            try:
                await self._forget(job_id)
                log.info("an ended job was forgotten", job=job_id)
            except UnknownJob:
                continue
            except ControlPlaneError as error:
                failed += 1
                log.warning("an ended job could not be forgotten", job=job_id, error=str(error))
        return failed

    async def _tidy_attempts(self, views: Mapping[str, JobView], done: _Done) -> None:
        """Remove what dead attempts and ended jobs leave behind.

        The results of a job that has ended are removed when it ends, unless the server was killed at that moment.
        """
        found = await self._store.dead_attempts(list(views))
        self._tidy_to = {job_id: self._tidy_to[job_id] for job_id in found if job_id in self._tidy_to}
        for job_id, (oldest, dead) in found.items():
            with done.counting("old attempts of a job could not be removed", job=job_id):
                state = (dead, views[job_id].ended_ms is not None)
                if self._tidy_to.get(job_id) != state:
                    await asyncio.to_thread(self._tidy_files, job_id, *state)
                    self._tidy_to[job_id] = state
                if oldest <= dead - ATTEMPTS_KEPT:
                    done.removed += await _in_slices(self._store.prune_attempts, job_id, keep=ATTEMPTS_KEPT)

    def _tidy_files(self, job_id: str, dead: int, has_ended: bool) -> None:
        tidy_attempts(self._places.job_dir(job_id), dead, ATTEMPTS_KEPT)
        if has_ended:
            self._places.drop_results(job_id)

    async def _tidy_job(self, job_id: str, keep: int, older_than_ms: int) -> int:
        store, most = self._store, self._settings.requests_max_count
        oldest_ms = await store.oldest_idempotency_key_ms(job_id, most=most)
        keys_before_ms = older_than_ms if oldest_ms is None else max(older_than_ms, oldest_ms)
        return (
            await _in_slices(store.prune, job_id, keep=keep, older_than_ms=older_than_ms)
            + await _in_slices(store.prune_idempotency_keys, job_id, older_than_ms=keys_before_ms)
            + await _in_slices(
                store.prune_versions, job_id, keep=keep, older_than_ms=older_than_ms, most=most
            )
        )


async def _in_slices(prune: Callable[..., Awaitable[int]], *of: str, **which: int) -> int:
    """The rows that were removed, in transactions that are short."""
    removed = 0
    while True:
        rows = await prune(*of, **which, limit=_ROWS_PER_TRANSACTION)
        removed += rows
        if rows < _ROWS_PER_TRANSACTION:
            return removed
