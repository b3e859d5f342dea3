"""No list of effects to perform: what is to be done is read off the state of a job (ADR 4).

The table stays, for servers of the version before that run on during an upgrade.
They would do what is in it again.
"""

from __future__ import annotations

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("DELETE FROM outbox")


def downgrade() -> None:
    """An empty list is what the version before takes for nothing to add."""
