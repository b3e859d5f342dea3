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
from sqlalchemy.engine import Connection

from app.scheduler.adaptive.slot_declaration import Releasable
from app.scheduler.slot_ledger import Ask, Entry, SlotClaim, SlotGrant
from app.store.leases import holds_lease
from app.store.members import task_manager_of
from app.store.statements import sql
from app.store.store import Store, read_transaction, write_transaction

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
        rows, ledger = await self._read()
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

    @read_transaction
    def _read(self, connection: Connection) -> tuple[list[_Row], Ledger]:
        now_ms = int(sql(connection, "SELECT {clock}").scalar_one())
        # Before the records: that they are newer than this number does no harm.
        arbiter = sql(
            connection,
            "SELECT owner, epoch, expires_ms, is_blind, decisions, is_partial FROM slot_arbiters WHERE home = :home",
            home=self.home,
        ).first()
        # One statement, so that a claim and its grant are of one moment.
        rows = sql(
            connection,
            _ENTRIES.replace(" FROM", ", s.ended_ms FROM", 1)
            + "JOIN job_states AS s ON s.job_id = c.job_id JOIN jobs AS j ON j.job_id = c.job_id "
            "WHERE c.home = :home ORDER BY j.submitted_ms, j.job_id",
            home=self.home,
        ).all()
        members = sql(
            connection,
            "SELECT member_id, seat, slots, expires_ms FROM members WHERE home = :home ORDER BY seat",
            home=self.home,
        ).all()
        found = Ledger(
            now_ms,
            None if arbiter is None else _arbiter(now_ms, *arbiter),
            ended=tuple(row[0] for row in rows if row[-1] is not None),
            task_managers=tuple((task_manager_of(int(seat)), int(slots)) for _, seat, slots, _ in members),
            seats=tuple((str(name), int(seat)) for name, seat, _, until in members if int(until) > now_ms),
        )
        return [tuple(row)[:-1] for row in rows if row[-1] is None], found

    @read_transaction
    def entries_of(self, connection: Connection, job_ids: Sequence[str]) -> dict[str, Entry | None]:
        """What there is of these jobs, in one look for each job; None if it cannot be read."""
        query = _ENTRIES + "WHERE c.job_id = :job"
        rows = [tuple(row) for job_id in job_ids for row in sql(connection, query, job=job_id)]
        return {row[0]: _entry(row) for row in rows}

    @write_transaction
    def put_claims(self, connection: Connection, claims: Sequence[OwnClaim]) -> set[str]:
        """Write claims of this owner; the jobs whose lease it does not hold at that epoch, of which nothing is
        written."""
        lost = set()
        for one in sorted(claims, key=lambda each: each.claim.job_id):
            claim = one.claim
            if not holds_lease(connection, claim.job_id, self.store.owner, one.epoch):
                lost.add(claim.job_id)
                continue
            sql(
                connection,
                "INSERT INTO slot_claims (job_id, home, seq, seen, holds, ask, changed_ms) "
                "VALUES (:job, :home, :seq, :seen, :holds, :ask, {clock}) "
                "ON CONFLICT (job_id) DO UPDATE SET home = excluded.home, seq = excluded.seq, "
                "seen = excluded.seen, holds = excluded.holds, ask = excluded.ask, "
                "changed_ms = CASE WHEN :moved = 1 THEN excluded.changed_ms ELSE slot_claims.changed_ms END",
                job=claim.job_id,
                home=self.home,
                seq=claim.seq,
                seen=claim.seen,
                holds=_ids.dump_json(frozenset(claim.holds)).decode(),
                ask=_ask.dump_json(claim.ask).decode(),
                moved=int(one.moved),
            )
        return lost

    @write_transaction
    def become_arbiter(self, connection: Connection, *, partial: bool = False) -> int | None:
        """The epoch at which this owner becomes the arbiter; None if another one is. An owner that can read all records
        goes before one that cannot (``partial``)."""
        epoch = sql(
            connection,
            "INSERT INTO slot_arbiters (home, owner, epoch, expires_ms, decisions, is_partial) "
            "VALUES (:home, :owner, 1, {clock} + :ttl, 0, :partial) ON CONFLICT (home) DO UPDATE SET "
            "owner = excluded.owner, epoch = slot_arbiters.epoch + 1, expires_ms = excluded.expires_ms, "
            "is_partial = excluded.is_partial WHERE slot_arbiters.expires_ms <= {clock} "
            "OR (slot_arbiters.is_partial = 1 AND :partial = 0) RETURNING epoch",
            home=self.home,
            owner=self.store.owner,
            ttl=self.store.lease_ttl_ms,
            partial=int(partial),
        ).scalar()
        return None if epoch is None else int(epoch)

    async def tell_unreachable(self, epoch: int, cluster_unreachable: bool) -> None:
        """Write whether the arbiter of ``epoch`` can reach the cluster. Without effect if it is another."""
        await self._tell("is_blind", epoch, cluster_unreachable)

    async def tell_partial(self, epoch: int, is_partial: bool) -> None:
        """Let the others know whether the arbiter of ``epoch`` can read all records, as `tell_unreachable`."""
        await self._tell("is_partial", epoch, is_partial)

    @write_transaction
    def _tell(self, connection: Connection, column: str, epoch: int, value: bool) -> None:
        sql(
            connection,
            f"UPDATE slot_arbiters SET {column} = :value WHERE home = :home AND owner = :owner AND epoch = :epoch",
            home=self.home,
            owner=self.store.owner,
            epoch=epoch,
            value=int(value),
        )

    @write_transaction
    def put_grants(
        self,
        connection: Connection,
        arbiter: SlotArbiter,
        grants: Iterable[SlotGrant],
        *,
        drop: Sequence[str] = (),
    ) -> bool:
        """Write grants as ``arbiter``, as it was read with the records that they are based on, and forget jobs that
        have ended. It stays the arbiter for another lease time.

        False: another one is the arbiter, or other grants were written since: of this control plane's own, by a write
        whose answer was lost. Then they may give these slots to another job, and nothing is written.
        """
        rows = list(grants)
        changes = bool(rows or drop)
        if not _renewed(connection, self.home, arbiter, self.store.lease_ttl_ms, changes=changes):
            return False
        for grant in rows:
            sql(
                connection,
                "INSERT INTO slot_grants (job_id, version, changed_ms, document) "
                "SELECT c.job_id, :version, :changed, :document FROM slot_claims AS c "
                "WHERE c.job_id = :job ON CONFLICT (job_id) DO UPDATE SET version = excluded.version, "
                "changed_ms = excluded.changed_ms, document = excluded.document",
                job=grant.job_id,
                version=grant.version,
                changed=grant.changed_ms,
                document=_grant.dump_json(grant).decode(),
            )
        for job_id in drop:
            sql(connection, "DELETE FROM slot_grants WHERE job_id = :job", job=job_id)
            sql(connection, "DELETE FROM slot_claims WHERE job_id = :job", job=job_id)
        return True


def _arbiter(
    now_ms: int, owner: str, epoch: int, expires_ms: int, is_blind: int, decisions: int, is_partial: int
) -> SlotArbiter:
    return SlotArbiter(
        owner, int(epoch), int(expires_ms) <= now_ms, bool(is_blind), int(decisions), bool(is_partial)
    )


def _renewed(connection: Connection, home: str, arbiter: SlotArbiter, ttl_ms: int, *, changes: bool) -> bool:
    """Put off the end of the arbiter's lease; ``changes``: another decision is written. Its row is locked then, so
    no other owner becomes the arbiter, or writes a decision, before the transaction has ended."""
    done = sql(
        connection,
        "UPDATE slot_arbiters SET expires_ms = {clock} + :ttl, decisions = decisions + :more "
        "WHERE home = :home AND owner = :owner AND epoch = :epoch AND decisions = :decisions",
        home=home,
        owner=arbiter.owner,
        epoch=arbiter.epoch,
        decisions=arbiter.decisions,
        ttl=ttl_ms,
        more=int(changes),
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
    """Raises ValueError: the slots cannot be read."""
    try:
        return _grant.validate_json(document)
    except ValidationError as error:
        # It is for people. The slots are not.
        grant = _grant.validate_python({**json.loads(document), "verdict": None})
        log.error("the verdict on a job's slots cannot be read", job=job_id, error=str(error))
        return grant
