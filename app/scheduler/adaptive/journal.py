"""The facts that a step of a job tells. Each is told by whoever decides it, with `Draft.tell`.

The records, requirements and policies that are stored of a step, and the public events, are made of these facts
(`app.worker.job.persistence`, `app.worker.job.public_events`). A fact that the model has a value for is that value: the
requirements, the scaling policy and the slot share that count from now on, a failure, a rescale record as it is now.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from app.model.job_state.failures import Failure
from app.model.job_state.no_change import NoChange
from app.model.jobgraph import JobGraph
from app.model.requirements import Requirements
from app.model.rescale import RescaleRecord
from app.model.scaling_policy import ScalingPolicy
from app.model.slot_share import SlotShare
from app.model.status import JobStatus
from app.model.value import value

T = TypeVar("T")


@value
class GraphReplaced:
    """The graph ``before`` was replaced by one that may have other vertices."""

    before: JobGraph


@value
class AttemptEnded:
    """Nothing of this attempt writes any more."""

    attempt: int


@value
class AttemptBegun:
    attempt: int


@value
class RecordBegun:
    """What is told of the record ``number`` from now on is of one that was not there before."""

    number: int


@value
class Moved:
    """The job has entered another phase, or the open record has got another rung."""


@value
class Restarted:
    """``query``, or the whole job if it is None, is started again after ``backoff_ms``, for the ``number``-th time."""

    query: str | None
    number: int
    backoff_ms: int


@value
class LeftAsItIs:
    """``decision`` was made once more; ``over``: it does not count any more."""

    decision: NoChange
    over: bool


@value
class StatusChanged:
    before: JobStatus
    after: JobStatus


Told = (
    Requirements
    | ScalingPolicy
    | SlotShare
    | GraphReplaced
    | Failure
    | AttemptEnded
    | AttemptBegun
    | RecordBegun
    | RescaleRecord
    | Moved
    | Restarted
    | LeftAsItIs
    | StatusChanged
)


def facts_of(kind: type[T], told: Iterable[Told]) -> list[T]:
    """What was ``told`` of that kind, in order."""
    return [one for one in told if isinstance(one, kind)]
