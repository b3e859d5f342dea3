"""The control planes that share a database and a data directory, and how many jobs each owns.

Each control plane has a row that it renews together with its leases. Only the database's clock decides which
ones are alive, so differing clocks of hosts do no harm. These rows do not decide who may write; leases do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.engine import Connection, Row

from app.model.public_event import PublicEventType
from app.store.errors import StoreError
from app.store.events import insert_change, insert_of_cluster
from app.store.leases import Lease
from app.store.statements import CLOCK_MS
from app.store.store import Store

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


_COLUMNS = ("member_id", "home", "seat", "url", "host", "place", "pid", "version", "slots", "cluster")


def task_manager_of(seat: int) -> str:
    return "host" if seat == 1 else f"host-{seat}"


class Members:
    """What one control plane asks and tells the database about all of them. Raises `StoreError`, as `Store` does."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def join(self, member: Member) -> list[str]:
        """Add ``member``, unless members of other places are alive: then their hosts, and nothing is changed.

        The previous holder of the seat is dead, so its leases expire at once.

        Raises:
            StoreError: members that are alive run their jobs elsewhere, so they cannot share slots.
        """

        def join(connection: Connection) -> list[str]:
            clock = CLOCK_MS[connection.dialect.name]
            others = connection.execute(
                text(
                    "SELECT DISTINCT host FROM members WHERE home = :home AND place <> :place "
                    f"AND expires_ms > {clock} ORDER BY host"
                ),
                {"home": member.home, "place": member.place},
            ).all()
            if others:
                return [str(host) for (host,) in others]
            _same_cluster(connection, member)
            of_seat = {"home": member.home, "seat": member.seat}
            connection.execute(
                text(
                    "UPDATE leases SET expires_ms = 0 WHERE expires_ms > 0 AND owner IN "
                    "(SELECT member_id FROM members WHERE home = :home AND seat = :seat)"
                ),
                of_seat,
            )
            connection.execute(
                text(
                    "UPDATE slot_arbiters SET expires_ms = 0 WHERE home = :home AND owner IN "
                    "(SELECT member_id FROM members WHERE home = :home AND seat = :seat)"
                ),
                of_seat,
            )
            before = connection.execute(
                text(
                    f"SELECT {', '.join(_COLUMNS)} FROM members "
                    f"WHERE home = :home AND seat = :seat AND expires_ms > {clock}"
                ),
                of_seat,
            ).first()
            connection.execute(text("DELETE FROM members WHERE home = :home AND seat = :seat"), of_seat)
            connection.execute(
                text(f"DELETE FROM members WHERE expires_ms < {clock} - :long"), {"long": _FORGET_AFTER_MS}
            )
            _put(connection, member, self._store.lease_ttl_ms)
            former = None if before is None else Member(*before)
            if former != member:
                if former is not None:
                    _tell(connection, PublicEventType.MEMBER_LEFT, former)
                _tell(connection, PublicEventType.MEMBER_JOINED, member)
            return []

        return await self._store.write(join)

    async def beat(self, member: Member) -> None:
        """Put off the expiry of ``member``, which is added again if another member has removed it as dead."""

        def beat(connection: Connection) -> None:
            clock = CLOCK_MS[connection.dialect.name]
            alive = text(f"SELECT 1 FROM members WHERE member_id = :member AND expires_ms > {clock}")
            was_alive = connection.execute(alive, {"member": member.member_id}).first() is not None
            _put(connection, member, self._store.lease_ttl_ms)
            if not was_alive:
                _tell(connection, PublicEventType.MEMBER_JOINED, member)
            _tell_of_silent(connection)

        await self._store.write(beat)

    async def leave(self, member: Member) -> None:
        def leave(connection: Connection) -> None:
            who = {"member": member.member_id}
            connection.execute(text("UPDATE slot_arbiters SET expires_ms = 0 WHERE owner = :member"), who)
            gone = connection.execute(text("DELETE FROM members WHERE member_id = :member"), who)
            if gone.rowcount:
                _tell(connection, PublicEventType.MEMBER_LEFT, member)

        await self._store.write(leave)

    async def bury(self, member_ids: Sequence[str]) -> None:
        """These are known to be dead: their leases expire now, and they count as alive no more."""

        def bury(connection: Connection) -> None:
            clock = CLOCK_MS[connection.dialect.name]
            left: list[Member] = []
            for member_id in member_ids:
                who = {"member": member_id}
                # Not long ago: its slots stay in the pool for a while.
                buried = connection.execute(
                    text(
                        f"UPDATE members SET expires_ms = {clock} "
                        f"WHERE member_id = :member AND expires_ms > {clock} RETURNING {', '.join(_COLUMNS)}"
                    ),
                    who,
                ).first()
                connection.execute(
                    text("UPDATE leases SET expires_ms = 0 WHERE owner = :member AND expires_ms > 0"), who
                )
                connection.execute(text("UPDATE slot_arbiters SET expires_ms = 0 WHERE owner = :member"), who)
                if buried is not None:
                    left.append(Member(*buried))
            for member in left:
                _tell(connection, PublicEventType.MEMBER_LEFT, member)

        await self._store.write(bury)

    async def spread(self, home: str) -> Spread:
        """The members of ``home``, by seat, and their jobs."""
        return await self._store.read(lambda connection: _spread(connection, home))

    async def handed_over(self, member_id: str) -> int:
        """How many jobs others have handed to ``member_id``: more than before, if there is one to take up."""

        def handed_over(connection: Connection) -> int:
            found = connection.execute(
                text("SELECT handed_over FROM members WHERE member_id = :member"), {"member": member_id}
            ).first()
            return 0 if found is None else int(found[0])

        return await self._store.read(handed_over)

    async def hand_over(self, job_id: str, epoch: int, to: str) -> bool:
        """Give a job with its lease, at the next epoch, to a member that is alive. False: nothing was changed."""

        def hand_over(connection: Connection) -> bool:
            clock = CLOCK_MS[connection.dialect.name]
            who = {"to": to, "ttl": self._store.lease_ttl_ms}
            done = connection.execute(
                text(
                    f"UPDATE leases SET owner = :to, epoch = epoch + 1, expires_ms = {clock} + :ttl "
                    "WHERE job_id = :job AND owner = :owner AND epoch = :epoch AND EXISTS "
                    f"(SELECT 1 FROM members WHERE member_id = :to AND expires_ms > {clock})"
                ),
                {**who, "job": job_id, "owner": self._store.owner, "epoch": epoch},
            )
            if done.rowcount != 1:
                return False
            connection.execute(
                text("UPDATE members SET handed_over = handed_over + 1 WHERE member_id = :to"), {"to": to}
            )
            return True

        return await self._store.write(hand_over)

    async def owner_of(self, job_id: str) -> Member | None:
        """The member that holds the job's lease, if it is alive."""

        def owner_of(connection: Connection) -> Member | None:
            clock = CLOCK_MS[connection.dialect.name]
            found = connection.execute(
                text(
                    f"SELECT {', '.join('m.' + name for name in _COLUMNS)} FROM leases AS l "
                    "JOIN members AS m ON m.member_id = l.owner "
                    f"WHERE l.job_id = :job AND l.expires_ms > {clock} AND m.expires_ms > {clock}"
                ),
                {"job": job_id},
            ).first()
            return None if found is None else Member(*found)

        return await self._store.read(owner_of)

    async def lease_of(self, job_id: str) -> Lease | None:
        """Who holds the job's lease, whether it has expired or not."""

        def lease_of(connection: Connection) -> Lease | None:
            found = connection.execute(
                text("SELECT owner, epoch, expires_ms FROM leases WHERE job_id = :job AND owner IS NOT NULL"),
                {"job": job_id},
            ).first()
            return None if found is None else Lease(job_id, *found)

        return await self._store.read(lease_of)

    async def marks(self, job_ids: Sequence[str] | None = None) -> list[JobMark]:
        """The marks of the named jobs, or of all."""

        def marks(connection: Connection) -> list[JobMark]:
            query = (
                "SELECT s.job_id, s.seq, s.ended_ms IS NOT NULL, l.owner FROM job_states AS s "
                "JOIN leases AS l ON l.job_id = s.job_id"
            )
            if job_ids is None:
                rows = list(connection.execute(text(query)))
            else:
                one = text(query + " WHERE s.job_id = :job")
                rows = [row for job_id in job_ids for row in connection.execute(one, {"job": job_id})]
            return [JobMark(row[0], int(row[1]), bool(row[2]), row[3]) for row in rows]

        return await self._store.read(marks)


def _same_cluster(connection: Connection, member: Member) -> None:
    clock = CLOCK_MS[connection.dialect.name]
    other = connection.execute(
        text(
            "SELECT url, cluster FROM members WHERE home = :home AND seat <> :seat AND cluster <> :cluster "
            f"AND expires_ms > {clock} ORDER BY seat"
        ),
        {"home": member.home, "seat": member.seat, "cluster": member.cluster},
    ).first()
    if other is not None:
        raise StoreError(
            f"cluster: servers that share a data directory share their slots. The one at {other[0]} runs jobs on "
            f"{other[1] or 'its host'}, and this one is to run them on {member.cluster or 'its host'}."
        )


def _put(connection: Connection, member: Member, ttl_ms: int) -> None:
    clock = CLOCK_MS[connection.dialect.name]
    connection.execute(
        text(
            f"INSERT INTO members ({', '.join(_COLUMNS)}, joined_ms, expires_ms) "
            f"VALUES ({', '.join(':' + name for name in _COLUMNS)}, {clock}, {clock} + :ttl) "
            f"ON CONFLICT (member_id) DO UPDATE SET expires_ms = excluded.expires_ms"
        ),
        {**{name: getattr(member, name) for name in _COLUMNS}, "ttl": ttl_ms},
    )


def _spread(connection: Connection, home: str) -> Spread:
    clock = CLOCK_MS[connection.dialect.name]
    rows = connection.execute(
        text(
            f"SELECT {', '.join(_COLUMNS)}, joined_ms, expires_ms > {clock} FROM members "
            "WHERE home = :home ORDER BY seat"
        ),
        {"home": home},
    ).all()
    jobs: dict[str, int] = {}
    free = 0
    for owner, is_held, count in connection.execute(
        text(
            f"SELECT l.owner, l.owner IS NOT NULL AND l.expires_ms > {clock}, count(*) FROM leases AS l "
            "JOIN job_states AS s ON s.job_id = l.job_id WHERE s.ended_ms IS NULL GROUP BY 1, 2"
        )
    ):
        if is_held:
            jobs[owner] = int(count)
        elif owner is None or owner.startswith(f"home:{home}/"):
            free += int(count)
    return Spread(tuple(_state(row, jobs) for row in rows), free)


def _state(row: Row[tuple[object, ...]], jobs: dict[str, int]) -> MemberState:
    values = tuple(row)
    member = Member(*values[: len(_COLUMNS)])  # type: ignore[arg-type]
    return MemberState(member, int(str(values[-2])), bool(values[-1]), jobs.get(member.member_id, 0))


def _tell(connection: Connection, kind: PublicEventType, member: Member) -> None:
    insert_of_cluster(connection, kind, _fields(member))


def _tell_of_silent(connection: Connection) -> None:
    """Members that have not been heard for too long have left: whoever sees it first tells of it."""
    clock = CLOCK_MS[connection.dialect.name]
    silent = text(f"SELECT {', '.join(_COLUMNS)} FROM members WHERE expires_ms <= {clock}")
    for row in connection.execute(silent).all():
        insert_change(connection, PublicEventType.MEMBER_LEFT, _MEMBERSHIP, _fields(Member(*row)))


def _fields(member: Member) -> dict[str, object]:
    return {"seat": member.seat, "url": member.url, "host": member.host, "version": member.version}
