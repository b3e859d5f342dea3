"""The control planes that share a database and a data directory, and how many jobs each owns.

Each control plane has a row that it renews together with its leases. Only the database's clock decides which
ones are alive, so differing clocks of hosts do no harm. These rows do not decide who may write; leases do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.engine import Connection

from app.model.public_event import PublicEventType
from app.store.errors import StoreError
from app.store.events import insert_change, insert_of_cluster
from app.store.leases import expire, full_name
from app.store.statements import sql
from app.store.store import Store, read_transaction, write_transaction

_FORGET_AFTER_MS = 3_600_000
_MEMBERSHIP = (PublicEventType.MEMBER_JOINED, PublicEventType.MEMBER_LEFT)


@dataclass(frozen=True, slots=True)
class Member:
    """One control-plane process. ``member_id`` is the name under which it holds leases.

    ``seat``: its number among those of the data directory, which the next process may have after it. ``place`` names
    the kernel and the process namespace: only who is in the same one can see its drivers. ``cluster``: the master of
    the Spark cluster where its jobs run; empty for the host.
    """

    member_id: str
    home: str
    seat: int
    url: str
    host: str
    place: str
    pid: int
    version: str
    slots: int
    cluster: str = ""

    @property
    def task_manager(self) -> str:
        """The name of what it offers slots of. It stays with the seat, so that jobs keep their slots over restarts."""
        return task_manager_of(self.seat)


@dataclass(frozen=True, slots=True)
class MemberState:
    """A member as the database sees it now. ``jobs``: how many that have not ended it holds the leases of."""

    member: Member
    joined_ms: int
    is_alive: bool
    jobs: int


@dataclass(frozen=True, slots=True)
class Spread:
    """The number of jobs of each member. ``free``: jobs that have not ended and whose leases have no holder."""

    members: tuple[MemberState, ...]
    free: int

    @property
    def alive(self) -> tuple[MemberState, ...]:
        return tuple(state for state in self.members if state.is_alive)

    @property
    def total(self) -> int:
        """Jobs of members that are alive, and free ones."""
        return self.free + sum(state.jobs for state in self.alive)


@dataclass(frozen=True, slots=True)
class JobMark:
    """What tells whether something that was read of a job is still so. ``owner`` None: its lease was given up."""

    job_id: str
    seq: int
    has_ended: bool
    owner: str | None


_NAMES = ("member_id", "home", "seat", "url", "host", "place", "pid", "version", "slots", "cluster")
_COLUMNS = ", ".join(_NAMES)


def task_manager_of(seat: int) -> str:
    return "host" if seat == 1 else f"host-{seat}"


@dataclass(frozen=True, slots=True)
class Members:
    """What one control plane asks and tells the database about all of them. Raises `StoreError`, as `Store` does."""

    store: Store

    @write_transaction
    def join(self, connection: Connection, member: Member) -> list[str]:
        """Add ``member``, unless members of other places are alive: then their hosts, and nothing is changed.

        The previous holder of the seat is dead, so its leases expire at once.

        Raises:
            StoreError: members that are alive run their jobs elsewhere, so they cannot share slots.
        """
        others = sql(
            connection,
            "SELECT DISTINCT host FROM members WHERE home = :home AND place <> :place AND expires_ms > {clock} "
            "ORDER BY host",
            home=member.home,
            place=member.place,
        ).all()
        if others:
            return [str(host) for (host,) in others]
        _same_cluster(connection, member)
        seat = {"home": member.home, "seat": member.seat}
        before = sql(
            connection,
            f"SELECT expires_ms > {{clock}}, {_COLUMNS} FROM members WHERE home = :home AND seat = :seat",
            **seat,
        ).first()
        former = None
        if before is not None:
            is_alive, *values = before
            _expire_leases(connection, values[0])
            former = Member(*values) if is_alive else None
        _tell_of_silent(connection)
        sql(connection, "DELETE FROM members WHERE home = :home AND seat = :seat", **seat)
        _put(connection, member, self.store.lease_ttl_ms)
        if former != member:
            if former is not None:
                _tell(connection, PublicEventType.MEMBER_LEFT, former)
            _tell(connection, PublicEventType.MEMBER_JOINED, member)
        return []

    @write_transaction
    def beat(self, connection: Connection, member: Member) -> None:
        """Put off the expiry of ``member``, which is added again if another member has removed it as dead."""
        alive = "SELECT 1 FROM members WHERE member_id = :member AND expires_ms > {clock}"
        was_alive = sql(connection, alive, member=member.member_id).first() is not None
        _put(connection, member, self.store.lease_ttl_ms)
        if not was_alive:
            _tell(connection, PublicEventType.MEMBER_JOINED, member)
        _tell_of_silent(connection)

    @write_transaction
    def leave(self, connection: Connection, member: Member) -> None:
        _expire_arbiter(connection, member.member_id)
        gone = sql(connection, "DELETE FROM members WHERE member_id = :member", member=member.member_id)
        if gone.rowcount:
            _tell(connection, PublicEventType.MEMBER_LEFT, member)

    @write_transaction
    def bury(self, connection: Connection, member_ids: Sequence[str]) -> None:
        """These are known to be dead: their leases expire now, and they count as alive no more."""
        left: list[Member] = []
        for member_id in member_ids:
            # Not long ago: its slots stay in the pool for a while.
            buried = sql(
                connection,
                "UPDATE members SET expires_ms = {clock} WHERE member_id = :member AND expires_ms > {clock} "
                f"RETURNING {_COLUMNS}",
                member=member_id,
            ).first()
            _expire_leases(connection, member_id)
            if buried is not None:
                left.append(Member(*buried))
        for member in left:
            _tell(connection, PublicEventType.MEMBER_LEFT, member)

    @read_transaction
    def spread(self, connection: Connection, home: str) -> Spread:
        """The members of ``home``, by seat, and their jobs."""
        jobs: dict[str, int] = {}
        free = 0
        for owner, is_held, count in sql(
            connection,
            "SELECT l.owner, l.owner IS NOT NULL AND l.expires_ms > {clock}, count(*) FROM leases AS l "
            "JOIN job_states AS s ON s.job_id = l.job_id WHERE s.ended_ms IS NULL GROUP BY 1, 2",
        ):
            if is_held:
                jobs[owner] = int(count)
            elif owner is None or owner.startswith(full_name("", home)):
                free += int(count)
        rows = sql(
            connection,
            f"SELECT joined_ms, expires_ms > {{clock}}, {_COLUMNS} FROM members WHERE home = :home ORDER BY seat",
            home=home,
        )
        members = (
            MemberState(Member(*values), int(joined_ms), bool(is_alive), jobs.get(values[0], 0))
            for joined_ms, is_alive, *values in rows
        )
        return Spread(tuple(members), free)

    @read_transaction
    def handed_over(self, connection: Connection, member_id: str) -> int:
        """How many jobs others have handed to ``member_id``: more than before, if there is one to take up."""
        query = "SELECT handed_over FROM members WHERE member_id = :member"
        return int(sql(connection, query, member=member_id).scalar() or 0)

    @write_transaction
    def hand_over(self, connection: Connection, job_id: str, epoch: int, to: str) -> bool:
        """Give a job with its lease, at the next epoch, to a member that is alive. False: nothing was changed."""
        done = sql(
            connection,
            "UPDATE leases SET owner = :to, epoch = epoch + 1, expires_ms = {clock} + :ttl "
            "WHERE job_id = :job AND owner = :owner AND epoch = :epoch AND EXISTS "
            "(SELECT 1 FROM members WHERE member_id = :to AND expires_ms > {clock})",
            **{"to": to, "ttl": self.store.lease_ttl_ms},
            **{"job": job_id, "owner": self.store.owner, "epoch": epoch},
        )
        if done.rowcount != 1:
            return False
        sql(connection, "UPDATE members SET handed_over = handed_over + 1 WHERE member_id = :to", to=to)
        return True

    @read_transaction
    def owner_of(self, connection: Connection, job_id: str) -> Member | None:
        """The member that holds the job's lease, if it is alive."""
        found = sql(
            connection,
            f"SELECT {', '.join('m.' + name for name in _NAMES)} FROM leases AS l "
            "JOIN members AS m ON m.member_id = l.owner "
            "WHERE l.job_id = :job AND l.expires_ms > {clock} AND m.expires_ms > {clock}",
            job=job_id,
        ).first()
        return None if found is None else Member(*found)

    @read_transaction
    def marks(self, connection: Connection, job_ids: Sequence[str] | None = None) -> list[JobMark]:
        """The marks of the named jobs, or of all."""
        query = (
            "SELECT s.job_id, s.seq, s.ended_ms IS NOT NULL, l.owner FROM job_states AS s "
            "JOIN leases AS l ON l.job_id = s.job_id"
        )
        if job_ids is None:
            rows = list(sql(connection, query))
        else:
            rows = [
                row for each in job_ids for row in sql(connection, f"{query} WHERE s.job_id = :job", job=each)
            ]
        return [JobMark(row[0], int(row[1]), bool(row[2]), row[3]) for row in rows]


def _expire_leases(connection: Connection, member_id: str) -> None:
    """Those of a member that is dead."""
    expire(connection, member_id)
    _expire_arbiter(connection, member_id)


def _expire_arbiter(connection: Connection, member_id: str) -> None:
    sql(connection, "UPDATE slot_arbiters SET expires_ms = 0 WHERE owner = :member", member=member_id)


def _same_cluster(connection: Connection, member: Member) -> None:
    other = sql(
        connection,
        "SELECT url, cluster FROM members WHERE home = :home AND seat <> :seat AND cluster <> :cluster "
        "AND expires_ms > {clock} ORDER BY seat",
        **{"home": member.home, "seat": member.seat, "cluster": member.cluster},
    ).first()
    if other is not None:
        raise StoreError(
            f"cluster: servers that share a data directory share their slots. The one at {other[0]} runs jobs on "
            f"{other[1] or 'its host'}, and this one is to run them on {member.cluster or 'its host'}."
        )


def _put(connection: Connection, member: Member, ttl_ms: int) -> None:
    sql(
        connection,
        f"INSERT INTO members ({_COLUMNS}, joined_ms, expires_ms) "
        f"VALUES ({', '.join(':' + name for name in _NAMES)}, {{clock}}, {{clock}} + :ttl) "
        "ON CONFLICT (member_id) DO UPDATE SET expires_ms = excluded.expires_ms",
        **{name: getattr(member, name) for name in _NAMES},
        ttl=ttl_ms,
    )


def _tell(connection: Connection, kind: PublicEventType, member: Member) -> None:
    insert_of_cluster(connection, kind, _fields(member))


def _tell_of_silent(connection: Connection) -> None:
    """Members that have not been heard for too long have left: the member that sees it first tells of it.

    They are forgotten long before the event that tells of them is, so that nobody tells of them again.
    """
    for row in sql(connection, f"SELECT {_COLUMNS} FROM members WHERE expires_ms <= {{clock}}").all():
        insert_change(connection, PublicEventType.MEMBER_LEFT, _MEMBERSHIP, _fields(Member(*row)))
    sql(connection, "DELETE FROM members WHERE expires_ms < {clock} - :long", long=_FORGET_AFTER_MS)


def _fields(member: Member) -> dict[str, object]:
    return {"seat": member.seat, "url": member.url, "host": member.host, "version": member.version}
