"""How far the time has come by which ages are told: see `app.worker.housekeeping.age_clock`.

A database that is in use begins with the latest time at which bounds were declared: what the clock of the server says
at the moment of the migration may be wrong.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "age_clock",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("reached_ms", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_age_clock_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_age_clock")),
    )
    op.execute(
        "INSERT INTO age_clock (id, reached_ms) SELECT 1, latest_ms FROM "
        "(SELECT MAX(created_ms) AS latest_ms FROM requirements) AS known WHERE latest_ms IS NOT NULL"
    )


def downgrade() -> None:
    op.drop_table("age_clock")
