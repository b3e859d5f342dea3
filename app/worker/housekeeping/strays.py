"""Files of jobs that the database does not know.

Files are laid out before a job is stored. A server that is killed in between leaves a directory in which no attempt has
ever run: nobody asks for it again, and it is removed. Where an attempt has run, the job was stored: if the database
does not know it, it is not the database of these jobs, and no server starts with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import structlog

from app.store import schema
from app.store.engine import parse_url
from app.store.errors import JobsUnknown
from app.store.store import Store
from app.worker.job.files import has_run, jobs_in, put_back, remove_set_aside, set_aside, untouched_s
from app.worker.ownership.membership import Membership

log = structlog.get_logger()

UNTOUCHED_S = 3600.0
"""No submission takes as long: one that does not know its outcome touches its directory again and again."""
_NAMED = 3


async def open_store(jobs_dir: Path, url: str, membership: Membership, lease_ttl_ms: int) -> Store:
    """The store of the jobs whose files are in ``jobs_dir``, for this server.

    Raises:
        JobsUnknown: the database at ``url`` is not theirs; a new one was not made.
        StoreError: see `Store.open`.
    """
    # First the files, then the database: of what another server submits meanwhile, no file is there that is not stored.
    found = await asyncio.to_thread(jobs_in, jobs_dir)
    is_new = await asyncio.to_thread(schema.is_new, url) if found else False
    if is_new:
        raise JobsUnknown(_refusal(f"The database {parse_url(url)} is missing or empty", jobs_dir, found))
    store = await Store.open(url, membership.owner, home=membership.home, lease_ttl_ms=lease_ttl_ms)
    try:
        known = await store.job_ids()
        # A job that is being forgotten has its files set aside before its rows are removed.
        if lost := [each for each in found if each not in known and has_run(jobs_dir / each)]:
            raise JobsUnknown(
                _refusal(f"The database {store.database} does not know all jobs", jobs_dir, lost)
            )
    except BaseException:
        await store.close()
        raise
    return store


def _refusal(what: str, jobs_dir: Path, lost: Sequence[str]) -> str:
    jobs = "one job" if len(lost) == 1 else f"{len(lost)} jobs"
    names = ", ".join(lost[:_NAMED]) + (" ..." if len(lost) > _NAMED else "")
    return (
        f"{what}, but {jobs_dir} has the files of {jobs} that it should know: {names}. Restore the database, or "
        f"correct database_url. To begin without these jobs, move their directories out of {jobs_dir}."
    )


class Strays:
    """Removes what submissions left that were cut off. Other servers may submit jobs to ``jobs_dir`` meanwhile."""

    def __init__(self, store: Store, jobs_dir: Path) -> None:
        self._store = store
        self._jobs_dir = jobs_dir
        self._seen: set[str] = set()

    async def drop(self) -> int:
        """Remove the directories that were unknown the last time too, and in which nothing has changed for an hour:
        neither a clock that jumps nor one that differs from the file system's is enough. Returns their number.

        Raises:
            StoreError: it cannot be told which jobs are stored.
            OSError: the files cannot be looked at.
        """
        found = await asyncio.to_thread(jobs_in, self._jobs_dir)
        unknown = set(found) - await self._store.job_ids()
        doomed, self._seen = unknown & self._seen, unknown
        dropped = 0
        for job_id in sorted(doomed):
            dropped += await self._drop(self._jobs_dir / job_id)
        return dropped

    async def _drop(self, job_dir: Path) -> bool:
        if has_run(job_dir) or untouched_s(job_dir) < UNTOUCHED_S:
            return False
        await asyncio.to_thread(set_aside, job_dir)
        if job_dir.name in await self._store.job_ids():
            await asyncio.to_thread(put_back, job_dir)
            return False
        await asyncio.to_thread(remove_set_aside, job_dir)
        log.info("what a submission left that was cut off was removed", job=job_dir.name)
        return True
