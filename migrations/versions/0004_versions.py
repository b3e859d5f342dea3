"""Versions of jobs: what is in force is in `jobs`, and the one to come or to go back to beside it.

On the way back each job keeps the version that is in force, but for its files if that is not the first one.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "job_versions",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("options", sa.Text(), nullable=False),
        sa.CheckConstraint("version >= 1", name=op.f("ck_job_versions_version")),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.job_id"], name=op.f("fk_job_versions_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "version", name=op.f("pk_job_versions")),
    )
    op.create_table(
        "version_artifacts",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.CheckConstraint("version >= 2", name=op.f("ck_version_artifacts_version")),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.job_id"], name=op.f("fk_version_artifacts_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "version", "name", name=op.f("pk_version_artifacts")),
    )


def downgrade() -> None:
    op.drop_table("version_artifacts")
    op.drop_table("job_versions")
