"""Rescales for which a batch was interrupted.

SQLite cannot change a constraint of a table that is there: `rescales` is made anew from its own text, with its index
and its triggers.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_NEW = "batch-interrupted"
# What the version before has for a query that was started again.
_INSTEAD = "query-restart"
_KNOWN = ("in-place", "query-restart", "state-repartition", "new-driver")
_WITH_INTERRUPTED = ("in-place", _NEW, *_KNOWN[1:])


def upgrade() -> None:
    _allow_rungs(_KNOWN, _WITH_INTERRUPTED)


def downgrade() -> None:
    _allow_rungs(_WITH_INTERRUPTED, _KNOWN)
    states = sa.table("job_states", sa.column("state"))
    shorter = sa.func.replace(states.c.state, f'"{_NEW}"', f'"{_INSTEAD}"')
    op.execute(sa.update(states).where(states.c.state.contains(f'"{_NEW}"')).values(state=shorter))


def _is_sqlite() -> bool:
    return op.get_bind().dialect.name == "sqlite"


def _one_of(rungs: tuple[str, ...]) -> str:
    return f"rung IN ({', '.join(repr(rung) for rung in rungs)})"


def _replaced(table: str, known: tuple[str, ...]) -> sa.Update:
    records = sa.table(table, sa.column("rung"))
    return sa.update(records).where(records.c.rung.not_in(known)).values(rung=_INSTEAD)


def _allow_rungs(before: tuple[str, ...], after: tuple[str, ...]) -> None:
    if not _is_sqlite():
        op.drop_constraint(op.f("ck_rescales_rung"), "rescales", type_="check")
        op.execute("ALTER TABLE rescales DISABLE TRIGGER rescales_keep")
        op.execute(_replaced("rescales", after))
        op.execute("ALTER TABLE rescales ENABLE TRIGGER rescales_keep")
        op.create_check_constraint(op.f("ck_rescales_rung"), "rescales", _one_of(after))
        return
    found = op.get_bind().execute(
        sa.text("SELECT type, sql FROM sqlite_master WHERE tbl_name = 'rescales' AND sql IS NOT NULL")
    )
    texts = [(kind, str(text)) for kind, text in found]
    (table,) = (text for kind, text in texts if kind == "table")
    if table.count(_one_of(before)) != 1:
        raise ValueError(
            "The table rescales has not the constraint of its rungs that this migration changes."
        )
    op.execute("CREATE TABLE rescales_before AS SELECT * FROM rescales")
    op.execute(_replaced("rescales_before", after))
    op.drop_table("rescales")
    op.execute(table.replace(_one_of(before), _one_of(after)))
    op.execute("INSERT INTO rescales SELECT * FROM rescales_before")
    op.drop_table("rescales_before")
    for text in (text for kind, text in texts if kind != "table"):
        op.execute(text)
