"""Ownership of jobs: who may write a job's rows, and since which epoch.

A lease is a row with an owner, an epoch and an expiry by the database's clock. Taking a lease makes a new epoch; an
owner that was paused past its expiry finds its writes refused, because the row has another epoch by then. The expiry
alone protects nothing.

An owner may have a home: the place where the files of its jobs are, which nobody else can reach. Its jobs are claimed
by owners of the same home only, however long their leases have expired: elsewhere they would begin without their
checkpoints, beside drivers that cannot be seen from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.engine import Connection

from app.store.errors import StoreError
from app.store.statements import sql


@dataclass(frozen=True, slots=True)
class Lease:
    """``expires_ms`` is by the database's clock: compare it with nothing else."""

    job_id: str
    owner: str
    epoch: int
    expires_ms: int


_AT_HOME = "home:"
# The owner of a lease that no control plane of this home holds.
_NOBODY = "nobody"


def full_name(owner: str, home: str) -> str:
    """The name under which ``owner`` holds leases, with its home in front if it has one."""
    return f"{_prefix(home)}{owner}" if home else owner


def _prefix(home: str) -> str:
    return f"{_AT_HOME}{home}/"


class LeaseHeld(StoreError):
    """Another owner holds the job's lease, and it has not expired."""


def acquire(connection: Connection, job_id: str, owner: str, ttl_ms: int, *, at_once: bool) -> Lease:
    """Take the lease of one job at the next epoch.

    ``at_once``: the previous owner is known to be gone (this process has locked the data directory).

    Raises:
        LeaseHeld: another owner has it.
        StoreError: there is no such job.
    """
    row = sql(
        connection,
        "UPDATE leases SET owner = :owner, epoch = epoch + 1, expires_ms = {clock} + :ttl WHERE job_id = :job AND "
        "(owner IS NULL OR owner = :owner OR expires_ms <= {clock} OR :at_once = 1) RETURNING epoch, expires_ms",
        owner=owner,
        ttl=ttl_ms,
        job=job_id,
        at_once=int(at_once),
    ).first()
    if row is not None:
        return Lease(job_id, owner, int(row[0]), int(row[1]))
    holder = sql(connection, "SELECT owner FROM leases WHERE job_id = :job", job=job_id).first()
    if holder is None:
        raise StoreError(f"There is no job {job_id}.")
    raise LeaseHeld(f"Job {job_id} is owned by {holder[0]}.")


def holds_lease(connection: Connection, job_id: str, owner: str, epoch: int) -> bool:
    """Whether it is so, and stays so until the transaction has ended."""
    share = "FOR SHARE" if connection.dialect.name == "postgresql" else ""
    query = f"SELECT 1 FROM leases WHERE job_id = :job AND owner = :owner AND epoch = :epoch {share}"
    return sql(connection, query, job=job_id, owner=owner, epoch=epoch).first() is not None


def claim(
    connection: Connection,
    owner: str,
    ttl_ms: int,
    limit: int,
    *,
    at_once: bool,
    home: str = "",
    passing_over: Sequence[str] = (),
) -> list[Lease]:
    """Take the leases of up to ``limit`` jobs that have not ended and that no other owner holds, at their next epochs.

    Owners that claim at the same time get different jobs: a row that another one is taking is passed over. Jobs of
    another ``home`` are passed over too; those of owners without one may be claimed from everywhere. Nor does it take
    those of ``passing_over``.
    """
    skip = "FOR UPDATE OF leases SKIP LOCKED" if connection.dialect.name == "postgresql" else ""
    rows = sql(
        connection,
        "WITH free AS (SELECT leases.job_id FROM leases JOIN job_states ON job_states.job_id = leases.job_id "
        "WHERE job_states.ended_ms IS NULL AND leases.job_id NOT IN :passing_over AND (leases.owner IS NULL OR "
        "(leases.owner <> :owner AND (leases.expires_ms <= {clock} OR :at_once = 1) AND "
        "(substr(leases.owner, 1, :any_length) <> :any_home OR substr(leases.owner, 1, :length) = :home))) "
        f"ORDER BY leases.job_id LIMIT :limit {skip}) "
        "UPDATE leases SET owner = :owner, epoch = epoch + 1, expires_ms = {clock} + :ttl "
        "WHERE job_id IN (SELECT job_id FROM free) RETURNING job_id, epoch, expires_ms",
        passing_over=list(passing_over),
        owner=owner,
        ttl=ttl_ms,
        limit=limit,
        at_once=int(at_once),
        any_home=_AT_HOME,
        any_length=len(_AT_HOME),
        home=_prefix(home),
        length=len(_prefix(home)),
    )
    return sorted((Lease(str(j), owner, int(e), int(x)) for j, e, x in rows), key=lambda lease: lease.job_id)


def renew(connection: Connection, owner: str, ttl_ms: int) -> list[Lease]:
    """Put the expiry of every lease of ``owner`` off, and return them. One that is missing was lost."""
    rows = sql(
        connection,
        "UPDATE leases SET expires_ms = {clock} + :ttl WHERE owner = :owner RETURNING job_id, epoch, expires_ms",
        owner=owner,
        ttl=ttl_ms,
    )
    return [Lease(str(job), owner, int(epoch), int(expires)) for job, epoch, expires in rows]


def release(connection: Connection, job_id: str, owner: str, epoch: int, *, home: str = "") -> bool:
    """Give a lease up, so that anyone of the ``home`` may take it at once. False: it was lost already."""
    done = sql(
        connection,
        "UPDATE leases SET owner = :nobody, expires_ms = 0 WHERE job_id = :job AND owner = :owner AND epoch = :epoch",
        nobody=full_name(_NOBODY, home) if home else None,
        job=job_id,
        owner=owner,
        epoch=epoch,
    )
    return done.rowcount == 1


def expire(connection: Connection, owner: str) -> int:
    """Let all leases of ``owner`` expire now, so that the next owner need not wait. Returns their number.

    The owner stays in the rows: it says whose home the jobs have.
    """
    return sql(
        connection, "UPDATE leases SET expires_ms = 0 WHERE owner = :owner AND expires_ms > 0", owner=owner
    ).rowcount
