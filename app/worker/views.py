"""The values that the control plane takes from the API and returns to it. No HTTP."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from app.load.long_batches import SeenLongBatch
from app.load.reported import ExecutorsLoad, Load
from app.model.plan import Rung
from app.model.protocol import Report
from app.model.requirements import Bounds, OnTimeout
from app.model.status import JobStatus
from app.model.value import value
from app.scheduler.adaptive.state import JobState
from app.scheduler.arbiter import Allotment
from app.worker.job.executors_seen import ExecutorsSeen


@value
class JobView:
    """A job as of the last durable write. ``spark_ui``: the web page of Spark in its driver, if it asked for one.

    ``load`` is what its drivers tell of batches and executors, ``region_progress`` the latest region-progress report
    per number of a region, ``executors`` how many the job has on a cluster. None of them is durable: they are empty
    after a restart, until the driver reports again.

    ``ahead_ms``: how far the job's time is ahead of the server's (`app.worker.clock.JobClock`).
    """

    state: JobState
    status: JobStatus
    submitted_ms: int
    ended_ms: int | None
    submitted_by: str | None
    epoch: int
    driver_pid: int | None = None
    load: Load = field(default_factory=Load)
    region_progress: dict[int, Report] = field(default_factory=dict)
    executors: ExecutorsSeen | None = None
    spark_ui: str | None = None
    ahead_ms: int = 0

    @property
    def job_id(self) -> str:
        return self.state.job_id

    @property
    def executors_load(self) -> ExecutorsLoad | None:
        """What was told of the executors of the attempt that runs; None if none runs, or nothing was told of it yet."""
        return self.load.executors if self._is_load_of_now else None

    @property
    def long_batches(self) -> tuple[SeenLongBatch, ...]:
        """The batches of the attempt that runs, as far as they take long."""
        return tuple(self.load.long_batches) if self._is_load_of_now else ()

    @property
    def _is_load_of_now(self) -> bool:
        return self.state.plan is not None and self.load.attempt == self.state.attempt

    @property
    def last_batches(self) -> dict[str, Report]:
        """The latest batch report per query id."""
        return {query_id: seen.report for query_id, seen in self.load.latest.items()}


@dataclass(frozen=True, slots=True)
class Census:
    """What a control plane owns now.

    ``views``: of the jobs that it owns, oldest first, each made when it is asked for. ``slots`` and ``free_slots``: of
    the pool, which it may share with others; ``members``: how many these are with itself.
    """

    views: Iterable[JobView]
    unreadable: int
    slots: int
    free_slots: int
    warm_drivers: int
    members: int
    is_sure: bool
    transactions: int


@dataclass(frozen=True, slots=True)
class GivenDeadline:
    """A deadline as a client gives it: an instant, or how long from the request on."""

    on_timeout: OnTimeout
    at_ms: int | None = None
    wait_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """A PUT of something that is declared for a job. ``if_match`` is the version of If-Match."""

    subject: ClassVar[str]
    """What is declared, as the beginning of a sentence."""
    refusal: ClassVar[str]
    """What a job that has ended does not allow, as the end of a sentence."""

    if_match: int | None = None
    idempotency_key: str | None = None
    requested_by: str | None = None
    reason: str | None = None

    def parts(self) -> list[object]:
        """What makes two requests with one Idempotency-Key the same request."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class RequirementsUpdate(Update):
    """A PUT of requirements, parsed but not validated against the job. -1 asks for a default.

    Keys of ``bounds`` are vertex ids (lower case) or unique vertex names.
    ``state_partitions``: numbers asked for expressly, by such keys.
    ``retry``: what was taken back is to be tried again, also if the bounds are those in force.
    ``deadline``: until when they may wait for their slots.
    """

    subject: ClassVar[str] = "the requirements are"
    refusal: ClassVar[str] = "its resource requirements cannot be changed"

    bounds: dict[str, tuple[int, int]]
    state_partitions: dict[str, int] = field(default_factory=dict)
    retry: bool = False
    deadline: GivenDeadline | None = None

    def parts(self) -> list[object]:
        parts: list[object] = [sorted(self.bounds.items()), self.if_match, self.reason]
        if self.state_partitions:
            parts.append(sorted(self.state_partitions.items()))
        if self.retry:
            parts.append(True)
        if self.deadline is not None:
            parts.append(["deadline", self.deadline.on_timeout, self.deadline.at_ms, self.deadline.wait_ms])
        return parts


@value
class RequirementsResult:
    """Of a PUT of bounds or of a slot share: ``changed`` is false for those in force. ``version``: in force now.
    ``kept_waiting``: the vertices for which the deadline of the PUT does not count, as they have one already.
    ``rescale``: the uuid of the rescale record that changed bounds lead to. An answer that is read from the database
    again has neither."""

    version: int
    changed: bool
    kept_waiting: tuple[str, ...] = ()
    rescale: str | None = None


@dataclass(frozen=True, slots=True)
class DryRun:
    """What a PUT would do. ``parallelism`` is None when no parallelism is attainable with the slots that exist."""

    bounds: dict[str, Bounds]
    parallelism: dict[str, int] | None
    current: dict[str, int] | None
    slots_before: int
    slots_after: int | None
    rung: Rung | None
    refused: tuple[str, ...] = ()
    explanation: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Supply:
    """The slots that there are, of this host or of the cluster at ``master``. ``idle``: held by no job, as far as it is
    known; with ``cluster_unreachable`` no job is given any. ``why``: sentences of the cluster that say why there are no
    more."""

    total: int
    idle: int
    master: str | None = None
    cluster_unreachable: bool = False
    why: tuple[str, ...] = ()

    def in_words(self, held: int, granted: int) -> str:
        """Whose they are, to a job that knows of ``held`` of the ``granted`` ones that it has."""
        others = max(0, self.total - self.idle - max(held, granted))
        coming = f", {granted - held} being given to this job" if granted > held else ""
        shares = f"{held} held by this job, {others} by other jobs{coming}"
        if self.cluster_unreachable:
            return (
                f"The cluster had {self.total} slots when it was last reachable: {shares}, and {self.idle} idle, which "
                "no job can get now."
            )
        return f"The {'host' if self.master is None else 'cluster'} has {self.total} slots: {shares}, {self.idle} free."

    def sentences(self) -> tuple[str, ...]:
        """Why there are no more of them now."""
        unreachable = (
            "The cluster is unreachable, so no slots are given to any job now.",
        ) * self.cluster_unreachable
        return (*unreachable, *self.why)


@dataclass(frozen=True, slots=True)
class Explanation:
    """What is wanted, held and in force, and in words why they differ. ``allotment``: the arbiter's for this job, if it
    has looked at it. ``supply``: of what slots. ``tasks``: of vertices in the last batch, as far as it is known."""

    state: JobState
    status: JobStatus
    desired_slots: int
    minimal_slots: int
    held_slots: int
    used_slots: int
    attainable: dict[str, int] | None
    in_force: dict[str, int] | None
    tasks: Mapping[str, int]
    sentences: tuple[str, ...]
    violations: tuple[str, ...]
    last_batch_ms: int | None = None
    allotment: Allotment | None = None
    executors: ExecutorsSeen | None = None
    supply: Supply = field(default_factory=lambda: Supply(0, 0))


@dataclass(frozen=True, slots=True)
class TaskManager:
    """What offers slots. ``id`` is stable while it lives."""

    id: str
    host: str
    slots: int
    free_slots: int
    since_ms: int
    cpu_cores: int
    memory_bytes: int
    free_memory_bytes: int
