"""What the store keeps of a job and no server reads back."""

from __future__ import annotations

from sqlalchemy import select

from app.model.requirements import Requirements
from app.store import tables
from app.store.codec import REQUIREMENTS
from app.store.store import Store


async def requirements(store: Store, job_id: str) -> list[Requirements]:
    """The versions of the requirements, newest first."""
    table = tables.requirements
    query = select(table).where(table.c.job_id == job_id).order_by(table.c.version.desc())
    rows = await store.read(lambda connection: connection.execute(query).all())
    return [REQUIREMENTS.value(row) for row in rows]
