"""The events that clients follow: their numbers, reading them, and removing old ones.

Readers continue after the last number that they have read, so a number must never become visible after a higher
one: a reader would skip it. SQLite has one writer at a time. On PostgreSQL a transaction takes a lock
immediately before it takes its numbers, as its last action, and holds the lock until it is committed; so
numbers become visible in their order (ADR 43). New numbers follow the highest stored number, so the newest
event is never removed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic_core import PydanticSerializationError, to_json
from sqlalchemy import Select, func, select
from sqlalchemy.engine import Connection

from app.model.public_event import FORGOTTEN_JOB, PublicEvent, PublicEventType, StoredEvent
from app.store.statements import EVENTS_LOCK, ROWS_MAX, Row, Statement, execute, run, sql
from app.store.tables import events

_IDLE_HOLDER_MS: Final = 5_000
"""A server that holds the lock and is silent (it was stopped, or is cut off) loses its connection after this time."""

_TAKE_LOCK: Final = (
    f"SELECT {EVENTS_LOCK}, set_config('idle_in_transaction_session_timeout', '{_IDLE_HOLDER_MS}', true)"
)
_INSERT: Final = Statement("INSERT INTO events (job_id, type, at_ms, fields) VALUES ", "(?, ?, ?, ?)")
"""SQLite takes the number behind the highest one by itself."""
_INSERT_NUMBERED: Final = Statement(
    "INSERT INTO events (id, job_id, type, at_ms, fields) "
    "SELECT stored.newest + v.column1, v.column2, v.column3, v.column4, v.column5 FROM (VALUES ",
    "(CAST(? AS BIGINT), CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS TEXT))",
    ") AS v, (SELECT COALESCE(MAX(id), 0) AS newest FROM events) AS stored",
)


@dataclass(frozen=True, slots=True)
class EventPage:
    """Events in the order of their numbers. ``oldest`` and ``newest``: the numbers of those that are stored, 0 if there
    are none. ``is_last``: there are no more that were asked for."""

    events: Sequence[StoredEvent]
    oldest: int
    newest: int
    is_last: bool


def event_row(job_id: str | None, event: PublicEvent) -> Row:
    """The values of an event but for its number."""
    try:
        fields = to_json(event.fields).decode()
    except PydanticSerializationError:
        # A lone surrogate has no UTF-8 form: it is escaped.
        fields = json.dumps(event.fields, separators=(",", ":"))
    return (job_id, str(event.type), event.at_ms, fields)


def insert_events(connection: Connection, rows: Sequence[Row]) -> None:
    """Store events. Nothing else is to be written in this transaction: others wait for its end."""
    if not rows:
        return
    if connection.dialect.name == "sqlite":
        run(connection, _INSERT, rows)
        return
    execute(connection, _TAKE_LOCK)
    for start in range(0, len(rows), ROWS_MAX):
        part = rows[start : start + ROWS_MAX]
        values = [value for place, row in enumerate(part, 1) for value in (place, *row)]
        execute(connection, _INSERT_NUMBERED.text("%s", len(part)), tuple(values))


def insert_of_cluster(connection: Connection, kind: PublicEventType, fields: Mapping[str, Any]) -> None:
    """Store an event of the cluster, at the time of the database's clock."""
    at_ms = int(sql(connection, "SELECT {clock}").scalar_one())
    insert_events(connection, [event_row(None, PublicEvent(kind, at_ms, fields))])


def insert_change(
    connection: Connection,
    kind: PublicEventType,
    among: Collection[PublicEventType],
    fields: Mapping[str, Any],
) -> None:
    """Store an event of the cluster, if the newest with these fields ``among`` these types is of another type."""
    text_of_fields = event_row(None, PublicEvent(kind, 0, fields))[-1]
    newest = (
        select(events.c.type)
        .where(events.c.job_id.is_(None), events.c.fields == text_of_fields)
        .where(events.c.type.in_([one.value for one in among]))
        .order_by(events.c.id.desc())
        .limit(1)
    )
    if connection.execute(newest).scalar() == kind.value:
        return
    if connection.dialect.name == "postgresql":
        # Another server may be telling of it just now.
        execute(connection, _TAKE_LOCK)
        if connection.execute(newest).scalar() == kind.value:
            return
    insert_of_cluster(connection, kind, fields)


def load_events(
    connection: Connection,
    after: int,
    limit: int,
    job_id: str | None = None,
    types: Collection[PublicEventType] | None = None,
    chars: int | None = None,
) -> EventPage:
    """Up to ``limit`` events with higher numbers than ``after``: of one job if it is named, of these types if given.
    The page ends with the event with which the texts are ``chars`` characters long.

    If the job was forgotten, the event that says so is all that there is, of whatever type are asked for.
    """
    query = select(events).where(events.c.id > after).order_by(events.c.id).limit(limit)
    if job_id is not None:
        query = query.where(events.c.job_id == job_id)
    if types is not None:
        query = query.where(events.c.type.in_([one.value for one in types]))
    is_last, found = _page(connection, query, limit, chars)
    if job_id is not None and not found:
        forgotten = PublicEvent(PublicEventType.JOB_FORGOTTEN, 0, {FORGOTTEN_JOB: job_id})
        told = select(events).where(
            events.c.id > after,
            events.c.job_id.is_(None),
            events.c.type == forgotten.type.value,
            events.c.fields == event_row(None, forgotten)[-1],
        )
        found = [_event(row) for row in connection.execute(told)]
    oldest, newest = (
        connection.execute(select(bound(events.c.id))).scalar() for bound in (func.min, func.max)
    )
    return EventPage(found, oldest or 0, newest or 0, is_last)


def _page(
    connection: Connection, query: Select[Any], limit: int, chars: int | None
) -> tuple[bool, list[StoredEvent]]:
    """The events of ``query`` up to ``chars`` characters, which the database counts; and whether those are all."""
    if chars is None:
        found = [_event(row) for row in connection.execute(query)]
        return len(found) < limit, found
    inner = query.subquery()
    size = func.length(inner.c.fields)
    so_far = func.sum(size).over(order_by=inner.c.id)
    sized = select(inner, size.label("size"), so_far.label("so_far")).subquery()
    rows = connection.execute(
        select(sized).where(sized.c.so_far - sized.c.size < chars).order_by(sized.c.id)
    ).all()
    is_last = len(rows) < limit and (not rows or rows[-1].so_far < chars)
    return is_last, [_event(row) for row in rows]


def _event(row: Any) -> StoredEvent:
    return StoredEvent(row.id, row.job_id, row.type, row.at_ms, row.fields)


def prune_old_events(connection: Connection, older_than_ms: int, most: int, limit: int) -> int:
    """Remove the oldest events: those beyond the newest ``most``, and those before the first one that is younger than
    ``older_than_ms``. At most ``limit``; the newest one stays. Returns the number removed."""
    newest = connection.execute(select(func.max(events.c.id))).scalar()
    if newest is None:
        return 0
    young = select(events.c.id).where(events.c.at_ms >= older_than_ms).order_by(events.c.id).limit(1)
    first_young = connection.execute(young).scalar() or newest
    last_doomed = min(max(newest - max(1, most), first_young - 1), newest - 1)
    doomed = select(events.c.id).where(events.c.id <= last_doomed).order_by(events.c.id).limit(limit)
    return int(connection.execute(events.delete().where(events.c.id.in_(doomed))).rowcount)
