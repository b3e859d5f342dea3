"""No table of sums that nobody reads, and no list of effects, which the versions before kept for one another.

The triggers that kept the sums go with them.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

_SQLITE_TRIGGERS = (
    """
    CREATE TRIGGER rescales_count_inserted AFTER INSERT ON rescales WHEN NEW.terminal_state IS NOT NULL
    BEGIN
        INSERT INTO rescale_totals (job_id, terminal_state, records, min_ms, max_ms, sum_ms)
        VALUES (NEW.job_id, NEW.terminal_state, 1, NEW.end_ms - NEW.start_ms, NEW.end_ms - NEW.start_ms,
                NEW.end_ms - NEW.start_ms)
        ON CONFLICT (job_id, terminal_state) DO UPDATE SET records = records + 1,
            min_ms = min(min_ms, excluded.min_ms), max_ms = max(max_ms, excluded.max_ms),
            sum_ms = sum_ms + excluded.sum_ms;
    END
    """,
    """
    CREATE TRIGGER rescales_count_ended AFTER UPDATE OF terminal_state ON rescales
    WHEN OLD.terminal_state IS NULL AND NEW.terminal_state IS NOT NULL
    BEGIN
        INSERT INTO rescale_totals (job_id, terminal_state, records, min_ms, max_ms, sum_ms)
        VALUES (NEW.job_id, NEW.terminal_state, 1, NEW.end_ms - NEW.start_ms, NEW.end_ms - NEW.start_ms,
                NEW.end_ms - NEW.start_ms)
        ON CONFLICT (job_id, terminal_state) DO UPDATE SET records = records + 1,
            min_ms = min(min_ms, excluded.min_ms), max_ms = max(max_ms, excluded.max_ms),
            sum_ms = sum_ms + excluded.sum_ms;
    END
    """,
)
_POSTGRESQL_TRIGGERS = (
    """
    CREATE FUNCTION slotwise_count_rescales() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE took bigint := NEW.end_ms - NEW.start_ms;
    BEGIN
        IF NEW.terminal_state IS NOT NULL AND (TG_OP = 'INSERT' OR OLD.terminal_state IS NULL) THEN
            INSERT INTO rescale_totals AS t (job_id, terminal_state, records, min_ms, max_ms, sum_ms)
            VALUES (NEW.job_id, NEW.terminal_state, 1, took, took, took)
            ON CONFLICT (job_id, terminal_state) DO UPDATE SET records = t.records + 1,
                min_ms = least(t.min_ms, took), max_ms = greatest(t.max_ms, took), sum_ms = t.sum_ms + took;
        END IF;
        RETURN NULL;
    END $$
    """,
    """
    CREATE TRIGGER rescales_count AFTER INSERT OR UPDATE ON rescales
    FOR EACH ROW EXECUTE FUNCTION slotwise_count_rescales()
    """,
)


def upgrade() -> None:
    if _is_sqlite():
        op.execute("DROP TRIGGER rescales_count_inserted")
        op.execute("DROP TRIGGER rescales_count_ended")
    else:
        op.execute("DROP TRIGGER rescales_count ON rescales")
        op.execute("DROP FUNCTION slotwise_count_rescales()")
    op.drop_table("rescale_totals")
    op.drop_table("outbox")


def downgrade() -> None:
    op.create_table(
        "outbox",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("effect", sa.Text(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.job_id"], name=op.f("fk_outbox_jobs"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "seq", name=op.f("pk_outbox")),
        sqlite_with_rowid=False,
    )
    _create_rescale_totals()
    for trigger in _SQLITE_TRIGGERS if _is_sqlite() else _POSTGRESQL_TRIGGERS:
        op.execute(trigger)


def _create_rescale_totals() -> None:
    op.create_table(
        "rescale_totals",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("terminal_state", sa.Text(), nullable=False),
        sa.Column("records", sa.BigInteger(), nullable=False),
        sa.Column("min_ms", sa.BigInteger(), nullable=False),
        sa.Column("max_ms", sa.BigInteger(), nullable=False),
        sa.Column("sum_ms", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "terminal_state IN ('COMPLETED', 'FAILED', 'IGNORED')",
            name=op.f("ck_rescale_totals_terminal_state"),
        ),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.job_id"], name=op.f("fk_rescale_totals_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "terminal_state", name=op.f("pk_rescale_totals")),
        sqlite_with_rowid=False,
    )


def _is_sqlite() -> bool:
    return op.get_bind().dialect.name == "sqlite"
