"""The events of a job, STREAMING or BATCH. An event is a fact, told to `step`; it never asks for a particular outcome.

Events that come from a driver carry the attempt they belong to: one of an earlier attempt is dropped by `step`
(it is late), so the shell may deliver an event twice, late, or out of order.
"""

from __future__ import annotations

from typing import ClassVar

from app.model.batch import Result
from app.model.job_state.changes import Change, Pace, Patch
from app.model.job_state.versions import JobVersion
from app.model.jobgraph import JobGraph
from app.model.plan import Slot
from app.model.requirements import Deadline, Requirements
from app.model.rescale import NOTHING_MEASURED, Measured
from app.model.scaling_policy import ScalingPolicy
from app.model.slot_share import SlotShare
from app.model.state_partitions import Numbers
from app.model.value import value


@value
class StartScheduling:
    """The job was submitted and is durable."""


@value
class RequirementsUpdated:
    """A client declared other bounds. They are validated; ``requirements.uuid`` and ``version`` are new.

    Equal bounds are a complete no-op, as in production Flink: no record, no new version. ``deadline``: until when they
    may wait for their slots. ``undoes``: what this takes back. ``why``: sentences on the reason. ``patch``: that
    has waited in the queue, and is applied by this, or put back; a record that is open goes on."""

    requirements: Requirements
    deadline: Deadline | None = None
    undoes: Patch | Change | None = None
    why: str = ""
    patch: Patch | None = None


@value
class ScalingPolicyUpdated:
    """An operator set another floor or ceiling. They fit the job; ``policy.version`` is new."""

    policy: ScalingPolicy


BoundsUpdated = RequirementsUpdated | ScalingPolicyUpdated
"""Other bounds count from now on."""


@value
class SlotShareUpdated:
    """A client declared another weight, priority or cap; ``share.version`` is new. The cluster decides what follows."""

    share: SlotShare


@value
class SlotsChanged:
    """The slots that the cluster grants this job, all of them, in a stable order.

    ``allowed``: how many of them it may go on to use, None for all. The job chooses which, and gives the others back as
    soon as no plan uses them. ``reason``: why so many, in words, if other jobs or its cap have to do with it.
    ``cluster_unreachable``: these are the slots of before it was: they may be gone, others may have come.
    ``coming``: so many more are allotted to it, which other jobs are giving back. Repeats are harmless."""

    slots: tuple[Slot, ...]
    allowed: int | None = None
    reason: str | None = None
    cluster_unreachable: bool = False
    coming: int = 0


@value
class DriverReady:
    """A process is there for ``attempt``, and is about to be given its plan."""

    attempt: int


@value
class GraphAnalysed:
    """Spark says which vertices keep state; the driver, in how many partitions. ``fixed``: as in `JobState`."""

    attempt: int
    stateful: Numbers
    fixed: str | None = None


@value
class QueryStarted:
    """The program has started the query of sink ``query``, for the first time or again. ``graph``: with its vertices.
    ``parallelism``: what they run at, by vertex id. ``begins_anew``: its checkpoint lacks what it had committed."""

    attempt: int
    query: str
    graph: JobGraph
    parallelism: tuple[tuple[str, int], ...]
    begins_anew: bool = False


@value
class QueryEnded:
    """The query of sink ``query`` has ended, by itself or by its program, which runs on."""

    attempt: int
    query: str


@value
class AttemptRunning:
    """The driver of ``attempt`` registered, and its queries run with the plan it was given, or its program has begun.

    ``source_bytes``: known sizes of the files of a BATCH job's sources, by vertex id. ``before``: known paces at the
    plan before. ``missing_executors``: not given. ``begun``: queries come later."""

    attempt: int
    source_bytes: tuple[tuple[str, int], ...] = ()
    before: tuple[Pace, ...] = ()
    missing_executors: int = 0
    begun: bool = False


@value
class StateRepartitioned:
    """State partitions that the driver found or made, by query key: where it was to make them, or was told others."""

    attempt: int
    partitions: Numbers


@value
class AttemptStartFailed:
    """The driver of ``attempt`` could not be started; nothing of it is left alive. For the rest see `AttemptFailed`."""

    attempt: int
    error: str
    recoverable: bool = True
    stopped: ClassVar[bool] = True
    repartition: ClassVar[bool] = False
    outside: ClassVar[bool] = True
    by_cluster: ClassVar[bool] = False


@value
class BatchCompleted:
    """A micro-batch was committed: our completed checkpoint, hence a rescale trigger.

    ``pace`` is that of a batch after which more rows waited at the sources: others say nothing of what the job can do.
    ``has_rows``: it read some; Spark also makes batches without, which let time pass for what keeps state.
    ``not_followed``: as in `PlanApplied`, of vertices that had other tasks in this batch and in the one before.
    ``measured``: what is known yet of the change of plan that this batch may complete."""

    attempt: int
    query_id: str
    batch_id: int
    plan_version: int
    pace: Pace | None = None
    has_rows: bool = True
    not_followed: tuple[tuple[str, str], ...] = ()
    measured: Measured = NOTHING_MEASURED


@value
class PlanApplied:
    """Every query of ``attempt`` has committed a batch at ``plan_version``, or has no data and will run its next so.

    ``before``: the pace of each query at the plan before, as far as it is known. ``missing_executors``: how many of a
    cluster it was not given. ``not_followed``: the id of each vertex that has other tasks in a batch at this plan than
    the plan says, and a sentence on it. ``interrupted``: sentences on batches that were interrupted for it and ran
    again."""

    attempt: int
    plan_version: int
    measured: Measured = NOTHING_MEASURED
    before: tuple[Pace, ...] = ()
    missing_executors: int = 0
    not_followed: tuple[tuple[str, str], ...] = ()
    interrupted: str = ""


@value
class RegionFinished:
    """Run ``run`` of a region of a BATCH job is complete, and so are its ``results`` on durable storage."""

    attempt: int
    region: int
    run: int
    results: tuple[Result, ...] = ()


@value
class RegionFailed:
    """Run ``run`` of a region of a BATCH job failed; the driver is well, and nothing of the run writes any more.

    ``lost``: ids of datasets whose results it could not read. ``vertex`` and ``stack`` as in `AttemptFailed`."""

    attempt: int
    region: int
    run: int
    error: str
    recoverable: bool = True
    lost: tuple[str, ...] = ()
    vertex: str | None = None
    stack: str | None = None
    why: str = ""
    user_error: str | None = None


@value
class AttemptFailed:
    """A query, a user function or the driver process of ``attempt`` failed.

    ``stopped``: nothing of the attempt is alive any more (the process is gone). ``vertex``: where, if known.
    ``stack``: the story for the log and the exception history, never for an answer's sentence.
    ``repartition``: it was the redistribution of the state that failed; the state is as it was.
    ``outside``: it is not the job's own doing; its process was killed, or is gone for a reason that nobody knows.
    ``by_cluster``: it is the cluster's, as the driver says: no executors have come, or none that could work.
    ``by_files``: a file of the input or of the checkpoint is damaged or gone.
    ``plan_version``: the newest plan that it had begun a batch with, 0 if that is not known. ``at_ms``: when, if it was
    learned later. ``why``: a sentence on what made it recoverable or not. ``user_error``: what the user's code raised,
    and where, in batch ``batch_id`` (-1: unknown) of ``query_id``. Outside of any query that is empty, and ``batch_id``
    the number of batches that are committed."""

    attempt: int
    error: str
    stopped: bool
    recoverable: bool = True
    vertex: str | None = None
    stack: str | None = None
    repartition: bool = False
    outside: bool = False
    by_cluster: bool = False
    plan_version: int = 0
    at_ms: int | None = None
    why: str = ""
    user_error: str | None = None
    query_id: str = ""
    batch_id: int = -1
    by_files: bool = False


@value
class QueryFailed:
    """The query of sink ``query`` failed, the ``number``-th time in ``attempt``. The driver is well, nothing of that
    query writes any more, and it waits for the order to start it again. The other fields are as in `AttemptFailed`.
    ``longest_batch_ms``: how long the longest of its batches took in this attempt."""

    attempt: int
    query: str
    number: int
    error: str
    recoverable: bool = True
    vertex: str | None = None
    stack: str | None = None
    outside: bool = False
    plan_version: int = 0
    at_ms: int | None = None
    why: str = ""
    user_error: str | None = None
    query_id: str = ""
    batch_id: int = -1
    by_files: bool = False
    longest_batch_ms: int = 0


@value
class QueryRecovered:
    """Since it was started again after its failure ``number`` the query has committed a batch, or has nothing to do."""

    attempt: int
    query: str
    number: int


@value
class DriverContact:
    """Whether the control plane that owns the job now, and has taken it up, has heard the driver of ``attempt``. Until
    then what that did meanwhile is on its way."""

    attempt: int
    heard: bool


@value
class AttemptMisplaced:
    """The driver of ``attempt`` runs on another cluster than jobs do now: its slots do not count, as ``why`` says."""

    attempt: int
    why: str


@value
class AttemptStopped:
    """Nothing writes the checkpoint on behalf of ``attempt`` any more, as ``StopAttempt`` asked.

    ``drained``: it stopped at a batch boundary. ``driver_alive``: the process waits for a new assignment.
    ``location``: the checkpoint, when drained. ``error`` with ``driver_alive``: it could not drain, and runs on."""

    attempt: int
    drained: bool = False
    driver_alive: bool = False
    location: str | None = None
    error: str | None = None


@value
class AttemptFinished:
    """Every source of ``attempt`` is exhausted, every batch is committed, and nothing of it is alive."""

    attempt: int


@value
class TimerFired:
    """A timer that the state holds is due. It is dropped when the state no longer holds it (FLIP-160's version)."""

    name: str
    version: int


@value
class CancelRequested:
    requested_by: str | None = None


@value
class StopRequested:
    """Stop at a batch boundary and finish (Flink: stop with savepoint). ``trigger_id`` names the operation."""

    trigger_id: str
    requested_by: str | None = None


@value
class VersionRequested:
    """A client has another version of the job, which is durable and fits the state. Its number is new."""

    version: JobVersion
    requested_by: str | None = None


@value
class EnvironmentReady:
    """What version ``number`` of the job is to run in was built; or it cannot be, for the reason in ``error``."""

    number: int
    error: str = ""


@value
class GlobalFailure:
    """A failure that belongs to no attempt (for example: the scheduler itself cannot go on)."""

    error: str
    recoverable: bool = True


Event = (
    StartScheduling
    | RequirementsUpdated
    | ScalingPolicyUpdated
    | SlotShareUpdated
    | SlotsChanged
    | DriverReady
    | GraphAnalysed
    | QueryStarted
    | QueryEnded
    | AttemptRunning
    | StateRepartitioned
    | AttemptStartFailed
    | BatchCompleted
    | PlanApplied
    | RegionFinished
    | RegionFailed
    | AttemptFailed
    | QueryFailed
    | QueryRecovered
    | DriverContact
    | AttemptMisplaced
    | AttemptStopped
    | AttemptFinished
    | TimerFired
    | CancelRequested
    | StopRequested
    | VersionRequested
    | EnvironmentReady
    | GlobalFailure
)
