"""What is read off a stored job, and what is waited for before it is loaded again."""

from __future__ import annotations

import json

import structlog

from app.model.graphdoc import GraphErrors, parse_document
from app.scheduler.adaptive.state import JobState
from app.store.errors import StoreError
from app.store.queries import StoredJob
from app.worker.job import Job
from app.worker.views import JobView

log = structlog.get_logger()


def read_view(stored: StoredJob) -> JobView | None:
    """A job as it is stored; None, and a word in the log, if it cannot be read."""
    try:
        state = stored.state(parse_document(json.loads(stored.document)))
    except (StoreError, GraphErrors, ValueError) as error:
        log.error("a stored job cannot be read", job=stored.job_id, error=str(error))
        return None
    return JobView(
        state=state,
        status=stored.summary.status,
        submitted_ms=stored.summary.submitted_ms,
        ended_ms=stored.summary.ended_ms,
        submitted_by=stored.summary.submitted_by,
        epoch=stored.lease.epoch if stored.lease else 0,
        driver_pid=stored.attempt.pid if stored.attempt else None,
    )


def latest_ms(state: JobState) -> int:
    """The latest instant that the state has seen.

    With a clock that is behind the one before, what was to happen some seconds later would else be an hour away.
    """
    record = state.timeline.open
    armed_ms = max((timer.armed_ms for timer in state.timers), default=0)
    return max(state.phase_since_ms, state.slots_changed_ms, record.start_ms if record else 0, armed_ms)


async def quiet(job: Job) -> None:
    """Returns when nothing that a closed job had begun is still going on."""
    await job.worker.ended()
    await job.attempts.quiet()


def lists_artifacts(document: str) -> bool:
    try:
        return bool(json.loads(document).get("artifacts"))
    except (ValueError, AttributeError):
        # What cannot be read has no files to lay out; taking the job up says why.
        return False
