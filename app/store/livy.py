"""The numbers that Livy's clients use for jobs. A number is never used again, not even after its job was
deleted, because a client that asks for it later must not get another job.
"""

from __future__ import annotations

from sqlalchemy import func, select
from sqlalchemy.engine import Connection

from app.store.tables import livy_batches


def number_of(connection: Connection, job_id: str) -> int | None:
    """The number of a job; None if it is no Livy batch."""
    query = select(livy_batches.c.number).where(livy_batches.c.job_id == job_id)
    number: int | None = connection.execute(query).scalar()
    return number


def job_of(connection: Connection, number: int) -> str | None:
    """The id of the job that has this number."""
    query = select(livy_batches.c.job_id).where(livy_batches.c.number == number)
    job_id: str | None = connection.execute(query).scalar()
    return job_id


def page(connection: Connection, first: int, most: int) -> tuple[int, dict[str, int]]:
    """How many there are, and of up to ``most`` of them, from place ``first`` on, the numbers by job, in order."""
    query = select(livy_batches).order_by(livy_batches.c.number).offset(first).limit(most)
    numbers = {row.job_id: row.number for row in connection.execute(query)}
    return connection.execute(select(func.count()).select_from(livy_batches)).scalar_one(), numbers
