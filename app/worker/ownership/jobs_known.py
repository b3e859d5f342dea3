"""The jobs that one control plane knows: its own jobs and those of others."""

from __future__ import annotations

from collections.abc import Iterable

from app.worker.job.job import Job
from app.worker.ownership.unreadable import JobUnreadable, UnreadableJobs
from app.worker.refusals import NotServed, UnknownJob
from app.worker.views import JobView


class JobsKnown:
    """``ended`` has the views of jobs that are over. ``elsewhere``: jobs that exist but are not served here now; their
    drivers are to try again, not to exit. ``unreadable``: those of them that cannot be read here.
    """

    unreadable: UnreadableJobs

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.ended: dict[str, JobView] = {}
        self.elsewhere: set[str] = set()
        # Views of jobs of other control planes, as of their last look-up.
        self.glimpses: dict[str, JobView] = {}
        # Not to be taken up by a look at the leases, like what cannot be read: what is being loaded again.
        self._loading = set[str]()
        # Nor what is being submitted: it may be stored, and its submission goes on with it.
        self.submitting = set[str]()

    def view(self, job_id: str) -> JobView | None:
        job = self.jobs.get(job_id)
        return job.view() if job is not None else self.ended.get(job_id) or self.glimpses.get(job_id)

    def exists(self, job_id: str) -> bool:
        """Whether there is such a job, whoever owns it, as far as it is known here."""
        return self.view(job_id) is not None or job_id in self.elsewhere or job_id in self.unreadable

    def find(self, job_id: str) -> JobView:
        """
        Raises:
            ControlPlaneError: there is no such job, or it cannot be shown.
        """
        view = self.view(job_id)
        if view is not None:
            return view
        if (unreadable := self.unreadable.get(job_id)) is not None:
            raise JobUnreadable(unreadable.sentence)
        if job_id in self.elsewhere:
            raise NotServed(job_id)
        raise UnknownJob(f"Job {job_id} was not found.")

    def views(self) -> list[JobView]:
        """All jobs, newest first; those of other control planes as of their last look-up."""
        own = [job.view() for job in self.jobs.values()]
        others = [view for job_id, view in self.glimpses.items() if not self._knows(job_id)]
        views = [*own, *self.ended.values(), *others]
        return sorted(views, key=lambda view: (view.submitted_ms, view.state.job_id), reverse=True)

    def unknown(self, job_ids: Iterable[str]) -> list[str]:
        """Those that are neither served here nor on the way to be."""
        return [job_id for job_id in job_ids if not self._knows(job_id)]

    def _knows(self, job_id: str) -> bool:
        known = (self.jobs, self.ended, self._loading, self.submitting)
        return any(job_id in where for where in known) or self.unreadable.is_settled(job_id)
