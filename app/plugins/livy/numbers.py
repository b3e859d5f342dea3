"""The numbers that Livy's clients use for jobs, in a table of their own.

A number is never used again, not even after its job was deleted, because a client that asks for it later must not get
another job.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Column, ForeignKey, Integer, Table, Text, func, select
from sqlalchemy.engine import Connection

from app.store.statements import Statement
from app.store.tables import metadata
from app.store.writes import AddRow

livy_batches = Table(
    "livy_batches",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("job_id", Text, ForeignKey("jobs.job_id", ondelete="CASCADE"), nullable=False, unique=True),
    sqlite_autoincrement=True,
)

ADD_NUMBER: Final = AddRow(Statement("INSERT INTO livy_batches (job_id) VALUES ", "(?)"))
"""Gives a job the next number, in the transaction that stores it."""


def number_of_job(connection: Connection, job_id: str) -> int | None:
    """None if it is no Livy batch."""
    query = select(livy_batches.c.number).where(livy_batches.c.job_id == job_id)
    number: int | None = connection.execute(query).scalar()
    return number


def job_of_number(connection: Connection, number: int) -> str | None:
    """The id of the job that has this number."""
    query = select(livy_batches.c.job_id).where(livy_batches.c.number == number)
    job_id: str | None = connection.execute(query).scalar()
    return job_id


def page_of_numbers(connection: Connection, first: int, most: int) -> tuple[int, dict[str, int]]:
    """How many there are, and of up to ``most`` of them, from place ``first`` on, the numbers by job, in order."""
    query = select(livy_batches).order_by(livy_batches.c.number).offset(first).limit(most)
    numbers = {row.job_id: row.number for row in connection.execute(query)}
    return connection.execute(select(func.count()).select_from(livy_batches)).scalar_one(), numbers
