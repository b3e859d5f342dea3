"""Reads. Each function takes a connection in a read-only transaction, so all it finds is of one moment."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, func, select
from sqlalchemy.engine import Connection

from app.model.graphdoc import read_graph
from app.model.job_state.versions import JobVersion
from app.model.jobgraph import JobGraph
from app.model.options import JobOptions
from app.model.rescale import RescaleRecord, TerminalState, TriggerCause
from app.model.scaling_policy import ScalingPolicy
from app.model.status import JobStatus
from app.model.value import evolve
from app.scheduler.adaptive.state import JobState
from app.store import codec
from app.store.codec import ATTEMPTS, RESCALES, SCALING_POLICIES
from app.store.leases import Lease
from app.store.tables import (
    artifacts,
    attempts,
    idempotency,
    job_states,
    job_versions,
    jobs,
    leases,
    rescales,
    scaling_policies,
    submission_keys,
)
from app.store.writes import Attempt


@dataclass(frozen=True, slots=True)
class JobSummary:
    """A job in a list. ``ended_ms`` is None while it has not ended."""

    job_id: str
    name: str
    type: str
    status: JobStatus
    submitted_ms: int
    submitted_by: str | None
    ended_ms: int | None


@dataclass(frozen=True, slots=True)
class StoredJob:
    """Everything that a worker needs to go on with a job, of one moment.

    ``document`` is the job graph document as JSON text. ``seq`` is the number of the stored state. ``attempt`` is the
    live attempt, if there is one, ``ended_attempt`` the newest one if none is live. ``damage``: why something of it
    cannot be read, empty if that is not known yet. ``versions``: document and options of versions by number, of a job
    that was replaced.
    """

    summary: JobSummary
    document: str
    options_text: str
    state_text: str
    seq: int
    lease: Lease | None
    attempt: Attempt | None
    ended_attempt: Attempt | None
    damage: str = ""
    versions: Mapping[int, tuple[str, str]] = field(default_factory=dict)

    @property
    def job_id(self) -> str:
        return self.summary.job_id

    @property
    def is_newer(self) -> bool:
        """Whether a newer version of Slotwise has written it in a form of its own."""
        return codec.is_newer(self.state_text)

    def options(self) -> JobOptions:
        """
        Raises:
            CodecError: another version wrote what this one cannot read; so do `state` and the queries for records.
        """
        return codec.OPTIONS.load(self.options_text)

    def state(self, graph: JobGraph) -> JobState:
        """The stored state, with ``graph`` as parsed from the document."""
        if self.damage:
            raise codec.CodecError(self.damage)
        if self.is_newer:
            raise codec.CodecError("A newer version of Slotwise has written it.")
        state = codec.load_state(self.state_text, graph, self.options())
        number = state.versions.spare
        if number is None:
            return state
        if number not in self.versions:
            raise codec.CodecError(f"Version {number} of the job is not stored.")
        document, options = self.versions[number]
        spare = read_graph(json.loads(document))
        return evolve(state, spare=JobVersion(number, spare, codec.OPTIONS.load(options)))


@dataclass(frozen=True, slots=True)
class RescalePage:
    """What a page of the history asks for. ``after``: only records numbered below it. ``limit`` None: all."""

    limit: int | None = None
    after: int | None = None
    cause: TriggerCause | None = None
    state: TerminalState | None = None


_ALL = RescalePage()
_SUMMARY = (
    jobs.c.job_id,
    jobs.c.name,
    jobs.c.type,
    job_states.c.status,
    jobs.c.submitted_ms,
    jobs.c.submitted_by,
    job_states.c.ended_ms,
)


def _summary(row: Sequence[Any]) -> JobSummary:
    submitted_ms, ended_ms = (value if _is_whole(value) else None for value in (row[4], row[6]))
    return JobSummary(row[0], row[1], row[2], JobStatus(row[3]), submitted_ms or 0, row[5], ended_ms)


def _is_whole(value: Any) -> bool:
    """SQLite keeps whatever it is given in a column of whole numbers; other programs may have written text."""
    return isinstance(value, int)


def _not_whole(table: str, **columns: Any) -> str:
    """What is wrong with a row that should have whole numbers, or nothing, in ``columns``; empty if nothing."""
    wrong = [name for name, value in columns.items() if value is not None and not _is_whole(value)]
    return f"A row in {table} has no whole number in {', '.join(wrong)}." if wrong else ""


def list_jobs(connection: Connection, *, ended: bool | None = None) -> list[JobSummary]:
    """Newest first. ``ended``: only jobs that have (not) ended."""
    query = select(*_SUMMARY).join(job_states, job_states.c.job_id == jobs.c.job_id)
    if ended is not None:
        query = query.where(job_states.c.ended_ms.is_not(None) if ended else job_states.c.ended_ms.is_(None))
    newest_first = query.order_by(jobs.c.submitted_ms.desc(), jobs.c.job_id.desc())
    return [_summary(row) for row in connection.execute(newest_first)]


def job_ids(connection: Connection) -> set[str]:
    """The ids of the jobs of all owners."""
    return set(connection.scalars(select(jobs.c.job_id)))


def load_jobs(connection: Connection, wanted: Sequence[str] | None) -> list[StoredJob]:
    """The named jobs, or every job that has not ended; oldest first."""
    chosen: ColumnElement[bool]
    if wanted is None:
        chosen = jobs.c.job_id.in_(select(job_states.c.job_id).where(job_states.c.ended_ms.is_(None)))
    else:
        chosen = jobs.c.job_id.in_(wanted)
    ids = select(jobs.c.job_id).where(chosen)
    newest = select(attempts.c.job_id, func.max(attempts.c.attempt).label("attempt"))
    newest_of = newest.where(attempts.c.job_id.in_(ids)).group_by(attempts.c.job_id).subquery()
    query = select(attempts).outerjoin(
        newest_of, (attempts.c.job_id == newest_of.c.job_id) & (attempts.c.attempt == newest_of.c.attempt)
    )
    live: dict[str, Attempt] = {}
    ended: dict[str, Attempt] = {}
    last = (attempts.c.state == "LIVE") | newest_of.c.job_id.is_not(None)
    for row in connection.execute(query.where(attempts.c.job_id.in_(ids), last)):
        (live if row.state == "LIVE" else ended)[row.job_id] = ATTEMPTS.value(row)
    held = {
        row.job_id: Lease(row.job_id, row.owner, row.epoch, row.expires_ms)
        for row in connection.execute(
            select(leases).where(leases.c.job_id.in_(ids), leases.c.owner.is_not(None))
        )
    }
    kept: dict[str, dict[int, tuple[str, str]]] = {}
    for row in connection.execute(select(job_versions).where(job_versions.c.job_id.in_(ids))):
        kept.setdefault(row.job_id, {})[row.version] = (row.document, row.options)
    found = connection.execute(
        select(*_SUMMARY, jobs.c.document, jobs.c.options, job_states.c.state, job_states.c.seq)
        .join(job_states, job_states.c.job_id == jobs.c.job_id)
        .where(chosen)
        .order_by(jobs.c.submitted_ms, jobs.c.job_id)
    )
    return [
        StoredJob(
            summary=_summary(row),
            document=row[7],
            options_text=row[8],
            state_text=row[9],
            seq=row[10],
            lease=held.get(row[0]),
            attempt=live.get(row[0]),
            ended_attempt=None if row[0] in live else ended.get(row[0]),
            versions=kept.get(row[0], {}),
            damage=_not_whole("jobs", submitted_ms=row[4])
            or _not_whole("job_states", ended_ms=row[6], seq=row[10]),
        )
        for row in found
    ]


def load_attempts(connection: Connection, job_id: str) -> list[Attempt]:
    """All attempts of a job, oldest first."""
    query = select(attempts).where(attempts.c.job_id == job_id).order_by(attempts.c.attempt)
    return [ATTEMPTS.value(row) for row in connection.execute(query)]


def load_scaling_policies(
    connection: Connection, job_id: str, limit: int | None = None, after: int | None = None
) -> list[ScalingPolicy]:
    """What was set as the scaling policy of a job, newest first; ``after``: only versions below it."""
    query = select(scaling_policies).where(scaling_policies.c.job_id == job_id)
    if after is not None:
        query = query.where(scaling_policies.c.version < after)
    newest_first = query.order_by(scaling_policies.c.version.desc()).limit(limit)
    return [SCALING_POLICIES.value(row) for row in connection.execute(newest_first)]


def load_answer(connection: Connection, job_id: str, key: str) -> tuple[str, int, bool] | None:
    """The hash of the request with this Idempotency-Key, and its answer: the version, and whether that was new. None if
    there was none."""
    query = select(idempotency).where(idempotency.c.job_id == job_id, idempotency.c.key == key)
    row = connection.execute(query).first()
    return None if row is None else (row.request_hash, row.version, bool(row.changed))


def load_submission(connection: Connection, author: str, key: str) -> tuple[str, str, str] | None:
    """The job that ``author`` submitted with this Idempotency-Key, and the hashes of its document and files. None if
    there is none."""
    own = submission_keys.c
    query = select(own.job_id, own.document_hash, own.files_hash)
    row = connection.execute(query.where(own.author == codec.plain_text(author), own.key == key)).first()
    return None if row is None else (row[0], row[1], row[2])


def load_artifacts(connection: Connection, job_id: str, version: int = 1) -> dict[str, bytes]:
    """The files of a version of a job by name."""
    found = connection.execute(_files(version, job_id, "content"))
    return {row[0]: bytes(row[1]) for row in found}


def load_artifact_digests(connection: Connection, job_id: str, version: int = 1) -> dict[str, str]:
    """The SHA-256 of the files of a version of a job, in hexadecimal digits, by name."""
    return {row[0]: row[1] for row in connection.execute(_files(version, job_id, "sha256"))}


def _files(version: int, job_id: str, column: str) -> Select[Any]:
    query = select(artifacts.c.name, artifacts.c[column]).order_by(artifacts.c.name)
    return query.where(artifacts.c.job_id == job_id, artifacts.c.version == version)


def load_rescales(connection: Connection, job_id: str, page: RescalePage = _ALL) -> list[RescaleRecord]:
    """Newest first, an open one included."""
    query: Select[Any] = select(rescales).where(rescales.c.job_id == job_id)
    if page.after is not None:
        query = query.where(rescales.c.number < page.after)
    if page.cause is not None:
        query = query.where(rescales.c.cause == str(page.cause))
    if page.state is not None:
        query = query.where(rescales.c.terminal_state == str(page.state))
    query = query.order_by(rescales.c.number.desc()).limit(page.limit)
    return [RESCALES.value(row) for row in connection.execute(query)]


def load_rescale(connection: Connection, job_id: str, uuid: str) -> RescaleRecord | None:
    query = select(rescales).where(and_(rescales.c.job_id == job_id, rescales.c.uuid == uuid))
    row = connection.execute(query).first()
    return None if row is None else RESCALES.value(row)


def rescale_durations(connection: Connection, job_id: str) -> dict[TerminalState, list[int]]:
    """How long the rescales took that are retained, in ms, oldest first, by how they ended."""
    ended = (
        select(rescales.c.terminal_state, rescales.c.end_ms - rescales.c.start_ms)
        .where(rescales.c.job_id == job_id, rescales.c.terminal_state.is_not(None))
        .order_by(rescales.c.number)
    )
    durations: dict[TerminalState, list[int]] = {}
    for terminal_state, duration_ms in connection.execute(ended):
        durations.setdefault(TerminalState(terminal_state), []).append(duration_ms)
    return durations
