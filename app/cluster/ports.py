"""The interface of a cluster for the worker: start drivers, find them again, and end them with certainty.

The embedded host implements it with processes; the simulator implements it with a seeded, faulty world.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from app.cluster.periodic import Periodic
from app.model.environment import Runtime


class DriverLaunchError(Exception):
    """A driver could not be started; the message is a sentence for people. Nothing of it is left alive."""

    def __init__(self, message: str, *, recoverable: bool = True) -> None:
        super().__init__(message)
        self.recoverable = recoverable


@dataclass(frozen=True, slots=True)
class DriverRef:
    """How a driver process is found again after a restart of the control plane.

    ``pid`` alone may have been reused: the process is the same only if it started at ``pid_started_at`` (epoch
    seconds). ``lock_file`` is locked as long as any process of the driver lives, its JVM included.
    """

    driver_id: str
    pid: int
    pid_started_at: float
    lock_file: str


@dataclass(frozen=True, slots=True)
class Offer:
    """The slots of a cluster, or of the servers of a host: how many each TaskManager has, and how many of all of them
    others use (``withheld``).

    ``unreachable``: what it has cannot be known now. Jobs keep the slots that they have, and none are given out.
    ``why``: sentences that say why there are no more, one for each reason. ``outlasts``: a slot that is offered no more
    is its job's until that gives it back; else it is lost.
    """

    task_managers: tuple[tuple[str, int], ...]
    withheld: int = 0
    unreachable: bool = False
    why: tuple[str, ...] = ()
    outlasts: bool = False


class NoExecutorLog(Exception):
    """The log of an executor cannot be had; the message is a sentence for people."""


class ExecutorLogAway(NoExecutorLog):
    """It may be had later: who has it does not answer now."""


class ExecutorLogElsewhere(NoExecutorLog):
    """It never can be had here."""


class NoApplication(NoExecutorLog):
    """The driver has not told the cluster of itself yet, or the cluster has forgotten it."""


@dataclass(frozen=True, slots=True)
class ExecutorLog:
    """What an executor has written: ``text`` is that from byte ``begin`` up to ``end``, of ``length`` bytes."""

    text: str
    begin: int
    end: int
    length: int


class ExecutorCluster(Protocol):
    """Where the executors of jobs run, if not in their drivers."""

    master: str
    poll_s: float
    """How often it is looked at."""
    periodic: Periodic
    """What goes on beside the jobs: looking at it, for one."""

    @property
    def unreachable(self) -> str:
        """Since when it cannot be asked, and why, in a sentence; empty while it can."""
        ...

    @property
    def first_executor_s(self) -> float:
        """For how long a driver waits for the first executor of an attempt."""
        ...

    def executor_conf(self, job_id: str, attempt: int) -> Mapping[str, str]:
        """Settings of Spark that the driver of an attempt needs."""
        ...

    def application_name(self, job_name: str, job_id: str, attempt: int) -> str: ...

    async def runtime_fault(self, spark_version: str) -> str:
        """Why executors there cannot have an environment with this PySpark, or packages of a job; empty if they can."""
        ...

    async def look(self, is_ours: Callable[[str], bool]) -> Offer:
        """What it offers now. ``is_ours``: whether a job, by its id, is known here."""
        ...

    async def cleared(self, job_id: str) -> None:
        """Returns when nothing of an earlier driver of the job holds slots any more, or that cannot be told."""
        ...

    async def executor_log(
        self, job_id: str, attempts: range, executor: int, output: str, begin: int, size: int
    ) -> ExecutorLog:
        """At most ``size`` bytes, from byte ``begin``, of what an executor wrote to ``output``, stdout or stderr.
        ``attempts``: those of the driver that ran the job last.

        Raises:
            NoExecutorLog: it cannot be had.
        """
        ...

    async def close(self) -> None: ...


class DriverHandle(Protocol):
    """One driver process. It does nothing before `assign`, and ends by itself if its control plane dies before."""

    @property
    def ref(self) -> DriverRef: ...

    async def assign(self, spec_file: Path) -> None:
        """Give it a job, once it is ready to take one.

        Raises:
            DriverLaunchError: it died before it could take the assignment.
        """
        ...

    async def kill(self) -> None:
        """End every process of the driver; returns when nothing of it lives. Harmless when it is dead already."""
        ...

    async def gone(self) -> None:
        """Returns when nothing of the driver lives any more."""
        ...

    def on_exit(self, callback: Callable[[int | None], None]) -> None:
        """Call ``callback`` once, with the exit status if it is known, when the driver's main process has ended."""
        ...


class DriverHost(Protocol):
    """Where drivers run."""

    @property
    def slow_start(self) -> str:
        """Why a driver takes longer to start now than it will later, in a sentence; empty if it does not."""
        ...

    @property
    def warm_ready(self) -> int:
        """How many drivers are warm and wait for a job."""
        ...

    async def acquire(
        self,
        java_options: tuple[str, ...] = (),
        runtime: Runtime | None = None,
        working_dir: Path | None = None,
    ) -> DriverHandle:
        """A driver that waits for an assignment: a warm one if there is one, else a new one.

        ``java_options``: options that only a new JVM can take; then it is never a warm one. ``runtime``: what it is to
        run in, if not in the environment of the server; that may have to be built first, which takes minutes.
        ``working_dir``: that of a new one, which has to be there; a warm one goes there with its assignment.

        Raises:
            DriverLaunchError: none could be started. It is not recoverable if ``runtime`` cannot be had.
        """
        ...

    async def build(self, runtime: Runtime) -> None:
        """Build what ``runtime`` has and is not there yet, which takes minutes.

        Raises:
            DriverLaunchError: it cannot be had; the message is a sentence.
        """
        ...

    def adopt(self, ref: DriverRef) -> DriverHandle | None:
        """The driver that an earlier control plane started, or None when nothing of it lives any more."""
        ...

    def refill(self) -> None:
        """Start a warm driver in the background, if one is missing."""
        ...
