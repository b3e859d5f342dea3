"""Attempts: what each began with, where it runs, how it ended, and where its log begins."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_NUMBERS = ("log_from", "plan_version")
_TEXTS = ("parallelism", "host", "spark_version", "ui_url", "ending", "ended_why")


def upgrade() -> None:
    for name in _NUMBERS:
        op.add_column("attempts", sa.Column(name, sa.BigInteger()))
    for name in _TEXTS:
        op.add_column("attempts", sa.Column(name, sa.Text()))


def downgrade() -> None:
    for name in reversed((*_NUMBERS, *_TEXTS)):
        op.drop_column("attempts", name)
