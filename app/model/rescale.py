"""Rescale records: one per attempt to bring a plan into force (FLIP-495, with what Flink leaves out)."""

from __future__ import annotations

from dataclasses import fields
from enum import StrEnum
from typing import Final

from app.model.plan import Rung
from app.model.value import value


class TriggerCause(StrEnum):
    INITIAL_SCHEDULE = "INITIAL_SCHEDULE"
    UPDATE_REQUIREMENT = "UPDATE_REQUIREMENT"
    NEW_RESOURCE_AVAILABLE = "NEW_RESOURCE_AVAILABLE"
    RECOVERABLE_FAILOVER = "RECOVERABLE_FAILOVER"
    UPDATE_POLICY = "UPDATE_POLICY"

    @property
    def is_asked(self) -> bool:
        """Whether a user has asked for it; other rescales have another cause."""
        return self in (TriggerCause.UPDATE_REQUIREMENT, TriggerCause.UPDATE_POLICY)


class TerminalState(StrEnum):
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    IGNORED = "IGNORED"


class TerminatedReason(StrEnum):
    SUCCEEDED = "SUCCEEDED"
    EXCEPTION_OCCURRED = "EXCEPTION_OCCURRED"
    RESOURCE_REQUIREMENTS_UPDATED = "RESOURCE_REQUIREMENTS_UPDATED"
    NO_RESOURCES_OR_PARALLELISMS_CHANGE = "NO_RESOURCES_OR_PARALLELISMS_CHANGE"
    JOB_FINISHED = "JOB_FINISHED"
    JOB_FAILED = "JOB_FAILED"
    JOB_CANCELED = "JOB_CANCELED"
    JOB_FAILOVER_RESTARTING = "JOB_FAILOVER_RESTARTING"

    @property
    def terminal_state(self) -> TerminalState:
        """The terminal state that the reason implies (FLIP-495, "TerminatedReason")."""
        if self is TerminatedReason.SUCCEEDED:
            return TerminalState.COMPLETED
        if self is TerminatedReason.EXCEPTION_OCCURRED:
            return TerminalState.FAILED
        return TerminalState.IGNORED


@value
class StateSpan:
    """The time that the scheduler spent in one state during a rescale; the spans of a record add up to it."""

    state: str
    enter_ms: int
    leave_ms: int | None
    exception: str | None = None


@value
class VertexRescale:
    """What a rescale meant for one vertex. ``post`` is null until slots are assigned, ``pre`` before the first plan."""

    vertex_id: str
    desired: int
    sufficient: int
    pre: int | None
    post: int | None


@value
class SlotGroupRescale:
    """What a rescale meant for one slot sharing group, in slots."""

    group_id: str
    group_name: str
    desired: int
    minimal: int
    pre: int | None
    post: int | None


@value
class Measured:
    """What a driver measures of a rescale, under the names that reports and records have for it.

    ``output_gap_ms`` is the longest pause between two completed batches around the change less the steady interval, 0
    if there was no input when the change came into force; None if there was no batch before it.
    """

    output_gap_ms: int | None = None
    reprocessed_records: int | None = None

    @classmethod
    def of(cls, value: object) -> Measured:
        """That in a report or a record."""
        return cls(**{one.name: getattr(value, one.name) for one in fields(cls)})


NOTHING_MEASURED: Final = Measured()


@value
class RescaleRecord:
    """One entry of the rescale history. Open while ``reason`` is None; at most one per job is open.

    ``number`` counts the records of the job from 1. ``spans`` holds closed spans; the span of the current state is
    added when it is left or when the record ends. ``rollback_of``: this one takes back that record's rescale.
    """

    uuid: str
    number: int
    requirements_uuid: str
    attempt_id: int
    cause: TriggerCause
    start_ms: int
    vertices: tuple[VertexRescale, ...]
    groups: tuple[SlotGroupRescale, ...]
    spans: tuple[StateSpan, ...] = ()
    end_ms: int | None = None
    reason: TerminatedReason | None = None
    message: str | None = None
    rung: Rung | None = None
    output_gap_ms: int | None = None
    reprocessed_records: int | None = None
    requested_by: str | None = None
    request_reason: str | None = None
    rollback_of: int | None = None

    @property
    def has_plan(self) -> bool:
        """Whether a plan was chosen for it."""
        return self.rung is not None

    @property
    def is_of_lost_slot(self) -> bool:
        """Whether it is a failover that a lost slot began, while its attempt kept running."""
        is_failover = self.cause is TriggerCause.RECOVERABLE_FAILOVER
        runs = not any(span.state == "Restarting" for span in self.spans)
        return is_failover and runs and self.rung in (None, Rung.IN_PLACE)

    @property
    def is_open(self) -> bool:
        return self.reason is None

    @property
    def terminal_state(self) -> TerminalState | None:
        return None if self.reason is None else self.reason.terminal_state
