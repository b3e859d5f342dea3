"""Typed writes of the worker, collected in a unit of work for one job.

A unit is all or nothing. It holds at most one state, and every write in it is fenced by the job's lease.
"""

from __future__ import annotations

import itertools
import secrets
from dataclasses import dataclass, field

from app.model.options import JobOptions
from app.model.public_event import PublicEvent
from app.model.requirements import Requirements
from app.model.rescale import RescaleRecord
from app.model.scaling_policy import ScalingPolicy
from app.model.status import AttemptEnding, AttemptState, JobStatus
from app.model.value import value
from app.scheduler.adaptive.state import JobState
from app.store.statements import Statement

FIRST_EPOCH = 1
"""The epoch that a job's first owner has, by creating the job."""


@value
class CreateJob:
    """The job itself with its first state (state number 1) and its lease, which the store's owner gets at once.

    ``document`` is the resolved job graph document as JSON text. ``name`` is for people, ``options`` are complete.
    """

    name: str
    type: str
    document: str
    options: JobOptions
    submitted_ms: int
    submitted_by: str | None
    state: JobState
    status: JobStatus


@value
class SaveState:
    """The state after a step. ``seq`` is one more than that of the state that the step began with.

    ``ended_ms`` is set exactly when ``status`` is globally terminal.
    """

    seq: int
    state: JobState
    status: JobStatus
    ended_ms: int | None = None


@value
class AddRequirements:
    """An effective update of the requirements. Earlier versions stay."""

    requirements: Requirements
    created_ms: int


@value
class AddScalingPolicy:
    """A scaling policy that was set. Earlier versions stay."""

    policy: ScalingPolicy


@value
class AddIdempotencyKey:
    """The answer to a request with an Idempotency-Key. ``request_hash`` tells a repeat from another request."""

    key: str
    request_hash: str
    version: int
    changed: bool
    created_ms: int


@value
class AddSubmissionKey:
    """The job is what ``author`` submitted with an Idempotency-Key. The hashes tell a repeat from another submission,
    and what differs."""

    author: str
    key: str
    document_hash: str
    files_hash: str


@value
class PutRescale:
    """A rescale record as it is now, new or known. A record that has ended is never changed again.

    When a step ends one record and opens the next, the ended one is put first: only one per job may be open.
    """

    record: RescaleRecord


@value
class Attempt:
    """One driver process of a job. ``pid`` and ``pid_started_at`` (seconds, as the system tells it) identify it.

    ``lock_file`` is free only when nothing of the driver lives. ``secret_hash`` is of the secret that its calls carry.
    ``acknowledged`` is the number up to which the driver's reports are taken down. ``runs_on`` names the cluster that
    the driver was started on, empty for the server's host. ``log_from``: how much its driver had logged before,
    None if that is not known. ``plan_version`` and ``parallelism`` (by vertex id) are those that it began with;
    ``host``, ``spark_version`` and ``ui_url``, the page of Spark, are what its driver has said. ``ended_why`` is a
    sentence without secrets.
    """

    attempt: int
    epoch: int
    driver_id: str
    secret_hash: str
    started_ms: int
    state: AttemptState = AttemptState.LIVE
    pid: int | None = None
    pid_started_at: float | None = None
    lock_file: str | None = None
    acknowledged: int = 0
    ended_ms: int | None = None
    runs_on: str = ""
    log_from: int | None = None
    plan_version: int | None = None
    parallelism: tuple[tuple[str, int], ...] | None = None
    host: str | None = None
    spark_version: str | None = None
    ui_url: str | None = None
    ending: AttemptEnding | None = None
    ended_why: str | None = None


@value
class PutAttempt:
    """An attempt as it is now, new or known. The one before must be DEAD before another one is LIVE."""

    attempt: Attempt


@value
class AcknowledgeReports:
    """Reports of ``attempt`` up to number ``acknowledged`` are taken down (cheaper than the whole attempt)."""

    attempt: int
    acknowledged: int


@value
class DescribeDriver:
    """What the driver of ``attempt`` says of itself."""

    attempt: int
    host: str
    spark_version: str
    ui_url: str | None


@value
class AddArtifact:
    """A file of the job, as submitted with ``version`` of it."""

    name: str
    content: bytes
    version: int = 1


@value
class AddRow:
    """A row of a table that is none of the store's own. ``statement`` inserts it, and gets the id of the job."""

    statement: Statement


@value
class AddVersion:
    """Another version of the job, beside ``current``, which is in force; all others are forgotten with their files.

    ``document`` and ``options`` are as in `CreateJob`.
    """

    number: int
    current: int
    document: str
    options: JobOptions


@value
class SetVersion:
    """A version that was added, or was in force before one was, is in force from now on."""

    number: int


@value
class SetGraph:
    """The graph of version ``number``, which is in force, has other vertices, or other queries of it have ended.
    ``document`` is as in `CreateJob`."""

    number: int
    document: str


@value
class AddEvents:
    """The public events of the step, in order. They get their numbers when they are written."""

    events: tuple[PublicEvent, ...]


Write = (
    CreateJob
    | SaveState
    | AddRequirements
    | AddScalingPolicy
    | AddIdempotencyKey
    | AddSubmissionKey
    | PutRescale
    | PutAttempt
    | AcknowledgeReports
    | DescribeDriver
    | AddArtifact
    | AddRow
    | AddVersion
    | SetVersion
    | SetGraph
    | AddEvents
)

_process = secrets.token_hex(6)
_units = itertools.count(1)


def _token() -> str:
    return f"{_process}-{next(_units)}"


@dataclass(slots=True)
class UnitOfWork:
    """Writes to the rows of one job that become durable together or not at all.

    ``epoch`` is that of the lease under which the caller acts; the owner is the store's. ``token`` names the unit, so
    that committing it again after a doubtful outcome does not apply it twice. ``in_doubt`` is the store's: the unit
    was begun to be committed, and may be durable.
    """

    job_id: str
    epoch: int
    writes: list[Write] = field(default_factory=list)
    token: str = field(default_factory=_token)
    in_doubt: bool = field(default=False, compare=False)

    def add(self, *writes: Write) -> UnitOfWork:
        self.writes.extend(writes)
        return self
