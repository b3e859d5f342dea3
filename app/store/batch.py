"""Units of work merged into the statements of one transaction.

Rows of one table keep the order of the units; tables are written in a fixed order that the foreign keys allow. Where
several units write the same row - the state of a job, its open rescale record - only the last one is written: the
ones before were never visible to anyone, because all become durable in the same transaction.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy.engine import Connection

from app.model.rescale import RescaleRecord
from app.store import codec, statements
from app.store.errors import ConstraintViolated, JobExists, LeaseLost, StateConflict, StoreError
from app.store.statements import Row
from app.store.versions import VersionWrite, write_versions
from app.store.writes import (
    FIRST_EPOCH,
    AcknowledgeReports,
    AddArtifact,
    AddEffect,
    AddIdempotencyKey,
    AddRequirements,
    AddVersion,
    Attempt,
    CreateJob,
    PutAttempt,
    PutRescale,
    RemoveEffect,
    SaveState,
    SetVersion,
    UnitOfWork,
)


class ChainBroken(StateConflict):
    """A state does not follow the stored one. In a merged transaction it is not known yet whose."""


@dataclass(slots=True)
class _StateRow:
    base: int
    save: SaveState
    token: str


@dataclass(slots=True)
class Batch:
    """The rows of some units, by statement."""

    owner: str
    lease_ttl_ms: int
    jobs: list[Row] = field(default_factory=list)
    first_states: list[Row] = field(default_factory=list)
    leases: list[Row] = field(default_factory=list)
    states: dict[str, list[_StateRow]] = field(default_factory=dict)
    requirements: list[Row] = field(default_factory=list)
    idempotency: list[Row] = field(default_factory=list)
    rescales: dict[tuple[str, int], RescaleRecord] = field(default_factory=dict)
    attempts: dict[tuple[str, int], Attempt] = field(default_factory=dict)
    acknowledged: dict[tuple[str, int], int] = field(default_factory=dict)
    artifacts: list[Row] = field(default_factory=list)
    versions: list[tuple[str, VersionWrite]] = field(default_factory=list)
    effects: list[Row] = field(default_factory=list)
    removed_effects: list[Row] = field(default_factory=list)

    def add_created(self, unit: UnitOfWork) -> None:
        """The rows that must exist before the fence is looked at: a created job with its lease."""
        for write in unit.writes:
            if isinstance(write, CreateJob):
                self._create(unit, write)

    def add(self, unit: UnitOfWork) -> None:  # noqa: C901 - one case for each kind of write
        """Everything else of ``unit``."""
        job_id = unit.job_id
        for write in unit.writes:
            match write:
                case CreateJob():
                    pass
                case SaveState():
                    self._save_state(unit, write)
                case PutRescale(record):
                    self._put_rescale(job_id, record)
                case AddEffect(seq, effect, created_ms):
                    self.effects.append((job_id, seq, codec.dump_effect(effect), created_ms))
                case RemoveEffect(seq):
                    self.removed_effects.append((job_id, seq))
                case AddRequirements():
                    self._add_requirements(job_id, write)
                case AddIdempotencyKey(key, request_hash, version, changed, created_ms):
                    self.idempotency.append((job_id, key, request_hash, version, int(changed), created_ms))
                case PutAttempt(attempt):
                    self.attempts[job_id, attempt.attempt] = attempt
                    self.acknowledged.pop((job_id, attempt.attempt), None)
                case AcknowledgeReports(attempt_number, number):
                    self.acknowledged[job_id, attempt_number] = number
                case AddVersion() | SetVersion():
                    self.versions.append((job_id, write))
                case AddArtifact():
                    self._add_artifact(job_id, write)

    def _add_artifact(self, job_id: str, add: AddArtifact) -> None:
        if add.version > 1:
            # Behind what `AddVersion` forgets.
            self.versions.append((job_id, add))
        else:
            digest = hashlib.sha256(add.content).hexdigest()
            self.artifacts.append((job_id, add.version, add.name, digest, add.content))

    def _create(self, unit: UnitOfWork, create: CreateJob) -> None:
        if unit.epoch != FIRST_EPOCH:
            raise ConstraintViolated(f"A job is created under epoch {FIRST_EPOCH}, not {unit.epoch}.")
        job_id = unit.job_id
        self.jobs.append(
            (
                job_id,
                codec.plain_text(create.name),
                str(create.type),
                create.document,
                codec.dump_options(create.options),
                create.submitted_ms,
                codec.plain_text(create.submitted_by),
            )
        )
        status = str(create.status)
        self.first_states.append((job_id, 1, unit.token, status, None, codec.dump_state(create.state)))
        self.leases.append((job_id, self.owner, FIRST_EPOCH, self.lease_ttl_ms))

    def _save_state(self, unit: UnitOfWork, save: SaveState) -> None:
        rows = self.states.setdefault(unit.job_id, [])
        if rows and rows[-1].save.seq == save.seq - 1:
            rows[-1].save, rows[-1].token = save, unit.token
        else:
            rows.append(_StateRow(save.seq - 1, save, unit.token))

    def _put_rescale(self, job_id: str, record: RescaleRecord) -> None:
        known = self.rescales.get((job_id, record.number))
        if known is not None and not known.is_open:
            raise ConstraintViolated(
                f"Rescale record {record.number} of job {job_id} has ended: it is never changed again."
            )
        self.rescales[job_id, record.number] = record

    def _add_requirements(self, job_id: str, add: AddRequirements) -> None:
        wanted = add.requirements
        self.requirements.append(
            (
                job_id,
                wanted.version,
                wanted.uuid,
                codec.dump_bounds(wanted.bounds),
                codec.dump_numbers(wanted.state_partitions),
                codec.plain_text(wanted.requested_by),
                codec.plain_text(wanted.reason),
                add.created_ms,
            )
        )

    def write_created(self, connection: Connection) -> None:
        if self.jobs:
            statements.run(connection, statements.INSERT_JOB, self.jobs)
            statements.run(connection, statements.INSERT_STATE, self.first_states)
            statements.run(connection, statements.INSERT_LEASE[connection.dialect.name], self.leases)

    def write(self, connection: Connection) -> None:
        """
        Raises:
            ChainBroken: a state does not follow the stored one.
            ConstraintViolated: an idempotency key is stored with another answer.
        """
        self._write_states(connection)
        self._write_idempotency(connection)
        acknowledged = [(job, attempt, number) for (job, attempt), number in self.acknowledged.items()]
        for statement, rows in (
            (statements.INSERT_REQUIREMENTS, self.requirements),
            (
                statements.UPSERT_RESCALE,
                [_rescale_row(job, record) for (job, _), record in self.rescales.items()],
            ),
            (
                statements.UPSERT_ATTEMPT,
                [_attempt_row(job, attempt) for (job, _), attempt in self.attempts.items()],
            ),
            (statements.ACKNOWLEDGE, acknowledged),
            (statements.INSERT_ARTIFACT, self.artifacts),
            (statements.INSERT_EFFECT, self.effects),
            (statements.DELETE_EFFECT, self.removed_effects),
        ):
            if rows:
                statements.run(connection, statement, rows)
        write_versions(connection, self.versions)

    def _write_idempotency(self, connection: Connection) -> None:
        rows = self.idempotency
        if rows and statements.run(connection, statements.INSERT_IDEMPOTENCY, rows) != len(rows):
            raise ConstraintViolated("An Idempotency-Key has another answer already.")

    def _write_states(self, connection: Connection) -> None:
        rows: list[Row] = []
        last_rows: list[Row] = []
        for job_id, chain in self.states.items():
            if len(chain) > 1:
                raise ChainBroken(f"The states of job {job_id} do not follow each other.")
            row = chain[0]
            save = row.save
            text = codec.dump_state(save.state)
            values = (job_id, row.base, save.seq, row.token, str(save.status), text)
            if save.ended_ms is None:
                rows.append(values)
            else:
                last_rows.append((*values, save.ended_ms))
        for statement, some in ((statements.UPDATE_STATE, rows), (statements.UPDATE_LAST_STATE, last_rows)):
            if some and statements.run(connection, statement, some) != len(some):
                raise ChainBroken("A state does not follow the stored one.")

    def tokens(self) -> dict[str, str]:
        """The token that each job has in the database once this batch is durable."""
        tokens = {str(row[0]): str(row[2]) for row in self.first_states}
        tokens.update({job_id: chain[-1].token for job_id, chain in self.states.items()})
        return tokens


def lost_leases(connection: Connection, owner: str, units: Sequence[UnitOfWork]) -> dict[int, LeaseLost]:
    """The units (by index) whose lease ``owner`` does not hold at their epoch. Their rows must not be written."""
    jobs = sorted({unit.job_id for unit in units})
    fence = statements.FENCE[connection.dialect.name]
    held = {
        str(job): int(epoch)
        for job, epoch in statements.fetch(connection, fence, [(j,) for j in jobs], (owner,))
    }
    return {
        index: LeaseLost(unit.job_id, owner, unit.epoch)
        for index, unit in enumerate(units)
        if held.get(unit.job_id) != unit.epoch
    }


def stored_tokens(connection: Connection, jobs: Sequence[str]) -> dict[str, tuple[int, str]]:
    """State number and token of the unit that wrote it, per job."""
    rows = statements.fetch(connection, statements.STATE_TOKENS, [(job,) for job in jobs])
    return {str(job): (int(seq), str(token)) for job, seq, token in rows}


def explain_conflict(
    unit: UnitOfWork, stored: tuple[int, str] | None, error: StoreError
) -> StoreError | None:
    """Why ``unit`` could not be written alone; None when it is durable already (it was committed before)."""
    if stored is not None and stored[1] == unit.token:
        return None
    for write in unit.writes:
        if isinstance(write, CreateJob) and stored is not None:
            return JobExists(f"A job with the id {unit.job_id} exists already.")
        if isinstance(write, SaveState) and isinstance(error, ChainBroken):
            found = "no state" if stored is None else f"state {stored[0]}"
            return StateConflict(
                f"State {write.seq} of job {unit.job_id} cannot be written: the database holds {found}, "
                f"and state {write.seq - 1} is expected."
            )
    return error


def _rescale_row(job_id: str, record: RescaleRecord) -> Row:
    terminal = record.terminal_state
    return (
        job_id,
        record.number,
        record.uuid,
        record.requirements_uuid,
        record.attempt_id,
        str(record.cause),
        record.start_ms,
        record.end_ms,
        None if record.reason is None else str(record.reason),
        None if terminal is None else str(terminal),
        codec.plain_text(record.message),
        None if record.rung is None else str(record.rung),
        record.output_gap_ms,
        record.reprocessed_records,
        codec.plain_text(record.requested_by),
        codec.plain_text(record.request_reason),
        record.rollback_of,
        codec.dump_vertices(record.vertices),
        codec.dump_groups(record.groups),
        codec.dump_spans(record.spans),
    )


def _attempt_row(job_id: str, attempt: Attempt) -> Row:
    return (
        job_id,
        attempt.attempt,
        attempt.epoch,
        attempt.driver_id,
        attempt.pid,
        attempt.pid_started_at,
        attempt.lock_file,
        attempt.secret_hash,
        str(attempt.state),
        attempt.acknowledged,
        attempt.started_ms,
        attempt.ended_ms,
        attempt.runs_on,
    )
