"""Events have no index by job on SQLite, where each PUT rewrote a page of it (ADR 43)."""

from __future__ import annotations

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        op.drop_index("ix_events_of_job", "events")


def downgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        op.create_index("ix_events_of_job", "events", ["job_id", "id"])
