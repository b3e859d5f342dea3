"""One pool of slots for several servers: who decides, what jobs claim, and what they are granted.

Constraints are written out: a migration must not change when the model does.

Jobs that there are get no claims: before, each server had a pool of its own, in which slots of the same name were other
ones, so what jobs held then says nothing about who holds what now. No release had it so. Servers that share a database
are to be ended before the migration; their jobs, taken up afterwards, restart once with slots of the one pool.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "slot_arbiters",
        sa.Column("home", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("expires_ms", sa.BigInteger(), nullable=False),
        sa.Column("is_blind", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("is_partial", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("decisions", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("epoch >= 1", name=op.f("ck_slot_arbiters_epoch")),
        sa.PrimaryKeyConstraint("home", name=op.f("pk_slot_arbiters")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "slot_claims",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("home", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("seen", sa.BigInteger(), nullable=False),
        sa.Column("holds", sa.Text(), nullable=False),
        sa.Column("ask", sa.Text(), nullable=False),
        sa.Column("changed_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.job_id"], name=op.f("fk_slot_claims_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_slot_claims")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "slot_grants",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("changed_ms", sa.BigInteger(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.CheckConstraint("version >= 1", name=op.f("ck_slot_grants_version")),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.job_id"], name=op.f("fk_slot_grants_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_slot_grants")),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    for table in ("slot_grants", "slot_claims", "slot_arbiters"):
        op.drop_table(table)
