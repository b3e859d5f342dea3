"""The paths of the files of jobs, the address of this control plane for their drivers, and the cluster of a driver.

The drivers of a server outlive it, and the next server may have another cluster in its settings. An old driver would
then use slots of the previous cluster that are not counted any more, and would hold slots of the new cluster that it
does not use.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from app import filelocks
from app.cluster.ports import ExecutorCluster
from app.durablefiles import remove_tree
from app.model.addresses import SPARK_PREFIX, spark_masters
from app.model.clustersettings import KUBERNETES
from app.model.protocol import WORKING_DIR
from app.model.resultsurl import below, is_local
from app.model.sparkui import LOOPBACK
from app.settings import Settings
from app.worker.job.files import CHECKPOINT, artifacts_name, has_run
from app.worker.job.silence import Silence


@dataclass(frozen=True, slots=True)
class JobPlaces:
    """Where a job's files are, and what its drivers are told of this control plane.

    ``slots`` is how wide a driver on this host may run; with a ``cluster``, jobs run in executors of it.
    ``results_root`` is as `app.model.resultsurl.results_root` has it; None: results are among the job's other files.
    ``url``: of this control plane, if jobs may move to others; then each job has an address file of its own.
    ``runs_on``: the name of the cluster, as `place_of` has it. ``private``: no job's files lie there.
    ``page_address``: where the page of Spark would be. ``home``: the lasting name of the data directory.
    ``shared_working_dir``: the working directory that all jobs had once. ``silence``: that of
    drivers; None: it does not matter.
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
    home: str = ""
    shared_working_dir: Path | None = None
    silence: Silence | None = None

    def address_of(self, job_id: str) -> Path:
        """The file in which the job's drivers find whom to call."""
        return self.address_file if self.url is None else self.job_dir(job_id) / "address"

    def job_dir(self, job_id: str) -> Path:
        return self.jobs_dir / job_id

    def checkpoint_dir(self, job_id: str) -> Path:
        return self.job_dir(job_id) / CHECKPOINT

    def own_working_dir(self, job_id: str) -> Path:
        return self.job_dir(job_id) / WORKING_DIR

    def working_dir(self, job_id: str) -> Path:
        """The working directory of the job, of all its attempts and versions. One that ran before it could have its own
        has its files in that of all, and keeps that."""
        own = self.own_working_dir(job_id)
        if self.shared_working_dir is not None and not own.exists() and has_run(self.job_dir(job_id)):
            return self.shared_working_dir
        return own

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


def place_of(settings: Settings) -> str:
    """The name of the cluster of the settings, by which attempts are told apart; empty for the server's host."""
    if settings.cluster_kind == KUBERNETES:
        return f"{settings.cluster_master}, namespace {settings.cluster_namespace}"
    return settings.cluster_master or ""


def misplaced(started_on: str, runs_on: str) -> str | None:
    """Why a driver that was started on one cluster cannot stay, in a sentence; None if jobs still run there."""
    if started_on == runs_on or _masters(started_on) & _masters(runs_on):
        return None
    return (
        f"The driver was started on {_in_words(started_on)}, but the settings of the server now name "
        f"{_in_words(runs_on)}: the driver is stopped, and the job continues there from its checkpoint."
    )


def _in_words(place: str) -> str:
    return place or "the server's host (cluster_kind embedded)"


def _masters(place: str) -> frozenset[tuple[str, int]]:
    """The masters of a standalone cluster: those that are in both names are the same one."""
    if not place.startswith(SPARK_PREFIX):
        return frozenset()
    try:
        return frozenset((host.lower(), port) for host, port in spark_masters(place))
    except ValueError:
        return frozenset()


def write_address(file: Path, url: str, epoch: int) -> bool:
    """Tell the drivers of a job that ``url`` owns it since ``epoch``: the two lines of its address file.

    A control plane that has lost the job without knowing it must not direct the driver back to itself. False: the file
    names a later owner, and stays.

    Raises:
        OSError: it cannot be written.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    lock_fd = filelocks.lock(file.with_name(f".{file.name}.lock"), wait=True)
    assert lock_fd is not None
    try:
        if _epoch(file) > epoch:
            return False
        _publish(file, f"{url}\n{epoch}\n")
        return True
    finally:
        os.close(lock_fd)


def write_server_address(file: Path, url: str) -> None:
    """Tell running drivers where this control plane is, in the file that all its jobs have where jobs cannot move."""
    _publish(file, f"{url}\n")


def _publish(file: Path, text: str) -> None:
    """Put ``text`` into ``file`` whole. Drivers may run as another user, and the directory keeps them out if need be.

    Not synced: after a power failure no driver is left to read it, and the next start writes it anew.
    """
    temporary = file.with_name(f".{file.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.chmod(0o644)
    os.replace(temporary, file)


def _epoch(file: Path) -> int:
    try:
        return int(file.read_text(encoding="ascii").split()[1])
    except (FileNotFoundError, IndexError, ValueError):
        return 0
