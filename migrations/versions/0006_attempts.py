"""Attempts: what each began with, where it runs, how it ended, and where its log begins."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_TEXTS = ("parallelism", "host", "spark_version", "ui_url", "ending", "ended_why")


def upgrade() -> None:
    op.add_column(
        "attempts", sa.Column("log_from", sa.BigInteger(), nullable=False, server_default=sa.text("0"))
    )
    op.add_column("attempts", sa.Column("plan_version", sa.BigInteger()))
    for name in _TEXTS:
        op.add_column("attempts", sa.Column(name, sa.Text()))


def downgrade() -> None:
    for name in (*reversed(_TEXTS), "plan_version", "log_from"):
        op.drop_column("attempts", name)
