"""Versions of jobs: what is in force is in `jobs`, and the one to come or to go back to beside it.

On the way back each job keeps the version that is in force, with its files.
"""

from __future__ import annotations

import json

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
    _give_artifacts(versioned=True)


def downgrade() -> None:
    for job_id, version in _in_force():
        op.execute(
            sa.text("DELETE FROM artifacts WHERE job_id = :job_id AND version <> :version").bindparams(
                job_id=job_id, version=version
            )
        )
    _give_artifacts(versioned=False)
    op.drop_table("job_versions")


def _give_artifacts(*, versioned: bool) -> None:
    """Make the table anew, with its rows: SQLite cannot change the primary key of a table that is there."""
    op.execute("CREATE TABLE artifacts_before AS SELECT job_id, name, sha256, content FROM artifacts")
    op.drop_table("artifacts")
    op.create_table(
        "artifacts",
        sa.Column("job_id", sa.Text(), nullable=False),
        *[sa.Column("version", sa.BigInteger(), autoincrement=False, nullable=False)] * versioned,
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        *[sa.CheckConstraint("version >= 1", name=op.f("ck_artifacts_version"))] * versioned,
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.job_id"], name=op.f("fk_artifacts_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", *["version"] * versioned, "name", name=op.f("pk_artifacts")),
    )
    if versioned:
        op.execute(
            "INSERT INTO artifacts (job_id, version, name, sha256, content) "
            "SELECT job_id, 1, name, sha256, content FROM artifacts_before"
        )
        for job_id, version in _in_force():
            op.execute(
                sa.text("UPDATE artifacts SET version = :version WHERE job_id = :job_id").bindparams(
                    job_id=job_id, version=version
                )
            )
    else:
        op.execute(
            "INSERT INTO artifacts (job_id, name, sha256, content) "
            "SELECT job_id, name, sha256, content FROM artifacts_before"
        )
    op.drop_table("artifacts_before")


def _in_force() -> list[tuple[str, int]]:
    """The version that is in force of each job whose state knows of versions: it is not the first of each."""
    found = op.get_bind().execute(sa.text("SELECT job_id, state FROM job_states")).all()
    states = [(str(job_id), json.loads(state)) for job_id, state in found]
    return [(job_id, int(state["versions"]["current"])) for job_id, state in states if state.get("versions")]
