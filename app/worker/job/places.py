"""The paths of the files of jobs, and the address of this control plane for their drivers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from app.cluster.ports import ExecutorCluster
from app.durablefiles import remove_tree
from app.model.resultsurl import below, is_local
from app.model.sparkui import LOOPBACK
from app.worker.job.files import CHECKPOINT, artifacts_name


@dataclass(frozen=True, slots=True)
class JobPlaces:
    """Where a job's files are, and what its drivers are told of this control plane.

    ``slots`` is how wide a driver on this host may run; with a ``cluster``, jobs run in executors of it.
    ``results_root`` is as `app.model.resultsurl.results_root` has it; None: results are among the job's other files.
    ``url``: of this control plane, if jobs may move to others; then each job has an address file of its own.
    ``runs_on``: the name of the cluster, as `app.worker.job.placement` has it. ``private``: no job's files lie there.
    ``page_address``: where the page of Spark would be.
    """

    jobs_dir: Path
    address_file: Path
    slots: int
    results_root: str | None = None
    cluster: ExecutorCluster | None = None
    url: str | None = None
    task_manager: str = "host"
    runs_on: str = ""
    private: tuple[Path, ...] = ()
    page_address: str = LOOPBACK

    def address_of(self, job_id: str) -> Path:
        """The file in which the job's drivers find whom to call."""
        return self.address_file if self.url is None else self.job_dir(job_id) / "address"

    def job_dir(self, job_id: str) -> Path:
        return self.jobs_dir / job_id

    def checkpoint_dir(self, job_id: str) -> Path:
        return self.job_dir(job_id) / CHECKPOINT

    def artifacts_dir(self, job_id: str, version: int = 1) -> Path:
        return self.job_dir(job_id) / artifacts_name(version)

    def results_dir(self, job_id: str) -> str:
        """The place of a job's results: an absolute path, or a URI."""
        if self.results_root is None:
            return str(self.job_dir(job_id) / "results")
        return below(self.results_root, job_id)

    @property
    def are_results_local(self) -> bool:
        """Whether this process can remove them."""
        return self.results_root is None or is_local(self.results_root)

    def drop_results(self, job_id: str) -> None:
        """Remove a job's results if they are on this host; what cannot be removed stays."""
        if self.are_results_local:
            remove_tree(Path(self.results_dir(job_id)))

    def attempt_dir(self, job_id: str, attempt: int) -> Path:
        return self.job_dir(job_id) / f"attempt-{attempt}"
