"""Conversion of the result of a step to a unit of work of the store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from app.model.graphdoc import to_document
from app.model.jobgraph import JobGraph
from app.model.public_event import PublicEvent
from app.model.requirements import Requirements
from app.model.rescale import RescaleRecord
from app.model.scaling_policy import ScalingPolicy
from app.model.status import AttemptState
from app.scheduler.adaptive.draft import status_of
from app.scheduler.adaptive.effects import Effect
from app.scheduler.adaptive.events import Event
from app.scheduler.adaptive.journal import Told, facts_of
from app.scheduler.adaptive.state import JobState
from app.store.errors import LeaseLost, OutcomeUnknown, StoreError, StoreUnavailable
from app.store.store import Store
from app.store.writes import (
    AcknowledgeReports,
    AddEvents,
    AddIdempotencyKey,
    AddRequirements,
    AddScalingPolicy,
    Attempt,
    PutAttempt,
    PutRescale,
    SaveState,
    SetGraph,
    SetVersion,
    UnitOfWork,
    Write,
)
from app.worker.clock import JobClock
from app.worker.job.attempt_record import Ended
from app.worker.job.public_events import step_events
from app.worker.views import RequirementsResult

_DOUBT_RETRY_S = 0.5


class WriteFailed(Exception):
    """Nothing was written, and the same may be tried again; the message is a sentence."""


class LostOwnership(Exception):
    """Another control plane owns the job: nothing was written, and nothing more may be."""


class StateDiverged(Exception):
    """The database refuses what follows from the state in memory: nothing was written. Load the job again."""


@dataclass(slots=True)
class StepChanges:
    """What a run of steps changed, besides the state itself, in order.

    ``answers`` are those to requests with an Idempotency-Key: (request hash, answer) by key. ``rows`` are further
    rows that become durable with the change. ``acknowledged``: the attempt whose reports are taken down, and up to
    which number. ``events`` are the public events of the steps.
    """

    effects: list[Effect] = field(default_factory=list)
    records: dict[int, RescaleRecord] = field(default_factory=dict)
    answers: dict[str, tuple[str, RequirementsResult]] = field(default_factory=dict)
    rows: list[Write] = field(default_factory=list)
    acknowledged: tuple[int, int] | None = None
    events: list[PublicEvent] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write. An acknowledgement alone is not worth a transaction."""
        return not (self.effects or self.records or self.answers or self.rows)

    def add(
        self,
        before: JobState,
        event: Event,
        after: JobState,
        effects: tuple[Effect, ...],
        told: tuple[Told, ...],
        now_ms: int,
    ) -> None:
        """Add what one step did, and ``told``."""
        self.events.extend(step_events(told, event, after, now_ms))
        self.effects.extend(effects)
        self.records |= {one.number: one for one in facts_of(RescaleRecord, told)}
        is_replaced = after.versions.current != before.versions.current
        if is_replaced:
            self.rows.append(SetVersion(after.versions.current))
        # Queries, and what waits for them, may have come after a new version was asked for.
        if is_replaced or _is_other_graph(before.graph, after.graph):
            document = json.dumps(to_document(after.graph), separators=(",", ":"))
            self.rows.append(SetGraph(after.versions.current, document))
        # A step stores one version of each, the last that it has told.
        if requirements := facts_of(Requirements, told):
            self.rows.append(AddRequirements(requirements[-1], now_ms))
        if policies := facts_of(ScalingPolicy, told):
            self.rows.append(AddScalingPolicy(policies[-1]))


def _is_other_graph(before: JobGraph, after: JobGraph) -> bool:
    """Whether what is stored of the graph has changed: numbers of state partitions are part of the state."""
    if before is after:
        return False
    return _facts_of(before) != _facts_of(after)


def _facts_of(graph: JobGraph) -> tuple[object, ...]:
    own = [
        (one.id, one.operation, one.inputs, one.stateful, one.is_assumed, one.lower_bound)
        for one in graph.vertices
    ]
    return own, graph.ended, graph.left_out, graph.bounds


def ended_ms(state: JobState) -> int | None:
    """When the job reached its terminal status, None if it has not."""
    status = status_of(state)
    return dict(state.status_since_ms)[status] if status.is_globally_terminal else None


def latest_ms(state: JobState) -> int:
    """The latest instant that the state has seen.

    With a clock that is behind the one before, what was to happen some seconds later would else be an hour away.
    """
    record = state.timeline.open
    manager = getattr(state.phase, "manager", None)
    waits = () if manager is None else (manager.since_ms, manager.change_ms, manager.last_change_ms)
    seen = (
        state.phase_since_ms,
        state.supply.changed_ms,
        state.supply.away_since_ms,
        record.start_ms if record else 0,
    )
    armed = (timer.armed_ms for timer in state.timers)
    return max(instant or 0 for instant in (*seen, *waits, *armed))


class JobWriter:
    """Writes on behalf of one job, under its lease. Not for concurrent use, but for attempts (rows of their own)."""

    def __init__(
        self,
        store: Store,
        clock: JobClock,
        job_id: str,
        epoch: int,
        *,
        state_seq: int,
        is_sure: Callable[[], bool] = lambda: True,
    ) -> None:
        self._store = store
        self._clock = clock
        self._job_id = job_id
        self.epoch = epoch
        self._state_seq = state_seq
        # Whether no other server can own the job now. Otherwise only actions are done that a write checks.
        self.is_sure = is_sure

    async def write(
        self, before: JobState, after: JobState, change: StepChanges, on_doubt: Callable[[str], None]
    ) -> None:
        """Make everything durable in one transaction.

        ``on_doubt`` is told when it is not known for now whether it is durable; the same unit is tried until it is.

        Raises:
            WriteFailed: nothing was written.
            LostOwnership: nothing was written, and the job is not ours any more.
            StateDiverged: nothing was written, and nothing that follows from this state can be.
        """
        now_ms = self._clock.now_ms()
        unit = UnitOfWork(self._job_id, self.epoch)
        if after is not before:
            unit.add(SaveState(self._state_seq + 1, after, status_of(after), ended_ms(after)))
        # An ended record is put before the one that follows it: only one may be open.
        for number in sorted(change.records):
            unit.add(PutRescale(change.records[number]))
        for key, (request_hash, answer) in change.answers.items():
            unit.add(AddIdempotencyKey(key, request_hash, answer.version, answer.changed, now_ms))
        if change.acknowledged is not None:
            unit.add(AcknowledgeReports(*change.acknowledged))
        unit.add(*change.rows)
        if change.events:
            unit.add(AddEvents(tuple(change.events)))
        await self._commit(unit, on_doubt)
        if after is not before:
            self._state_seq += 1

    async def attempt_started(self, attempt: Attempt) -> None:
        """Durable when it returns, and the job still ours; raises like `write`."""
        await self._commit(UnitOfWork(self._job_id, self.epoch).add(PutAttempt(attempt)))
        if not self.is_sure():
            raise LostOwnership(
                "This process was stopped after it had recorded an attempt: it is not started."
            )

    def attempt_ended(self, attempt: Attempt, ended: Ended) -> Write:
        """The row that says that nothing of ``attempt`` lives; to be written with what follows from it."""
        now_ms = self._clock.now_ms()
        return PutAttempt(
            replace(
                attempt, state=AttemptState.DEAD, ended_ms=now_ms, ending=ended.ending, ended_why=ended.why
            )
        )

    async def _commit(self, unit: UnitOfWork, on_doubt: Callable[[str], None] | None = None) -> None:
        while True:
            try:
                await self._store.commit(unit)
                return
            except OutcomeUnknown as error:
                # The same unit, until the answer is another one: it may be durable already.
                if on_doubt is not None:
                    on_doubt(str(error))
                await asyncio.sleep(_DOUBT_RETRY_S)
            except LeaseLost as error:
                raise LostOwnership(str(error)) from error
            except StoreUnavailable as error:
                raise WriteFailed(str(error)) from error
            except StoreError as error:
                raise StateDiverged(str(error)) from error
