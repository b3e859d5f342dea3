"""The state of a job's scheduler: one value, which nobody changes, that holds everything a decision needs.

`phase` is FLIP-160's current state object: a fresh value on each entry. `phase_version` counts the entries; a timer
carries the version it was armed under, and is stale once the phase was left, even for another entry into the same
phase. All times are epoch milliseconds handed in as ``now_ms``.
"""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from app.model.job_state.attempt import Driver
from app.model.job_state.batch import BatchProgress
from app.model.job_state.changes import Change, Patch, Trial
from app.model.job_state.failures import Failure, Recovery
from app.model.job_state.no_change import NoChange
from app.model.job_state.partitions import Partitions
from app.model.job_state.supply import Supply
from app.model.job_state.versions import JobVersion, Versions
from app.model.jobgraph import JobGraph, JobType
from app.model.options import JobOptions
from app.model.plan import Plan, Slot
from app.model.requirements import Requirements
from app.model.rescale import RescaleRecord
from app.model.scaling_policy import ScalingPolicy, within
from app.model.slot_share import SlotShare
from app.model.state_partitions import wanted_graph
from app.model.status import JobStatus
from app.model.value import value


@value
class Timer:
    """Fire `TimerFired(name, version)` at ``at_ms``. The shell keeps no timers of its own: it reads these.

    ``armed_ms``: when that was decided. A server with another clock must not wait for longer.
    """

    name: str
    version: int
    at_ms: int
    armed_ms: int = field(default=0, compare=False)


@value
class Manager:
    """The state transition manager (FLIP-461, FLIP-472), one per entry into a phase that reacts to resources.

    ``since_ms`` is t0. ``change_ms`` is c, the first sufficient change, ``last_change_ms`` the latest one.
    ``evaluation_ms`` is when Stabilizing looks whether the desired resources are there, None while it does not.
    """

    stage: Literal["Cooldown", "Idling", "Stabilizing", "Stabilized"]
    since_ms: int
    change_ms: int | None = None
    last_change_ms: int | None = None
    evaluation_ms: int | None = None


@value
class Created:
    kind: Literal["Created"] = "Created"


@value
class WaitingForResources:
    manager: Manager
    kind: Literal["WaitingForResources"] = "WaitingForResources"


@value
class CreatingExecutionGraph:
    """Slots are reserved and the driver of ``state.attempt`` is being started with ``plan``.

    ``failure`` is set once the start has failed and the rest of the attempt is being killed; not ``outside`` if that is
    the job's own doing, ``by_cluster`` if the driver says that it is the cluster's. ``give_up``: and with it the
    redistribution of the state. ``blind``: the cluster was unreachable at some time since: a failure says nothing."""

    plan: Plan
    failure: Failure | None = None
    recoverable: bool = True
    give_up: bool = False
    outside: bool = True
    by_cluster: bool = False
    blind: bool = False
    kind: Literal["CreatingExecutionGraph"] = "CreatingExecutionGraph"


@value
class RetryingExecutionGraphCreation:
    error: str
    kind: Literal["RetryingExecutionGraphCreation"] = "RetryingExecutionGraphCreation"


@value
class Executing:
    """``first_batch``: a batch at the plan in force has been committed (the rescale that led here is complete)."""

    manager: Manager
    first_batch: bool = False
    kind: Literal["Executing"] = "Executing"


@value
class Rescaling:
    """``target`` was sent to the running driver and is not in force yet; ``state.plan`` still is.

    ``sent`` counts how often it was sent. Since it was sent again, the queries of ``behind`` have committed a batch
    at an older plan; ``ignored``: one of them more than one, so the driver does not take it.
    """

    target: Plan
    sent: int = 1
    behind: tuple[str, ...] = ()
    ignored: bool = False
    kind: Literal["Rescaling"] = "Rescaling"


@value
class StopWithSavepoint:
    """``target`` is a plan that was sent before the stop and is not known to be in force."""

    trigger_id: str
    target: Plan | None = None
    kind: Literal["StopWithSavepoint"] = "StopWithSavepoint"


@value
class Restarting:
    """The attempt is being stopped (``stopped`` false), then the backoff runs. ``target``: what a rescale is for.

    ``drain``: it is stopped at a batch boundary, and its process with it. ``give_up``: the redistribution of the state
    of a query of its program has failed, and is given up when the attempt is dead. ``kill``: it did not
    stop in time, and is killed.
    """

    backoff_ms: int
    target: tuple[tuple[str, int], ...] | None = None
    stopped: bool = False
    failures: tuple[Failure, ...] = ()
    drain: bool = False
    give_up: bool = False
    kill: bool = False
    kind: Literal["Restarting"] = "Restarting"


@value
class Failing:
    failure: Failure
    kind: Literal["Failing"] = "Failing"


@value
class Canceling:
    kind: Literal["Canceling"] = "Canceling"


@value
class Finished:
    status: JobStatus
    cause: str | None = None
    kind: Literal["Finished"] = "Finished"


Phase = (
    Created
    | WaitingForResources
    | CreatingExecutionGraph
    | RetryingExecutionGraphCreation
    | Executing
    | Rescaling
    | StopWithSavepoint
    | Restarting
    | Failing
    | Canceling
    | Finished
)


@value
class Timeline:
    """The rescale timeline (FLIP-495): the open record, what the next one counts from, pre-values.

    ``change``: the last change of bounds that did not wait in the queue (`JobState.open_change`).
    """

    open: RescaleRecord | None = None
    records: int = 0
    requirements_uuid: str | None = None
    attempt_id: int = 0
    last_completed: RescaleRecord | None = None
    counts: tuple[tuple[str, int], ...] = ()
    change: Change | None = None


@value
class Stop:
    """The stop operation that a client asked for: what GET .../savepoints/:triggerid answers."""

    trigger_id: str
    state: Literal["IN_PROGRESS", "COMPLETED"]
    location: str | None = None
    error: str | None = None


@value
class JobState:
    """Everything. ``plan`` is the plan in force (None before the first attempt runs and after the last one ended), and
    ``last_plan`` the one in force now or last. ``slots`` are held, whether the plan uses them or not.
    ``status_since_ms`` has the time of the last change into each status that was ever reached.
    ``batch``: how far a BATCH job has come, None before its first attempt runs and for a STREAMING one.
    ``spare``: the version ``versions.spare``, which is not in force and is needed.
    ``no_change``: why the job was left as it is, one for each reason. ``queued``: bounds that wait, oldest first.
    ``gone``: the vertices that have left the graph in the last day, and when."""

    job_id: str
    graph: JobGraph
    options: JobOptions
    requirements: Requirements
    phase: Phase = field(default_factory=Created)
    phase_version: int = 0
    phase_since_ms: int = 0
    timers: tuple[Timer, ...] = ()
    status_since_ms: tuple[tuple[JobStatus, int], ...] = ()
    slots: tuple[Slot, ...] = ()
    supply: Supply = field(default_factory=Supply)
    share: SlotShare = field(default_factory=SlotShare)
    policy: ScalingPolicy = field(default_factory=ScalingPolicy)
    queued: tuple[Patch, ...] = ()
    plan: Plan | None = None
    plan_version: int = 0
    last_plan: Plan | None = None
    attempt: int = 0
    driver: Driver = field(default_factory=Driver)
    stop: Stop | None = None
    recovery: Recovery = field(default_factory=Recovery)
    trial: Trial = field(default_factory=Trial)
    partitions: Partitions = field(default_factory=Partitions)
    versions: Versions = field(default_factory=Versions)
    spare: JobVersion | None = None
    batch: BatchProgress | None = None
    timeline: Timeline = field(default_factory=Timeline)
    num_rescales: int = 0
    no_change: tuple[NoChange, ...] = ()
    gone: tuple[tuple[str, int], ...] = ()

    @property
    def bounds(self) -> Requirements:
        """What was declared, within the scaling policy: decisions are made with these."""
        return within(self.policy, self.graph, self.requirements)

    def with_wanted_partitions(self, declared: Requirements | None = None) -> JobGraph:
        """The graph with the state partitions that ``declared`` asks for, by default what holds."""
        if declared is None:
            declared = within(self.policy, self.graph, self.requirements)
        return wanted_graph(
            self.graph, declared, self.options, has_run=self.attempt > 0, fixed=self.driver.fixed
        )

    @property
    def goal_graph(self) -> JobGraph:
        """The graph with the state partitions that the requirements ask for.

        ``graph`` itself if it has them, if a redistribution has been begun (one after the other), and if one was given
        up under these requirements.
        """
        if self.partitions.repartition is not None or self.is_repartition_given_up:
            return self.graph
        return self.with_wanted_partitions()

    @property
    def is_before_query(self) -> bool:
        """Whether the program of the job has started no query in this attempt, also if some are known."""
        graph = self.graph
        return graph.program is not None and graph.type is JobType.STREAMING and not self.driver.started

    @property
    def is_query_restarting(self) -> bool:
        """Whether a query is down, or was started again alone and has not committed a batch since."""
        return any(not one.over for one in self.recovery.local)

    @property
    def is_repartition_given_up(self) -> bool:
        """Whether a redistribution of state that the requirements ask for was tried and given up."""
        refused = self.partitions.refused
        return refused is not None and refused.requirements_uuid == self.requirements.uuid

    @property
    def slot_ids(self) -> set[str]:
        return {slot.id for slot in self.slots}

    @property
    def coming_plan(self) -> Plan | None:
        """The plan that is on its way into force."""
        phase = self.phase
        if isinstance(phase, CreatingExecutionGraph):
            return phase.plan
        return phase.target if isinstance(phase, Rescaling | StopWithSavepoint) else None

    @property
    def plans(self) -> list[Plan]:
        """The plans that use slots now: the one in force and one that is being brought into force."""
        return [plan for plan in (self.plan, self.coming_plan) if plan is not None]

    @property
    def open_change(self) -> Change | None:
        """The change of bounds that the open record is of, as long as no plan was made for it: it can be taken back."""
        change, record, phase = self.timeline.change, self.timeline.open, self.phase
        if change is None or record is None or record.number != change.record or record.rung is not None:
            return None
        return None if isinstance(phase, Restarting) and phase.target is not None else change

    @property
    def open_waits(self) -> bool:
        """Whether the open record is of bounds that wait in the queue."""
        number = -1 if self.timeline.open is None else self.timeline.open.number
        return any(one.record == number and one.begun is None for one in self.queued)

    @property
    def cluster_unreachable(self) -> bool:
        """While it is, nothing is started or stopped by what is known of the cluster's slots."""
        return self.supply.away_since_ms is not None

    @property
    def usable_slots(self) -> int:
        """How many slots the job may plan with. Those beyond are on their way back to the cluster."""
        return len(self.slots) if self.supply.allowed is None else min(len(self.slots), self.supply.allowed)

    @property
    def declared_within_cap(self) -> int:
        """How many of the slots that are declared are worth waiting for: those that the cap allows."""
        return self.share.within_cap(self.supply.declared, self.supply.minimal)
