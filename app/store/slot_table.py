"""The records with which control planes of one data directory share a pool of slots
(`app.scheduler.slot_ledger`), and the lease of the arbiter, which alone writes grants.

The epoch of the arbiter fences each of its writes, and it does nothing but write grants. So it needs no clock
to know whether it is still the arbiter.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import structlog
from pydantic import TypeAdapter, ValidationError
from sqlalchemy import text
from sqlalchemy.engine import Connection

from app.scheduler.releasable_slots import Releasable
from app.scheduler.slot_ledger import Ask, Entry, SlotClaim, SlotGrant
from app.store.members import task_manager_of
from app.store.statements import CLOCK_MS
from app.store.store import Store

log = structlog.get_logger()

_ask: TypeAdapter[Ask] = TypeAdapter(Ask)
_ids: TypeAdapter[frozenset[str]] = TypeAdapter(frozenset[str])
_grant: TypeAdapter[SlotGrant] = TypeAdapter(SlotGrant)

_Row = tuple[Any, ...]
_ENTRIES = (
    "SELECT c.job_id, c.seq, c.seen, c.holds, c.ask, c.changed_ms, g.document FROM slot_claims AS c "
    "LEFT JOIN slot_grants AS g ON g.job_id = c.job_id "
)


@dataclass(frozen=True, slots=True)
class OwnClaim:
    """A claim that its owner writes under the job's ``epoch``. ``moved``: it holds other slots than the one before."""

    claim: SlotClaim
    epoch: int
    moved: bool


@dataclass(frozen=True, slots=True)
class SlotArbiter:
    """Who decides about the slots of a home. ``is_over``: the lease has expired, or was given up.

    ``cluster_unreachable``: it cannot reach the cluster that has them, so it decides nothing. ``is_partial``: it cannot
    read the records of some jobs, so a control plane that can is to replace it. ``decisions`` counts those written:
    a decision is valid only if there was no other since the records were read.
    """

    owner: str
    epoch: int
    is_over: bool
    cluster_unreachable: bool = False
    decisions: int = 0
    is_partial: bool = False


@dataclass(frozen=True, slots=True)
class Ledger:
    """All that there is to decide by, at ``now_ms`` of the database's clock. ``entries``: of the jobs that have not
    ended, in the order in which they came; ``ended``: jobs that have, and of which there is something still.

    ``task_managers``: the slots of each server that has a seat, by its seat: those that are dead too, as the host has
    their slots still, but not those that have left. ``seats``: of those that are alive.

    ``unread``: jobs of which something cannot be read here, as a newer server has written it or it is damaged, each
    with the ids of the slots that it may hold all the same, or None if those are not known either.
    """

    now_ms: int = 0
    arbiter: SlotArbiter | None = None
    entries: tuple[Entry, ...] = ()
    ended: tuple[str, ...] = ()
    task_managers: tuple[tuple[str, int], ...] = ()
    seats: tuple[tuple[str, int], ...] = ()
    unread: tuple[tuple[str, frozenset[str] | None], ...] = ()

    @property
    def unreadable(self) -> tuple[str, ...]:
        return tuple(job_id for job_id, _ in self.unread)

    def entry(self, job_id: str) -> Entry | None:
        return next((entry for entry in self.entries if entry.claim.job_id == job_id), None)


@dataclass(slots=True)
class SlotTable:
    """What one control plane, ``owner``, asks and tells the database about the slots of ``home``. Raises `StoreError`,
    as `Store` does."""

    store: Store
    home: str
    # What was read before, by job: most of it is the same each time.
    _known: dict[str, tuple[_Row, Entry | None]] = field(default_factory=dict)

    async def ledger(self) -> Ledger:
        rows, ledger = await self.store.read(self._read)
        entries: list[Entry] = []
        known: dict[str, tuple[_Row, Entry | None]] = {}
        for row in rows:
            before = self._known.get(row[0])
            entry = before[1] if before is not None and before[0] == row else _entry(row)
            known[row[0]] = (row, entry)
            if entry is not None:
                entries.append(entry)
        self._known = known
        unread = tuple((job_id, _named(row)) for job_id, (row, entry) in known.items() if entry is None)
        return replace(ledger, entries=tuple(entries), unread=unread)

    def _read(self, connection: Connection) -> tuple[list[_Row], Ledger]:
        clock = CLOCK_MS[connection.dialect.name]
        home = {"home": self.home}
        now_ms = int(connection.execute(text(f"SELECT {clock}")).scalar_one())
        arbiter = connection.execute(
            # Before the records: that they are newer than this number does no harm.
            text(
                "SELECT owner, epoch, expires_ms, is_blind, decisions, is_partial FROM slot_arbiters "
                "WHERE home = :home"
            ),
            home,
        ).first()
        # One statement, so that a claim and its grant are of one moment.
        rows = connection.execute(
            text(
                _ENTRIES.replace(" FROM", ", s.ended_ms FROM", 1)
                + "JOIN job_states AS s ON s.job_id = c.job_id JOIN jobs AS j ON j.job_id = c.job_id "
                "WHERE c.home = :home ORDER BY j.submitted_ms, j.job_id"
            ),
            home,
        ).all()
        members = connection.execute(
            text("SELECT member_id, seat, slots, expires_ms FROM members WHERE home = :home ORDER BY seat"),
            home,
        ).all()
        found = Ledger(
            now_ms,
            None
            if arbiter is None
            else SlotArbiter(
                arbiter[0],
                int(arbiter[1]),
                int(arbiter[2]) <= now_ms,
                bool(arbiter[3]),
                int(arbiter[4]),
                bool(arbiter[5]),
            ),
            ended=tuple(row[0] for row in rows if row[-1] is not None),
            task_managers=tuple((task_manager_of(int(seat)), int(slots)) for _, seat, slots, _ in members),
            seats=tuple((str(name), int(seat)) for name, seat, _, until in members if int(until) > now_ms),
        )
        return [tuple(row)[:-1] for row in rows if row[-1] is None], found

    async def entries_of(self, job_ids: Sequence[str]) -> dict[str, Entry | None]:
        """What there is of these jobs, in one look for each job; None if it cannot be read."""

        def read(connection: Connection) -> list[_Row]:
            query = text(_ENTRIES + "WHERE c.job_id = :job")
            return [
                tuple(row) for job_id in job_ids for row in connection.execute(query, {"job": job_id}).all()
            ]

        return {row[0]: _entry(row) for row in await self.store.read(read)}

    async def put_claims(self, claims: Sequence[OwnClaim]) -> set[str]:
        """Write claims of this owner; the jobs whose lease it does not hold at that epoch, of which nothing is
        written."""

        def put(connection: Connection) -> set[str]:
            clock = CLOCK_MS[connection.dialect.name]
            share = "FOR SHARE" if connection.dialect.name == "postgresql" else ""
            lost = set()
            for one in sorted(claims, key=lambda each: each.claim.job_id):
                claim = one.claim
                lease = connection.execute(
                    text(
                        "SELECT 1 FROM leases WHERE job_id = :job AND owner = :owner AND epoch = :epoch "
                        + share
                    ),
                    {"job": claim.job_id, "owner": self.store.owner, "epoch": one.epoch},
                ).first()
                if lease is None:
                    lost.add(claim.job_id)
                    continue
                connection.execute(
                    text(
                        "INSERT INTO slot_claims (job_id, home, seq, seen, holds, ask, changed_ms) "
                        f"VALUES (:job, :home, :seq, :seen, :holds, :ask, {clock}) "
                        "ON CONFLICT (job_id) DO UPDATE SET home = excluded.home, seq = excluded.seq, "
                        "seen = excluded.seen, holds = excluded.holds, ask = excluded.ask, "
                        "changed_ms = CASE WHEN :moved = 1 THEN excluded.changed_ms ELSE slot_claims.changed_ms END"
                    ),
                    {
                        "job": claim.job_id,
                        "home": self.home,
                        "seq": claim.seq,
                        "seen": claim.seen,
                        "holds": _ids.dump_json(frozenset(claim.holds)).decode(),
                        "ask": _ask.dump_json(claim.ask).decode(),
                        "moved": int(one.moved),
                    },
                )
            return lost

        return await self.store.write(put)

    async def become_arbiter(self, *, partial: bool = False) -> int | None:
        """The epoch at which this owner becomes the arbiter; None if another one is. An owner that can read all
        records comes before one who cannot (``partial``)."""

        def take(connection: Connection) -> int | None:
            clock = CLOCK_MS[connection.dialect.name]
            row = connection.execute(
                text(
                    "INSERT INTO slot_arbiters (home, owner, epoch, expires_ms, decisions, is_partial) "
                    f"VALUES (:home, :owner, 1, {clock} + :ttl, 0, :partial) ON CONFLICT (home) DO UPDATE SET "
                    "owner = excluded.owner, epoch = slot_arbiters.epoch + 1, expires_ms = excluded.expires_ms, "
                    f"is_partial = excluded.is_partial WHERE slot_arbiters.expires_ms <= {clock} "
                    "OR (slot_arbiters.is_partial = 1 AND :partial = 0) RETURNING epoch"
                ),
                {
                    "home": self.home,
                    "owner": self.store.owner,
                    "ttl": self.store.lease_ttl_ms,
                    "partial": int(partial),
                },
            ).first()
            return None if row is None else int(row[0])

        return await self.store.write(take)

    async def tell_unreachable(self, epoch: int, cluster_unreachable: bool) -> None:
        """Write whether the arbiter of ``epoch`` can reach the cluster. Without effect if it is another."""
        await self._tell("is_blind", epoch, cluster_unreachable)

    async def tell_partial(self, epoch: int, is_partial: bool) -> None:
        """Let the others know whether the arbiter of ``epoch`` can read all records, as `tell_unreachable`."""
        await self._tell("is_partial", epoch, is_partial)

    async def _tell(self, column: str, epoch: int, value: bool) -> None:
        def tell(connection: Connection) -> None:
            connection.execute(
                text(
                    f"UPDATE slot_arbiters SET {column} = :value "
                    "WHERE home = :home AND owner = :owner AND epoch = :epoch"
                ),
                {"home": self.home, "owner": self.store.owner, "epoch": epoch, "value": int(value)},
            )

        await self.store.write(tell)

    async def put_grants(
        self, arbiter: SlotArbiter, grants: Iterable[SlotGrant], *, drop: Sequence[str] = ()
    ) -> bool:
        """Write grants as ``arbiter``, as it was read with the records that they are based on, and forget jobs that
        have ended. It stays the arbiter for another lease time.

        False: another one is the arbiter, or other grants were written since: of this control plane's own, by a write
        whose answer was lost. Then they may give these slots to another job, and nothing is written.
        """
        rows = list(grants)

        def put(connection: Connection) -> bool:
            changes = bool(rows or drop)
            if not _renewed(connection, self.home, arbiter, self.store.lease_ttl_ms, changes=changes):
                return False
            for grant in rows:
                connection.execute(
                    text(
                        "INSERT INTO slot_grants (job_id, version, changed_ms, document) "
                        "SELECT c.job_id, :version, :changed, :document FROM slot_claims AS c "
                        "WHERE c.job_id = :job ON CONFLICT (job_id) DO UPDATE SET version = excluded.version, "
                        "changed_ms = excluded.changed_ms, document = excluded.document"
                    ),
                    {
                        "job": grant.job_id,
                        "version": grant.version,
                        "changed": grant.changed_ms,
                        "document": _grant.dump_json(grant).decode(),
                    },
                )
            for job_id in drop:
                connection.execute(text("DELETE FROM slot_grants WHERE job_id = :job"), {"job": job_id})
                connection.execute(text("DELETE FROM slot_claims WHERE job_id = :job"), {"job": job_id})
            return True

        return await self.store.write(put)


def _renewed(connection: Connection, home: str, arbiter: SlotArbiter, ttl_ms: int, *, changes: bool) -> bool:
    """Put off the end of the arbiter's lease; ``changes``: another decision is written. Its row is locked then, so
    no other owner becomes the arbiter, or writes a decision, before the transaction has ended."""
    clock = CLOCK_MS[connection.dialect.name]
    done = connection.execute(
        text(
            f"UPDATE slot_arbiters SET expires_ms = {clock} + :ttl, decisions = decisions + :more "
            "WHERE home = :home AND owner = :owner AND epoch = :epoch AND decisions = :decisions"
        ),
        {
            "home": home,
            "owner": arbiter.owner,
            "epoch": arbiter.epoch,
            "decisions": arbiter.decisions,
            "ttl": ttl_ms,
            "more": int(changes),
        },
    )
    return done.rowcount == 1


def _entry(row: _Row) -> Entry | None:
    """What one job has; None if its slots cannot be read.

    A newer server may have written what is not known here. If it is what the job wants, it keeps what it has.
    """
    job_id, seq, seen, holds, ask, changed_ms, document = row
    try:
        held = _ids.validate_json(holds)
        grant = None if document is None else _grant_in(job_id, document)
    except ValueError as error:
        log.error("which slots a job holds cannot be read", job=job_id, error=str(error))
        return None
    try:
        wants = _ask.validate_json(ask)
    except ValidationError as error:
        log.error("what a job wants cannot be read", job=job_id, error=str(error))
        # One that asks for nothing keeps what it has, and one that runs also while its cluster is unreachable.
        wants = Ask(giving=Releasable(running=True))
    return Entry(SlotClaim(job_id, int(seq), int(seen), held, wants, int(changed_ms)), grant)


def _named(row: _Row) -> frozenset[str] | None:
    """The ids of the slots that a job may hold of whose records not all can be read; None if they cannot be told."""
    try:
        holds, grant = json.loads(row[3]), None if row[6] is None else json.loads(row[6])
        found = [*holds]
        if grant is not None:
            found += [*grant["withdrawn"], *(slot["id"] for slot in grant["slots"])]
    except (ValueError, TypeError, KeyError):
        return None
    strings = isinstance(holds, list) and all(isinstance(one, str) for one in found)
    return frozenset(found) if strings else None


def _grant_in(job_id: str, document: str) -> SlotGrant:
    """
    Raises:
        ValueError: the slots cannot be read.
    """
    try:
        return _grant.validate_json(document)
    except ValidationError as error:
        # It is for people. The slots are not.
        grant = _grant.validate_python({**json.loads(document), "verdict": None})
        log.error("the verdict on a job's slots cannot be read", job=job_id, error=str(error))
        return grant
