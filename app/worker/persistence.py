"""What a step means for the database: the bridge from the core's values to the store's unit of work."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from app.cluster.ports import DriverRef
from app.model.rescale import RescaleRecord
from app.scheduler.adaptive.effects import Effect
from app.scheduler.adaptive.state import JobState
from app.scheduler.adaptive.step import status_of
from app.store.errors import LeaseLost, OutcomeUnknown, StoreError
from app.store.store import Store
from app.store.tables import AttemptState
from app.store.writes import (
    AcknowledgeReports,
    AddEffect,
    AddIdempotencyKey,
    AddRequirements,
    Attempt,
    PutAttempt,
    PutRescale,
    RemoveEffect,
    SaveState,
    UnitOfWork,
)
from app.worker.attempts import AttemptRecord
from app.worker.clock import Clock
from app.worker.views import RequirementsResult


_DOUBT_RETRY_S = 0.5


class WriteFailed(Exception):
    """Nothing was written; the message is a sentence."""


class LostOwnership(Exception):
    """Another control plane owns the job: nothing was written, and nothing more may be."""


@dataclass(slots=True)
class Change:
    """What a run of steps changed, besides the state itself, in order."""

    effects: list[Effect] = field(default_factory=list)
    records: dict[int, RescaleRecord] = field(default_factory=dict)
    requirements: list[tuple[Any, int]] = field(default_factory=list)
    idempotency: list[tuple[str, str, Any]] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not (self.effects or self.records or self.requirements or self.idempotency)

    def add(self, before: JobState, after: JobState, effects: tuple[Effect, ...], now_ms: int) -> None:
        """Add what one step did."""
        self.effects.extend(effects)
        for record in after.timeline.closed:
            self.records[record.number] = record
        record_now = after.timeline.open
        if record_now is not None and record_now is not before.timeline.open:
            self.records[record_now.number] = record_now
        if after.requirements is not before.requirements:
            self.requirements.append((after.requirements, now_ms))


class JobWriter:
    """Writes on behalf of one job, under its lease. Not for concurrent use, but for attempts (rows of their own)."""

    def __init__(
        self, store: Store, clock: Clock, job_id: str, epoch: int, *, state_seq: int, effect_seq: int
    ) -> None:
        self._store = store
        self._clock = clock
        self._job_id = job_id
        self.epoch = epoch
        self._state_seq = state_seq
        self._effect_seq = effect_seq
        self._performed: list[int] = []
        self._written: list[int] = []

    def pending(self, seqs: list[int]) -> None:
        """Effects found in the outbox at start: they are removed with the next write, having been performed again."""
        self._performed.extend(seqs)

    async def write(self, before: JobState, after: JobState, change: Change) -> None:
        """Make everything durable in one transaction.

        Raises:
            WriteFailed: nothing was written.
            LostOwnership: nothing was written, and the job is not ours any more.
        """
        now_ms = self._clock.now_ms()
        unit = UnitOfWork(self._job_id, self.epoch)
        effect_seq = self._effect_seq
        written: list[int] = []
        if after is not before:
            status = status_of(after)
            ended_ms = now_ms if status.is_globally_terminal else None
            unit.add(SaveState(self._state_seq + 1, after, status, ended_ms))
        # An ended record is put before the one that follows it: only one may be open.
        for number in sorted(change.records):
            unit.add(PutRescale(change.records[number]))
        for requirements, created_ms in change.requirements:
            unit.add(AddRequirements(requirements, created_ms))
        for key, fingerprint, answer in change.idempotency:
            result: RequirementsResult = answer
            unit.add(AddIdempotencyKey(key, fingerprint, result.version, result.changed, now_ms))
        for seq in self._performed:
            unit.add(RemoveEffect(seq))
        for effect in change.effects:
            effect_seq += 1
            written.append(effect_seq)
            unit.add(AddEffect(effect_seq, effect, now_ms))
        await self._commit(unit)
        if after is not before:
            self._state_seq += 1
        self._effect_seq = effect_seq
        self._performed = []
        self._written = written

    def performed(self) -> None:
        """The effects of the last write were performed; their rows go with the next write."""
        self._performed.extend(self._written)
        self._written = []

    async def attempt_started(self, record: AttemptRecord) -> None:
        await self._commit(
            UnitOfWork(self._job_id, self.epoch).add(PutAttempt(self._row(record, AttemptState.LIVE)))
        )

    async def attempt_ended(self, record: AttemptRecord) -> None:
        await self._commit(
            UnitOfWork(self._job_id, self.epoch).add(PutAttempt(self._row(record, AttemptState.DEAD)))
        )

    async def reports_acknowledged(self, attempt: int, number: int) -> None:
        await self._commit(UnitOfWork(self._job_id, self.epoch).add(AcknowledgeReports(attempt, number)))

    def _row(self, record: AttemptRecord, state: AttemptState) -> Attempt:
        return Attempt(
            attempt=record.attempt,
            epoch=record.epoch,
            driver_id=record.ref.driver_id,
            secret_hash=record.secret_hash,
            started_ms=record.started_ms,
            state=state,
            pid=record.ref.pid,
            pid_started_at=record.ref.pid_started_at,
            lock_file=record.ref.lock_file,
            ended_ms=self._clock.now_ms() if state is AttemptState.DEAD else None,
        )

    async def _commit(self, unit: UnitOfWork) -> None:
        try:
            while True:
                try:
                    return await self._store.commit(unit)
                except OutcomeUnknown:
                    # It may be durable, so neither "written" nor "not written" is true yet: only the same unit,
                    # committed again, brings the answer.
                    await asyncio.sleep(_DOUBT_RETRY_S)
        except LeaseLost as error:
            raise LostOwnership(str(error)) from error
        except StoreError as error:
            raise WriteFailed(str(error)) from error


def attempt_record(row: Attempt) -> AttemptRecord:
    """The attempt of a row of the database."""
    ref = DriverRef(row.driver_id, row.pid or 0, row.pid_started_at or 0.0, row.lock_file or "")
    return AttemptRecord(row.attempt, row.epoch, ref, row.secret_hash, row.started_ms)
