"""What `step` asks the shell to do, once the new state is durable. Every effect is idempotent: after a crash the shell
does what the state asks for (`app.worker.job.orders`), whatever was done before."""

from __future__ import annotations

from enum import StrEnum

from app.model.plan import Plan
from app.model.value import value


class StopMode(StrEnum):
    KILL = "kill"
    """As fast as possible; the batch in flight runs again later, with the same id."""
    BOUNDARY = "boundary"
    """After the batch in flight; the driver process stays for another attempt if it can."""
    DRAIN = "drain"
    """After the batch in flight, for good; the checkpoint is left complete (offsets equal commits)."""


@value
class DeclareResources:
    """The number of slots the job wants from now on, and the number it cannot do without."""

    desired: int
    minimal: int


@value
class ReleaseSlots:
    """Slots that the job gives back; they are no longer its own."""

    slot_ids: tuple[str, ...]


@value
class StartAttempt:
    """Start ``attempt`` with ``plan``: in the driver that waits (``reuse_driver``) if it lives, else in a new one.

    Answered by AttemptRunning or AttemptStartFailed. The shell starts nothing before the attempt before is known dead.
    """

    attempt: int
    plan: Plan
    reuse_driver: bool = False


@value
class SendPlan:
    """Bring ``plan`` into force in place at the next micro-batch of ``attempt``. Answered by PlanApplied."""

    attempt: int
    plan: Plan


@value
class RestartQuery:
    """Start the query of sink ``query`` again after its failure ``number``, in ``attempt``, whose others run on.

    Answered by QueryRecovered or QueryFailed.
    """

    attempt: int
    query: str
    number: int


@value
class StopAttempt:
    """End ``attempt``. Answered by AttemptStopped, also when it was dead already."""

    attempt: int
    mode: StopMode


@value
class JobTerminated:
    """The job reached a terminal state: release what it holds, forget its driver."""


Effect = (
    DeclareResources | ReleaseSlots | StartAttempt | SendPlan | RestartQuery | StopAttempt | JobTerminated
)
