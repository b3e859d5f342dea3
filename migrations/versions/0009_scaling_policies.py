"""Scaling policies of jobs, and the cause of the rescales that they lead to.

SQLite cannot change a constraint of a table that is there: `rescales` is made anew from its own text, with its index
and its triggers.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_KNOWN = ("INITIAL_SCHEDULE", "UPDATE_REQUIREMENT", "NEW_RESOURCE_AVAILABLE", "RECOVERABLE_FAILOVER")
_WITH_POLICY = (*_KNOWN, "UPDATE_POLICY")

_SQLITE_TRIGGER = """
    CREATE TRIGGER scaling_policies_keep BEFORE UPDATE ON scaling_policies
    BEGIN SELECT RAISE(ABORT, 'a scaling policy is never changed, only added'); END
    """
_POSTGRESQL_TRIGGER = (
    """
    CREATE FUNCTION slotwise_keep_scaling_policies() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION 'a scaling policy is never changed, only added' USING ERRCODE = 'check_violation';
    END $$
    """,
    """
    CREATE TRIGGER scaling_policies_keep BEFORE UPDATE ON scaling_policies
    FOR EACH ROW EXECUTE FUNCTION slotwise_keep_scaling_policies()
    """,
)


def upgrade() -> None:
    op.create_table(
        "scaling_policies",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("all_vertices", sa.Text(), nullable=False),
        sa.Column("vertices", sa.Text(), nullable=False),
        sa.Column("requested_by", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("changed_ms", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("version >= 1", name=op.f("ck_scaling_policies_version")),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.job_id"], name=op.f("fk_scaling_policies_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "version", name=op.f("pk_scaling_policies")),
    )
    for trigger in (_SQLITE_TRIGGER,) if _is_sqlite() else _POSTGRESQL_TRIGGER:
        op.execute(trigger)
    _allow_causes(_KNOWN, _WITH_POLICY)


def downgrade() -> None:
    op.drop_table("scaling_policies")
    if not _is_sqlite():
        op.execute("DROP FUNCTION slotwise_keep_scaling_policies()")
    _allow_causes(_WITH_POLICY, _KNOWN)


def _is_sqlite() -> bool:
    return op.get_bind().dialect.name == "sqlite"


def _one_of(causes: tuple[str, ...]) -> str:
    return f"cause IN ({', '.join(repr(cause) for cause in causes)})"


def _taken_for_bounds(table: str, known: tuple[str, ...]) -> sa.Update:
    """Records of a cause that is not known become those of declared bounds."""
    records = sa.table(table, sa.column("cause"))
    return sa.update(records).where(records.c.cause.not_in(known)).values(cause="UPDATE_REQUIREMENT")


def _allow_causes(before: tuple[str, ...], after: tuple[str, ...]) -> None:
    if not _is_sqlite():
        op.drop_constraint(op.f("ck_rescales_cause"), "rescales", type_="check")
        op.execute("ALTER TABLE rescales DISABLE TRIGGER rescales_keep")
        op.execute(_taken_for_bounds("rescales", after))
        op.execute("ALTER TABLE rescales ENABLE TRIGGER rescales_keep")
        op.create_check_constraint(op.f("ck_rescales_cause"), "rescales", _one_of(after))
        return
    found = op.get_bind().execute(
        sa.text("SELECT type, sql FROM sqlite_master WHERE tbl_name = 'rescales' AND sql IS NOT NULL")
    )
    texts = [(kind, str(text)) for kind, text in found]
    (table,) = (text for kind, text in texts if kind == "table")
    if table.count(_one_of(before)) != 1:
        raise ValueError(
            "The table rescales has not the constraint of its causes that this migration changes."
        )
    op.execute("CREATE TABLE rescales_before AS SELECT * FROM rescales")
    op.execute(_taken_for_bounds("rescales_before", after))
    op.drop_table("rescales")
    op.execute(table.replace(_one_of(before), _one_of(after)))
    op.execute("INSERT INTO rescales SELECT * FROM rescales_before")
    op.drop_table("rescales_before")
    for text in (text for kind, text in texts if kind != "table"):
        op.execute(text)
