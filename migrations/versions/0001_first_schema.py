"""The first schema.

Constraints are written out: a migration must not change when the model does.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def _create_jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("options", sa.Text(), nullable=False),
        sa.Column("submitted_ms", sa.BigInteger(), nullable=False),
        sa.Column("submitted_by", sa.Text(), nullable=True),
        sa.CheckConstraint("type IN ('STREAMING', 'BATCH')", name=op.f("ck_jobs_type")),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_jobs")),
    )
    op.create_index("ix_jobs_submitted", "jobs", ["submitted_ms", "job_id"], unique=False)
    op.create_table(
        "job_states",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("unit_token", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("ended_ms", sa.BigInteger(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.CheckConstraint(
            "(status IN ('FAILED', 'CANCELED', 'FINISHED')) = (ended_ms IS NOT NULL)",
            name=op.f("ck_job_states_ended"),
        ),
        sa.CheckConstraint(
            "status IN ('INITIALIZING', 'CREATED', 'RUNNING', 'FAILING', 'FAILED', 'CANCELLING', "
            "'CANCELED', 'FINISHED', 'RESTARTING', 'SUSPENDED', 'RECONCILING')",
            name=op.f("ck_job_states_status"),
        ),
        sa.CheckConstraint("seq >= 1", name=op.f("ck_job_states_seq")),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.job_id"], name=op.f("fk_job_states_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_job_states")),
    )
    op.create_index(
        "ix_job_states_not_ended",
        "job_states",
        ["job_id"],
        unique=False,
        sqlite_where=sa.text("ended_ms IS NULL"),
        postgresql_where=sa.text("ended_ms IS NULL"),
    )
    op.create_table(
        "leases",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("expires_ms", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("epoch >= 1", name=op.f("ck_leases_epoch")),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.job_id"], name=op.f("fk_leases_jobs"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_leases")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "artifacts",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.job_id"], name=op.f("fk_artifacts_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "name", name=op.f("pk_artifacts")),
    )


def _create_members() -> None:
    op.create_table(
        "members",
        sa.Column("member_id", sa.Text(), nullable=False),
        sa.Column("home", sa.Text(), nullable=False),
        sa.Column("seat", sa.Integer(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("place", sa.Text(), nullable=False),
        sa.Column("pid", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("slots", sa.Integer(), nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("joined_ms", sa.BigInteger(), nullable=False),
        sa.Column("expires_ms", sa.BigInteger(), nullable=False),
        sa.Column("handed_over", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.CheckConstraint("seat >= 1", name=op.f("ck_members_seat")),
        sa.PrimaryKeyConstraint("member_id", name=op.f("pk_members")),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_members_one_per_seat", "members", ["home", "seat"], unique=True)


def _create_requests() -> None:
    op.create_table(
        "requirements",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("uuid", sa.Text(), nullable=False),
        sa.Column("bounds", sa.Text(), nullable=False),
        sa.Column("state_partitions", sa.Text(), nullable=True),
        sa.Column("requested_by", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("version >= 1", name=op.f("ck_requirements_version")),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.job_id"], name=op.f("fk_requirements_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "version", name=op.f("pk_requirements")),
    )
    op.create_table(
        "idempotency",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("request_hash", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("changed", sa.Integer(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("changed IN (0, 1)", name=op.f("ck_idempotency_changed")),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.job_id"], name=op.f("fk_idempotency_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "key", name=op.f("pk_idempotency")),
        sqlite_with_rowid=False,
    )


def _create_attempts() -> None:
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
    op.create_table(
        "attempts",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("driver_id", sa.Text(), nullable=False),
        sa.Column("pid", sa.BigInteger(), nullable=True),
        sa.Column("pid_started_at", sa.Double(), nullable=True),
        sa.Column("lock_file", sa.Text(), nullable=True),
        sa.Column("secret_hash", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("acknowledged", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("started_ms", sa.BigInteger(), nullable=False),
        sa.Column("ended_ms", sa.BigInteger(), nullable=True),
        sa.Column("runs_on", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.CheckConstraint("(state = 'DEAD') = (ended_ms IS NOT NULL)", name=op.f("ck_attempts_ended")),
        sa.CheckConstraint("state IN ('LIVE', 'DEAD')", name=op.f("ck_attempts_state")),
        sa.CheckConstraint("acknowledged >= 0", name=op.f("ck_attempts_acknowledged")),
        sa.CheckConstraint("attempt >= 1", name=op.f("ck_attempts_attempt")),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.job_id"], name=op.f("fk_attempts_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "attempt", name=op.f("pk_attempts")),
        sqlite_with_rowid=False,
    )
    op.create_index(
        "ix_attempts_one_live",
        "attempts",
        ["job_id"],
        unique=True,
        sqlite_where=sa.text("state = 'LIVE'"),
        postgresql_where=sa.text("state = 'LIVE'"),
    )


def _create_rescales() -> None:
    op.create_table(
        "rescales",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("uuid", sa.Text(), nullable=False),
        sa.Column("requirements_uuid", sa.Text(), nullable=False),
        sa.Column("attempt_id", sa.BigInteger(), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("start_ms", sa.BigInteger(), nullable=False),
        sa.Column("end_ms", sa.BigInteger(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("terminal_state", sa.Text(), nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("rung", sa.Text(), nullable=True),
        sa.Column("output_gap_ms", sa.BigInteger(), nullable=True),
        sa.Column("reprocessed_records", sa.BigInteger(), nullable=True),
        sa.Column("requested_by", sa.Text(), nullable=True),
        sa.Column("request_reason", sa.Text(), nullable=True),
        sa.Column("rollback_of", sa.BigInteger(), nullable=True),
        sa.Column("vertices", sa.Text(), nullable=False),
        sa.Column("groups", sa.Text(), nullable=False),
        sa.Column("spans", sa.Text(), nullable=False),
        sa.CheckConstraint(
            "(terminal_state = 'COMPLETED') = (reason = 'SUCCEEDED') AND (terminal_state = 'FAILED') = "
            "(reason = 'EXCEPTION_OCCURRED')",
            name=op.f("ck_rescales_reason_implies_state"),
        ),
        sa.CheckConstraint(
            "cause IN ('INITIAL_SCHEDULE', 'UPDATE_REQUIREMENT', 'NEW_RESOURCE_AVAILABLE', "
            "'RECOVERABLE_FAILOVER')",
            name=op.f("ck_rescales_cause"),
        ),
        sa.CheckConstraint(
            "reason IN ('SUCCEEDED', 'EXCEPTION_OCCURRED', 'RESOURCE_REQUIREMENTS_UPDATED', "
            "'NO_RESOURCES_OR_PARALLELISMS_CHANGE', 'JOB_FINISHED', 'JOB_FAILED', 'JOB_CANCELED', "
            "'JOB_FAILOVER_RESTARTING')",
            name=op.f("ck_rescales_reason"),
        ),
        sa.CheckConstraint(
            "rung IN ('in-place', 'query-restart', 'state-repartition', 'new-driver')",
            name=op.f("ck_rescales_rung"),
        ),
        sa.CheckConstraint(
            "terminal_state IN ('COMPLETED', 'FAILED', 'IGNORED')", name=op.f("ck_rescales_terminal_state")
        ),
        sa.CheckConstraint(
            "(reason IS NULL) = (terminal_state IS NULL) AND (reason IS NULL) = (end_ms IS NULL)",
            name=op.f("ck_rescales_terminal"),
        ),
        sa.CheckConstraint("number >= 1", name=op.f("ck_rescales_number")),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.job_id"], name=op.f("fk_rescales_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "number", name=op.f("pk_rescales")),
    )
    op.create_index(
        "ix_rescales_one_open",
        "rescales",
        ["job_id"],
        unique=True,
        sqlite_where=sa.text("terminal_state IS NULL"),
        postgresql_where=sa.text("terminal_state IS NULL"),
    )


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


# A terminal record is never changed again, and an open one goes only with its whole job. The job's row is deleted
# before the rows that hang on it, which is how the two deletions are told apart. Requirements never change at all.
# `rescale_totals` outlives the records that retention removes, so it is kept here, where no writer can forget it.
_SQLITE_TRIGGERS = (
    """
    CREATE TRIGGER rescales_keep_terminal BEFORE UPDATE ON rescales WHEN OLD.terminal_state IS NOT NULL
    BEGIN SELECT RAISE(ABORT, 'a rescale record that has ended is never changed'); END
    """,
    """
    CREATE TRIGGER rescales_keep_open BEFORE DELETE ON rescales
    WHEN OLD.terminal_state IS NULL AND EXISTS (SELECT 1 FROM jobs WHERE job_id = OLD.job_id)
    BEGIN SELECT RAISE(ABORT, 'an open rescale record is not removed while its job exists'); END
    """,
    """
    CREATE TRIGGER requirements_keep BEFORE UPDATE ON requirements
    BEGIN SELECT RAISE(ABORT, 'requirements are never changed, only added'); END
    """,
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
    CREATE FUNCTION slotwise_keep_rescales() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF TG_OP = 'UPDATE' AND OLD.terminal_state IS NOT NULL THEN
            RAISE EXCEPTION 'a rescale record that has ended is never changed' USING ERRCODE = 'check_violation';
        END IF;
        IF TG_OP = 'DELETE' THEN
            IF OLD.terminal_state IS NULL AND EXISTS (SELECT 1 FROM jobs WHERE job_id = OLD.job_id) THEN
                RAISE EXCEPTION 'an open rescale record is not removed while its job exists'
                    USING ERRCODE = 'check_violation';
            END IF;
            RETURN OLD;
        END IF;
        RETURN NEW;
    END $$
    """,
    """
    CREATE TRIGGER rescales_keep BEFORE UPDATE OR DELETE ON rescales
    FOR EACH ROW EXECUTE FUNCTION slotwise_keep_rescales()
    """,
    """
    CREATE FUNCTION slotwise_keep_requirements() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION 'requirements are never changed, only added' USING ERRCODE = 'check_violation';
    END $$
    """,
    """
    CREATE TRIGGER requirements_keep BEFORE UPDATE ON requirements
    FOR EACH ROW EXECUTE FUNCTION slotwise_keep_requirements()
    """,
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
    _create_jobs()
    _create_members()
    _create_requests()
    _create_attempts()
    _create_rescales()
    _create_rescale_totals()
    sqlite = op.get_bind().dialect.name == "sqlite"
    for trigger in _SQLITE_TRIGGERS if sqlite else _POSTGRESQL_TRIGGERS:
        op.execute(trigger)


def downgrade() -> None:
    for table in (
        "rescale_totals",
        "rescales",
        "attempts",
        "outbox",
        "idempotency",
        "requirements",
        "artifacts",
        "members",
        "leases",
        "job_states",
        "jobs",
    ):
        op.drop_table(table)
    if op.get_bind().dialect.name == "postgresql":
        for function in ("slotwise_keep_rescales", "slotwise_keep_requirements", "slotwise_count_rescales"):
            op.execute(f"DROP FUNCTION {function}()")
