"""Units of work merged into the statements of one transaction.

Rows of one table keep the order of the units; tables are written in a fixed order that the foreign keys allow. Where
several units write the same row - the state of a job, its open rescale record - only the last one is written: the
ones before were never visible to anyone, because all become durable in the same transaction.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from sqlalchemy.engine import Connection

from app.model.rescale import RescaleRecord
from app.store import codec, statements
from app.store.codec import ATTEMPTS, REQUIREMENTS, RESCALES, SCALING_POLICIES
from app.store.errors import ConstraintViolated, JobExists, KeyUsed, LeaseLost, StateConflict, StoreError
from app.store.events import event_row, insert_events
from app.store.statements import Row, Statement, sql
from app.store.writes import (
    FIRST_EPOCH,
    AcknowledgeReports,
    AddArtifact,
    AddEvents,
    AddIdempotencyKey,
    AddRequirements,
    AddRow,
    AddScalingPolicy,
    AddSubmissionKey,
    AddVersion,
    Attempt,
    CreateJob,
    DescribeDriver,
    PutAttempt,
    PutRescale,
    SaveState,
    SetGraph,
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
class MergedUnits:
    """The rows of some units, by statement."""

    owner: str
    lease_ttl_ms: int
    jobs: list[dict[str, Any]] = field(default_factory=list)
    first_states: list[dict[str, Any]] = field(default_factory=list)
    leases: list[Row] = field(default_factory=list)
    states: dict[str, list[_StateRow]] = field(default_factory=dict)
    requirements: list[Row] = field(default_factory=list)
    policies: list[Row] = field(default_factory=list)
    idempotency: list[dict[str, Any]] = field(default_factory=list)
    submission_keys: list[dict[str, Any]] = field(default_factory=list)
    rescales: dict[tuple[str, int], RescaleRecord] = field(default_factory=dict)
    attempts: dict[tuple[str, int], Attempt] = field(default_factory=dict)
    acknowledged: dict[tuple[str, int], int] = field(default_factory=dict)
    described: list[Row] = field(default_factory=list)
    artifacts: list[dict[str, Any]] = field(default_factory=list)
    others: list[tuple[Statement, Row]] = field(default_factory=list)
    versions: list[tuple[str, AddVersion | SetVersion | SetGraph | AddArtifact]] = field(default_factory=list)
    events: list[Row] = field(default_factory=list)

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
                case AddEvents(events):
                    self.events.extend(event_row(job_id, event) for event in events)
                case AddRequirements(requirements, created_ms):
                    self.requirements.append(REQUIREMENTS.row(job_id, requirements, created_ms))
                case AddScalingPolicy(policy):
                    self.policies.append(SCALING_POLICIES.row(job_id, policy))
                case AddIdempotencyKey():
                    self.idempotency.append(
                        {"job_id": job_id, **asdict(write), "changed": int(write.changed)}
                    )
                case AddSubmissionKey():
                    author = codec.plain_text(write.author)
                    self.submission_keys.append({"job_id": job_id, **asdict(write), "author": author})
                case PutAttempt(attempt):
                    self.attempts[job_id, attempt.attempt] = attempt
                    self.acknowledged.pop((job_id, attempt.attempt), None)
                case AcknowledgeReports(attempt_number, number):
                    self.acknowledged[job_id, attempt_number] = number
                case DescribeDriver(attempt_number, host, spark_version, ui_url):
                    told = map(codec.plain_text, (host, spark_version, ui_url))
                    self.described.append((job_id, attempt_number, *told))
                case AddVersion() | SetVersion() | SetGraph():
                    self.versions.append((job_id, write))
                case AddArtifact():
                    self._add_artifact(job_id, write)
                case AddRow(statement):
                    self.others.append((statement, (job_id,)))

    def _add_artifact(self, job_id: str, add: AddArtifact) -> None:
        if add.version > 1:
            # Behind what `AddVersion` forgets.
            self.versions.append((job_id, add))
        else:
            self.artifacts.append(_artifact_row(job_id, add))

    def _create(self, unit: UnitOfWork, create: CreateJob) -> None:
        if unit.epoch != FIRST_EPOCH:
            raise ConstraintViolated(f"A job is created under epoch {FIRST_EPOCH}, not {unit.epoch}.")
        job_id = unit.job_id
        self.jobs.append(
            {
                "job_id": job_id,
                "name": codec.plain_text(create.name),
                "type": str(create.type),
                "document": create.document,
                "options": codec.OPTIONS.dump(create.options),
                "submitted_ms": create.submitted_ms,
                "submitted_by": codec.plain_text(create.submitted_by),
            }
        )
        self.first_states.append(
            {
                "job_id": job_id,
                "seq": 1,
                "unit_token": unit.token,
                "status": str(create.status),
                "ended_ms": None,
                "state": codec.dump_state(create.state),
            }
        )
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

    def write_created(self, connection: Connection) -> None:
        if self.jobs:
            statements.insert(connection, statements.INSERT_JOB, self.jobs)
            statements.insert(connection, statements.INSERT_STATE, self.first_states)
            statements.run(connection, statements.INSERT_LEASE[connection.dialect.name], self.leases)

    def write(self, connection: Connection) -> None:
        """
        Raises:
            ChainBroken: a state does not follow the stored one.
            ConstraintViolated: an idempotency key is stored with another answer, or (KeyUsed) for another job.
        """
        self._write_states(connection)
        self._write_submission_keys(connection)
        self._write_idempotency(connection)
        if self.artifacts:
            statements.insert(connection, statements.INSERT_ARTIFACT, self.artifacts)
        acknowledged = [(job, attempt, number) for (job, attempt), number in self.acknowledged.items()]
        for statement, rows in (
            (statements.INSERT_REQUIREMENTS, self.requirements),
            (statements.INSERT_SCALING_POLICY, self.policies),
            (statements.UPSERT_RESCALE, [RESCALES.row(key[0], one) for key, one in self.rescales.items()]),
            (statements.UPSERT_ATTEMPT, [ATTEMPTS.row(key[0], one) for key, one in self.attempts.items()]),
            (statements.ACKNOWLEDGE, acknowledged),
            (statements.DESCRIBE_DRIVER, self.described),
            *((statement, [row]) for statement, row in self.others),
        ):
            statements.run(connection, statement, rows)
        _write_versions(connection, self.versions)
        # The last: other servers that write events wait from here on until the transaction is over.
        insert_events(connection, self.events)

    def _write_idempotency(self, connection: Connection) -> None:
        rows = self.idempotency
        if rows and statements.insert(connection, statements.INSERT_IDEMPOTENCY, rows) != len(rows):
            raise ConstraintViolated("An Idempotency-Key has another answer already.")

    def _write_submission_keys(self, connection: Connection) -> None:
        rows = self.submission_keys
        if rows and statements.insert(connection, statements.INSERT_SUBMISSION_KEY, rows) != len(rows):
            raise KeyUsed("An Idempotency-Key was used for another job already.")

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
        """The token that each job has in the database once they are durable."""
        tokens: dict[str, str] = {row["job_id"]: row["unit_token"] for row in self.first_states}
        tokens.update({job_id: chain[-1].token for job_id, chain in self.states.items()})
        return tokens


def _artifact_row(job_id: str, add: AddArtifact) -> dict[str, Any]:
    return {"job_id": job_id, "sha256": hashlib.sha256(add.content).hexdigest(), **asdict(add)}


def _write_versions(
    connection: Connection, writes: Sequence[tuple[str, AddVersion | SetVersion | SetGraph | AddArtifact]]
) -> None:
    """Write versions of jobs and their graphs, in order. They are rare, so each is written by separate statements."""
    for job_id, write in writes:
        match write:
            case AddVersion(number, current, document, options):
                # What is in force now may be the first version, which is in `jobs` only.
                sql(
                    connection,
                    "INSERT INTO job_versions (job_id, version, document, options) "
                    "SELECT job_id, CAST(:current AS BIGINT), document, options FROM jobs WHERE job_id = :job "
                    "ON CONFLICT (job_id, version) DO NOTHING",
                    job=job_id,
                    current=current,
                )
                for table in ("job_versions", "artifacts"):
                    forget = f"DELETE FROM {table} WHERE job_id = :job AND version <> :current"
                    sql(connection, forget, job=job_id, current=current)
                sql(
                    connection,
                    "INSERT INTO job_versions (job_id, version, document, options) "
                    "VALUES (:job, :number, :document, :options)",
                    job=job_id,
                    number=number,
                    document=document,
                    options=codec.OPTIONS.dump(options),
                )
            case SetVersion(number):
                sql(
                    connection,
                    "UPDATE jobs SET document = v.document, options = v.options FROM job_versions AS v "
                    "WHERE jobs.job_id = :job AND v.job_id = jobs.job_id AND v.version = :number",
                    job=job_id,
                    number=number,
                )
            case SetGraph(number, document):
                for update in (
                    "UPDATE jobs SET document = :document WHERE job_id = :job",
                    "UPDATE job_versions SET document = :document WHERE job_id = :job AND version = :number",
                ):
                    sql(connection, update, job=job_id, document=document, number=number)
            case AddArtifact():
                statements.insert(connection, statements.INSERT_ARTIFACT, [_artifact_row(job_id, write)])


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
