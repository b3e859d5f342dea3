"""Livy batches: the numbers by which Livy's clients know some of the jobs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "livy_batches",
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.job_id"], name=op.f("fk_livy_batches_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_livy_batches")),
        sa.UniqueConstraint("job_id", name=op.f("uq_livy_batches_job_id")),
        # A number is never given again.
        sqlite_autoincrement=True,
    )


def downgrade() -> None:
    op.drop_table("livy_batches")
