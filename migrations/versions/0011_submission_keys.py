"""Submissions with an Idempotency-Key: a repeated one finds the job of the first."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "submission_keys",
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("document_hash", sa.Text(), nullable=False),
        sa.Column("files_hash", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.job_id"], name=op.f("fk_submission_keys_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("author", "key", name=op.f("pk_submission_keys")),
        sa.UniqueConstraint("job_id", name=op.f("uq_submission_keys_job_id")),
    )


def downgrade() -> None:
    op.drop_table("submission_keys")
