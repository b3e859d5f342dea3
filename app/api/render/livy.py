"""Jobs as the batches that Livy's clients know."""

from __future__ import annotations

from collections.abc import Sequence

from app.api.schema import livy as schema
from app.model.livy import livy_state
from app.model.status import JobStatus
from app.worker.ownership.unreadable import UnreadableJob
from app.worker.views import JobView


def batch(number: int, job: JobView | UnreadableJob, url: str, log: Sequence[str] = ()) -> schema.LivyBatch:
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


def last_words(view: JobView) -> list[str]:
    """What stands behind the log of a job that has failed: clients of Livy read nothing else."""
    if view.status is not JobStatus.FAILED:
        return []
    failures = view.state.failures
    cause = failures[-1][0].error if failures else getattr(view.state.phase, "cause", None)
    return f"Job {view.job_id} is FAILED: {cause or 'the reason is not known.'}".splitlines()
