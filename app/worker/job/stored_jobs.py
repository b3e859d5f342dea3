"""Functions on stored jobs: their views and files, and the wait before a job is loaded again."""

from __future__ import annotations

import asyncio
import json

import structlog

from app.model.graphdoc import read_graph
from app.store.queries import StoredJob
from app.store.store import Store
from app.worker.job.files import are_intact, write_artifacts
from app.worker.job.job import Job
from app.worker.job.places import JobPlaces
from app.worker.views import JobView

log = structlog.get_logger()


def read_view(stored: StoredJob) -> JobView:
    """A job as it is stored.

    Raises:
        Exception: it cannot be read: `StoreError`, `GraphErrors`, ValueError, or whatever a damaged document leads to.
    """
    return JobView(
        state=stored.state(read_graph(json.loads(stored.document))),
        status=stored.summary.status,
        submitted_ms=stored.summary.submitted_ms,
        ended_ms=stored.summary.ended_ms,
        submitted_by=stored.summary.submitted_by,
        epoch=stored.lease.epoch if stored.lease else 0,
        driver_pid=stored.attempt.pid if stored.attempt else None,
        spark_ui=stored.attempt.ui_url if stored.attempt else None,
    )


async def quiet(job: Job) -> None:
    """Wait until everything that a closed job had begun is over."""
    await job.worker.ended()
    await job.attempts.quiet()


def lists_artifacts(document: str) -> bool:
    try:
        return bool(json.loads(document).get("artifacts"))
    except (ValueError, AttributeError):
        # What cannot be read has no files to lay out; taking the job up says why.
        return False


async def lay_out_files(store: Store, places: JobPlaces, stored: StoredJob) -> None:
    """Write the files of a job again, of all versions that are kept, if any is gone or damaged.

    Raises:
        OSError: they cannot be written.
        StoreError: the database is away.
    """
    current = version_in_force(stored.state_text)
    kept = {number: document for number, (document, _) in stored.versions.items()}
    for version, document in {**kept, current: stored.document}.items():
        if not lists_artifacts(document):
            continue
        directory = places.artifacts_dir(stored.job_id, version)
        digests = await store.artifact_digests(stored.job_id, version)
        if not await asyncio.to_thread(are_intact, directory, digests):
            artifacts = await store.artifacts(stored.job_id, version)
            await asyncio.to_thread(write_artifacts, directory, artifacts)
            log.warning("the files of a job were laid out again", job=stored.job_id, version=version)


def version_in_force(state_text: str) -> int:
    """The number of the version in force, of a state that may not be readable in any other way."""
    try:
        return int(json.loads(state_text)["versions"]["current"])
    except (ValueError, TypeError, KeyError):
        return 1
