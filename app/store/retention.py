"""Old data: rescale records, versions of requirements and scaling policies, idempotency keys, dead attempts.

Data is removed in bounded steps, because all jobs wait for the one writer. The search for old data is a read,
for which no job waits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Column, ColumnElement, ScalarSelect, Table, and_, case, func, or_, select
from sqlalchemy.engine import Connection

from app.model.public_event import FORGOTTEN_JOB, PublicEventType
from app.model.status import TERMINAL_STATUSES, AttemptState
from app.store.errors import StateConflict
from app.store.events import insert_of_cluster
from app.store.statements import sql
from app.store.tables import (
    age_clock,
    artifacts,
    attempts,
    events,
    idempotency,
    job_states,
    job_versions,
    jobs,
    requirements,
    rescales,
    scaling_policies,
)

_JOBS_PER_QUERY = 500

_VERSIONED = ((requirements, requirements.c.created_ms), (scaling_policies, scaling_policies.c.changed_ms))
"""The tables that have a row for each version, and the column that says when it was made."""


def _remove(
    connection: Connection, key: Column[Any], job_id: str, *which: ColumnElement[bool], limit: int | None
) -> int:
    """Remove rows of a job from the table of ``key``, the lowest keys first, at most ``limit``; their number."""
    table = key.table
    assert isinstance(table, Table)
    of_job = table.c.job_id == job_id
    doomed = select(key).where(of_job, *which).order_by(key).limit(limit)
    return connection.execute(table.delete().where(of_job, key.in_(doomed))).rowcount


def _newest(key: Column[Any], job_id: str) -> ScalarSelect[Any]:
    return select(func.max(key)).where(key.table.c.job_id == job_id).scalar_subquery()


def prune(
    connection: Connection, job_id: str, keep: int, older_than_ms: int, limit: int | None = None
) -> int:
    """Remove ended rescale records beyond the newest ``keep`` numbers, and those that ended before ``older_than_ms``.
    Totals of all time stay. Returns the number removed, at most ``limit``."""
    number = rescales.c.number
    doomed = or_(number <= _newest(number, job_id) - keep, rescales.c.end_ms < older_than_ms)
    return _remove(connection, number, job_id, rescales.c.terminal_state.is_not(None), doomed, limit=limit)


def prune_idempotency_keys(
    connection: Connection, job_id: str, older_than_ms: int, limit: int | None = None
) -> int:
    """Remove idempotency keys made before ``older_than_ms``, at most ``limit``; their number."""
    is_old = idempotency.c.created_ms < older_than_ms
    return _remove(connection, idempotency.c.key, job_id, is_old, limit=limit)


def oldest_idempotency_key_ms(connection: Connection, job_id: str, most: int) -> int | None:
    """When the oldest of the newest ``most`` idempotency keys was made; None if there are fewer."""
    query = (
        select(idempotency.c.created_ms)
        .where(idempotency.c.job_id == job_id)
        .order_by(idempotency.c.created_ms.desc())
        .limit(1)
        .offset(most - 1)
    )
    return connection.execute(query).scalar()


def prune_versions(
    connection: Connection, job_id: str, keep: int, older_than_ms: int, most: int, limit: int | None = None
) -> int:
    """Remove versions of the requirements and of the scaling policy beyond the newest ``most``, and those that are
    older than ``older_than_ms`` and not among the newest ``keep``. The newest ones are in force, and stay. At most
    ``limit`` of each are removed; their number."""
    removed = 0
    for table, at_ms in _VERSIONED:
        version, is_old = table.c.version, at_ms < older_than_ms
        newest = _newest(version, job_id)
        doomed = or_(version <= newest - max(1, most), and_(version <= newest - max(1, keep), is_old))
        removed += _remove(connection, version, job_id, doomed, limit=limit)
    return removed


def read_age_clock(connection: Connection) -> int | None:
    """The stored time of the age clock; None before it was stored."""
    return connection.execute(select(age_clock.c.reached_ms)).scalar()


def advance_age_clock(connection: Connection, reached_ms: int) -> None:
    """It never goes back: another server may have come further."""
    sql(
        connection,
        "INSERT INTO age_clock (id, reached_ms) VALUES (1, :reached) ON CONFLICT (id) DO UPDATE "
        "SET reached_ms = excluded.reached_ms WHERE age_clock.reached_ms < excluded.reached_ms",
        reached=reached_ms,
    )


def prune_attempts(connection: Connection, job_id: str, keep: int, limit: int | None = None) -> int:
    """Remove dead attempts, but for those that are among the newest ``keep`` (at least one) of the job; their number,
    at most ``limit``."""
    is_dead = attempts.c.state == str(AttemptState.DEAD)
    # The newest one says which attempts have been.
    is_beyond = attempts.c.attempt <= _newest(attempts.c.attempt, job_id) - max(1, keep)
    return _remove(connection, attempts.c.attempt, job_id, is_dead, is_beyond, limit=limit)


def dead_attempts(connection: Connection, job_ids: Sequence[str]) -> dict[str, tuple[int, int]]:
    """The oldest attempt that is stored of each job, and the newest one that is known to be dead, if there is one."""
    found: dict[str, tuple[int, int]] = {}
    dead = case(
        (attempts.c.state == str(AttemptState.DEAD), attempts.c.attempt), else_=attempts.c.attempt - 1
    )
    for first in range(0, len(job_ids), _JOBS_PER_QUERY):
        query = (
            select(attempts.c.job_id, func.min(attempts.c.attempt), func.max(dead))
            .where(attempts.c.job_id.in_(job_ids[first : first + _JOBS_PER_QUERY]))
            .group_by(attempts.c.job_id)
        )
        found.update((row[0], (row[1], row[2])) for row in connection.execute(query) if row[2] >= 1)
    return found


def prunable(connection: Connection, keep: Mapping[str, int], older_than_ms: int, most: int) -> list[str]:
    """The jobs of ``keep``, in its order, of which `prune`, `prune_idempotency_keys` or `prune_versions` removes rows.

    ``most``: how many keys and versions of a job there may be.
    """
    found: set[str] = set()
    job_ids = list(keep)
    for first in range(0, len(job_ids), _JOBS_PER_QUERY):
        found |= _prunable(connection, job_ids[first : first + _JOBS_PER_QUERY], keep, older_than_ms)
        found |= _too_many(connection, job_ids[first : first + _JOBS_PER_QUERY], most)
    return [job_id for job_id in job_ids if job_id in found]


def _prunable(
    connection: Connection, job_ids: list[str], keep: Mapping[str, int], older_than_ms: int
) -> set[str]:
    found: set[str] = set()
    # Numbers have no gaps. An open record is the newest one, and is never removed.
    numbers = (
        select(rescales.c.job_id, func.min(rescales.c.number), func.max(rescales.c.number))
        .where(rescales.c.job_id.in_(job_ids))
        .group_by(rescales.c.job_id)
    )
    for job_id, oldest, newest in connection.execute(numbers):
        if newest - oldest >= max(1, keep[job_id]):
            found.add(job_id)
    if none_kept := [job_id for job_id in job_ids if keep[job_id] == 0 and job_id not in found]:
        ended = select(rescales.c.job_id).where(
            rescales.c.job_id.in_(none_kept), rescales.c.terminal_state.is_not(None)
        )
        found.update(row.job_id for row in connection.execute(ended))
    for table, at_ms in ((rescales, rescales.c.end_ms), (idempotency, idempotency.c.created_ms)):
        old = select(table.c.job_id).where(table.c.job_id.in_(job_ids), at_ms < older_than_ms).distinct()
        found.update(row.job_id for row in connection.execute(old))
    for table, made_ms in _VERSIONED:
        newest_version = (
            select(table.c.job_id, func.max(table.c.version).label("version"))
            .where(table.c.job_id.in_(job_ids))
            .group_by(table.c.job_id)
            .subquery()
        )
        old_versions = (
            select(table.c.job_id, newest_version.c.version - func.min(table.c.version))
            .join(newest_version, newest_version.c.job_id == table.c.job_id)
            .where(made_ms < older_than_ms)
            .group_by(table.c.job_id, newest_version.c.version)
        )
        for job_id, behind in connection.execute(old_versions):
            if behind >= max(1, keep[job_id]):
                found.add(job_id)
    return found


def _too_many(connection: Connection, job_ids: list[str], most: int) -> set[str]:
    found: set[str] = set()
    for table in (idempotency, requirements, scaling_policies):
        query = select(table.c.job_id).where(table.c.job_id.in_(job_ids)).group_by(table.c.job_id)
        found.update(row.job_id for row in connection.execute(query.having(func.count() > most)))
    return found


def forget(connection: Connection, job_id: str) -> bool:
    """Delete a job that has ended, with everything that is stored of it; an event of the cluster says so. False: there
    is no such job.

    Raises:
        StateConflict: it has not ended.
    """
    status = connection.execute(select(job_states.c.status).where(job_states.c.job_id == job_id)).scalar()
    if status is None:
        return False
    if status not in TERMINAL_STATUSES:
        raise StateConflict(f"Job {job_id} has not ended: it cannot be forgotten.")
    # All that can be many goes first: from the number of an event on, the commits of all servers wait.
    for table in (artifacts, attempts, idempotency, job_versions, requirements, scaling_policies):
        connection.execute(table.delete().where(table.c.job_id == job_id))
    # An open record is not removed while its job exists.
    connection.execute(
        rescales.delete().where(rescales.c.job_id == job_id, rescales.c.terminal_state.is_not(None))
    )
    # From the number of the newest event of all the next one is counted.
    newest = select(func.max(events.c.id)).scalar_subquery()
    connection.execute(events.delete().where(events.c.job_id == job_id, events.c.id < newest))
    insert_of_cluster(connection, PublicEventType.JOB_FORGOTTEN, {FORGOTTEN_JOB: job_id})
    return bool(connection.execute(jobs.delete().where(jobs.c.job_id == job_id)).rowcount)
