"""The control plane as the API sees it. `app.worker.control_plane.ControlPlane` implements it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Protocol

from app.model.graphdoc_program import ProgramDocument
from app.model.jobgraph import JobGraph
from app.model.protocol import Acknowledgement, Orders, Registration, Report
from app.model.rescale import RescaleRecord, TerminalState, TriggerCause
from app.model.scaling_policy import ScalingPolicy
from app.scheduler.adaptive.state import Stop
from app.worker.ownership.unreadable import UnreadableJob
from app.worker.requests.event_feed import EventFeed
from app.worker.requests.executor_logs import ExecutorLogs
from app.worker.requests.livy import LivyBatches
from app.worker.requests.rescale_cancellation import RescaleCancellation
from app.worker.requests.scaling_policies import ScalingPolicyUpdate
from app.worker.requests.slot_shares import SlotShareUpdate
from app.worker.requests.views_of_logs import AttemptView, IsGone, LogLines, LogPart
from app.worker.tracing import Tracing
from app.worker.views import (
    Census,
    DryRun,
    Explanation,
    JobView,
    RequirementsResult,
    RequirementsUpdate,
    TaskManager,
)


class ControlPlaneFacade(Protocol):
    """Every method raises a `ControlPlaneError` of `app.worker.views` when it refuses, and then changed nothing."""

    @property
    def events(self) -> EventFeed:
        """The stored events and new ones, for followers."""
        ...

    @property
    def livy(self) -> LivyBatches:
        """Which jobs were submitted as Livy batches."""
        ...

    @property
    def executor_logs(self) -> ExecutorLogs:
        """What executors on a cluster have written."""
        ...

    @property
    def tracing(self) -> Tracing:
        """What follows requests as traces."""
        ...

    async def submit(
        self,
        graph: JobGraph,
        artifacts: Mapping[str, bytes],
        *,
        requested_by: str | None = None,
        is_livy_batch: bool = False,
    ) -> str:
        """Make the job durable, start scheduling it, and return its id. ``is_livy_batch``: it gets a number besides."""
        ...

    async def plan(self, submitted: JobGraph | ProgramDocument, artifacts: Mapping[str, bytes]) -> JobGraph:
        """The job graph of what was submitted: a driver is started for a program, and what other jobs are to run in is
        looked at. Nothing is stored. To be cancelled when nobody waits for it any more."""
        ...

    async def check(self, graph: JobGraph, artifacts: Mapping[str, bytes]) -> None:
        """Refuse what `submit` would refuse. Nothing is stored."""
        ...

    async def plan_version(
        self, job_id: str, submitted: JobGraph | ProgramDocument, artifacts: Mapping[str, bytes]
    ) -> JobGraph:
        """The graph of a new version of a job, if it can go on from the checkpoints of the one in force. Nothing is
        stored. To be cancelled as `plan`."""
        ...

    async def replace(
        self, job_id: str, graph: JobGraph, artifacts: Mapping[str, bytes], *, requested_by: str | None = None
    ) -> int:
        """Make a graph of `plan_version` durable as the next version of the job, and return its number."""
        ...

    def jobs(self) -> Sequence[JobView]:
        """Every job that is remembered, newest first."""
        ...

    def job(self, job_id: str) -> JobView: ...

    def census(self) -> Census:
        """What this control plane owns and has counted. It reads nothing from the database."""
        ...

    def unreadable_jobs(self) -> Sequence[UnreadableJob]:
        """Jobs that are stored and cannot be read here, newest first. They are not among `jobs`."""
        ...

    def warnings(self) -> list[str]:
        """What is not well with jobs and does not keep this control plane from serving, in sentences."""
        ...

    async def update_requirements(self, job_id: str, update: RequirementsUpdate) -> RequirementsResult:
        """Durable when it returns. Equal bounds change nothing; a known idempotency key repeats its answer."""
        ...

    async def cancel_rescale(self, job_id: str, asked: RescaleCancellation) -> RequirementsResult:
        """The bounds before those that the rescale follows from come back. StateConflict if it has begun or ended."""
        ...

    async def update_slot_share(self, job_id: str, update: SlotShareUpdate) -> int:
        """Durable when it returns the version in force. What is in force already changes nothing."""
        ...

    async def dry_run(self, job_id: str, update: RequirementsUpdate) -> DryRun: ...

    async def update_scaling_policy(self, job_id: str, update: ScalingPolicyUpdate) -> int:
        """As `update_slot_share`."""
        ...

    async def dry_run_policy(self, job_id: str, update: ScalingPolicyUpdate) -> DryRun: ...

    async def scaling_policies(
        self, job_id: str, *, limit: int, after: int | None = None
    ) -> Sequence[ScalingPolicy]:
        """What was set, newest first; ``after``: only versions below it."""
        ...

    async def cancel(self, job_id: str, *, requested_by: str | None = None) -> None:
        """Accepted; a job that is canceled already stays so. FINISHED or FAILED: StateConflict."""
        ...

    async def stop(
        self, job_id: str, *, trigger_id: str | None = None, requested_by: str | None = None
    ) -> str:
        """Start a stop at a batch boundary and return its trigger id."""
        ...

    def savepoint(self, job_id: str) -> str:
        """The trigger id of a savepoint, for `stop_operation`: the job runs on."""
        ...

    def stop_operation(self, job_id: str, trigger_id: str) -> Stop: ...

    async def forget(self, job_id: str) -> None:
        """Delete a terminated job with its history; StateConflict while it is not terminated."""
        ...

    def explanation(self, job_id: str) -> Explanation: ...

    async def rescales(
        self,
        job_id: str,
        *,
        limit: int | None = None,
        after: int | None = None,
        cause: TriggerCause | None = None,
        state: TerminalState | None = None,
    ) -> Sequence[RescaleRecord]:
        """Records newest first (an open one included); ``after``: only records numbered below it."""
        ...

    async def rescale(self, job_id: str, uuid: str) -> RescaleRecord: ...

    async def rescale_durations(self, job_id: str) -> Mapping[TerminalState, Sequence[int]]:
        """Durations in ms of all retained terminal records, oldest first."""
        ...

    async def attempts(self, job_id: str) -> Sequence[AttemptView]:
        """Those that are kept, newest first."""
        ...

    async def read_log(self, job_id: str, attempt: int, offset: int, limit: int, is_gone: IsGone) -> LogPart:
        """At most ``limit`` bytes of what the driver of an attempt logged from ``offset``, without secrets.
        ``is_gone``: whether the client has closed the connection."""
        ...

    async def log_lines(
        self, job_id: str, first: int | None, most: int, last_words: Sequence[str], is_gone: IsGone
    ) -> LogLines:
        """Up to ``most`` lines of what was logged in the newest attempt, with ``last_words`` behind them: from number
        ``first`` on, which is counted from 0, or without it the last ones. ``is_gone``: as in `read_log`."""
        ...

    def follow_log(self, job_id: str, attempt: int, offset: int) -> AsyncGenerator[LogPart]:
        """What it logged from ``offset``, part by part as it is written, until the attempt is over."""
        ...

    def task_managers(self) -> Sequence[TaskManager]: ...

    async def ready(self) -> list[str]:
        """Why this control plane cannot serve, in sentences; empty when it can."""
        ...

    async def admit_driver(self, job_id: str, attempt: int, secret: str, epoch: int) -> None:
        """Refuse a caller that is not the driver of the attempt, before its body is read."""
        ...

    async def driver_register(
        self, job_id: str, attempt: int, secret: str, epoch: int, registration: Registration
    ) -> Orders: ...

    async def driver_orders(
        self,
        job_id: str,
        attempt: int,
        secret: str,
        epoch: int,
        *,
        plan: int,
        stop: str,
        wait_ms: int,
        slots: int | None = None,
        restarts: Mapping[str, int] | None = None,
    ) -> Orders:
        """Once the orders differ from ``plan``, ``stop``, ``slots`` and ``restarts``, or after ``wait_ms``."""
        ...

    async def driver_reports(
        self, job_id: str, attempt: int, secret: str, epoch: int, reports: Sequence[Report]
    ) -> Acknowledgement:
        """The number up to which reports are taken down, and by whom."""
        ...
