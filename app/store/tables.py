"""The tables, and the rules that make bad states unrepresentable.

The migrations create them; a test compares the two. What SQLAlchemy cannot express stands in the migrations only:
the triggers that keep terminal rescale records, requirements and policies unchanged.

* `jobs` changes with the version of the job only; what changes with every step is in the narrow `job_states`.
* Texts that hold JSON are written by `app.store.codec`; the database does not look into them.
* All times are epoch milliseconds.
* Every table but `leases`, `members`, `slot_arbiters`, `slot_grants` and `events` of the cluster is written only under
  the job's lease (see `app.store.writer`).
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    text,
)

from app.model.jobgraph import JobType
from app.model.plan import Rung
from app.model.rescale import TerminalState, TerminatedReason, TriggerCause
from app.model.status import TERMINAL_STATUSES, AttemptState, JobStatus

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(referred_table_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)


def _one_of(column: str, values: Iterable[str]) -> str:
    return f"{column} IN ({', '.join(repr(str(value)) for value in values)})"


def _job_id() -> Column[str]:
    foreign_key = ForeignKey("jobs.job_id", ondelete="CASCADE")
    return Column("job_id", Text, foreign_key, primary_key=True, nullable=False)


jobs = Table(
    "jobs",
    metadata,
    Column("job_id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("document", Text, nullable=False),
    Column("options", Text, nullable=False),
    Column("submitted_ms", BigInteger, nullable=False),
    Column("submitted_by", Text),
    CheckConstraint(_one_of("type", JobType), name="type"),
)
Index("ix_jobs_submitted", jobs.c.submitted_ms, jobs.c.job_id)

job_states = Table(
    "job_states",
    metadata,
    _job_id(),
    Column("seq", BigInteger, nullable=False),
    Column("unit_token", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("ended_ms", BigInteger),
    Column("state", Text, nullable=False),
    CheckConstraint("seq >= 1", name="seq"),
    CheckConstraint(_one_of("status", JobStatus), name="status"),
    CheckConstraint(f"({_one_of('status', TERMINAL_STATUSES)}) = (ended_ms IS NOT NULL)", name="ended"),
)
Index(
    "ix_job_states_not_ended",
    job_states.c.job_id,
    sqlite_where=job_states.c.ended_ms.is_(None),
    postgresql_where=job_states.c.ended_ms.is_(None),
)

leases = Table(
    "leases",
    metadata,
    _job_id(),
    Column("owner", Text),
    Column("epoch", BigInteger, nullable=False),
    Column("expires_ms", BigInteger, nullable=False),
    CheckConstraint("epoch >= 1", name="epoch"),
    sqlite_with_rowid=False,
)

# ``expires_ms`` is by the database's clock. ``handed_over``: how many jobs others have handed to it.
members = Table(
    "members",
    metadata,
    Column("member_id", Text, primary_key=True),
    Column("home", Text, nullable=False),
    Column("seat", Integer, nullable=False),
    Column("url", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("place", Text, nullable=False),
    Column("pid", BigInteger, nullable=False),
    Column("version", Text, nullable=False),
    Column("slots", Integer, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("joined_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger, nullable=False),
    Column("handed_over", BigInteger, nullable=False, server_default=text("0")),
    CheckConstraint("seat >= 1", name="seat"),
    sqlite_with_rowid=False,
)
Index("ix_members_one_per_seat", members.c.home, members.c.seat, unique=True)

# Who decides about the slots of a home; ``expires_ms`` is by the database's clock (see `app.store.slot_table`).
# ``is_blind``: 1 while it cannot reach the cluster that has them. ``is_partial``: 1 while it cannot read all records.
slot_arbiters = Table(
    "slot_arbiters",
    metadata,
    Column("home", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("expires_ms", BigInteger, nullable=False),
    Column("is_blind", Integer, nullable=False, server_default=text("0")),
    Column("is_partial", Integer, nullable=False, server_default=text("0")),
    Column("decisions", BigInteger, nullable=False),
    CheckConstraint("epoch >= 1", name="epoch"),
    sqlite_with_rowid=False,
)

# What a job wants and holds, as its owner says (see `app.scheduler.slot_ledger`).
slot_claims = Table(
    "slot_claims",
    metadata,
    _job_id(),
    Column("home", Text, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("seen", BigInteger, nullable=False),
    Column("holds", Text, nullable=False),
    Column("ask", Text, nullable=False),
    Column("changed_ms", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

# What a job may hold, as the arbiter says: written under its epoch.
slot_grants = Table(
    "slot_grants",
    metadata,
    _job_id(),
    Column("version", BigInteger, nullable=False),
    Column("changed_ms", BigInteger, nullable=False),
    Column("document", Text, nullable=False),
    CheckConstraint("version >= 1", name="version"),
    sqlite_with_rowid=False,
)

# With a row id, unlike its neighbours: rows of some hundred bytes that never change are packed by SQLite into the last
# page, whichever jobs they are of; without one, a PUT rewrites two and a half pages.
requirements = Table(
    "requirements",
    metadata,
    _job_id(),
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    Column("uuid", Text, nullable=False),
    Column("bounds", Text, nullable=False),
    Column("state_partitions", Text),
    Column("requested_by", Text),
    Column("reason", Text),
    Column("created_ms", BigInteger, nullable=False),
    CheckConstraint("version >= 1", name="version"),
)

# ``all_vertices`` and ``vertices`` are JSON. The first version of a job, which limits nothing, has no row.
scaling_policies = Table(
    "scaling_policies",
    metadata,
    _job_id(),
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    Column("all_vertices", Text, nullable=False),
    Column("vertices", Text, nullable=False),
    Column("requested_by", Text),
    Column("reason", Text),
    Column("changed_ms", BigInteger, nullable=False),
    CheckConstraint("version >= 1", name="version"),
)

idempotency = Table(
    "idempotency",
    metadata,
    _job_id(),
    Column("key", Text, primary_key=True),
    Column("request_hash", Text, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("changed", Integer, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    CheckConstraint("changed IN (0, 1)", name="changed"),
    sqlite_with_rowid=False,
)

# The submissions that had an Idempotency-Key. A key is kept as long as its job.
submission_keys = Table(
    "submission_keys",
    metadata,
    Column("author", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("job_id", Text, ForeignKey("jobs.job_id", ondelete="CASCADE"), nullable=False, unique=True),
    Column("document_hash", Text, nullable=False),
    Column("files_hash", Text, nullable=False),
)

# The time of the age clock: one row, and none before the first housekeeping.
age_clock = Table(
    "age_clock",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("reached_ms", BigInteger, nullable=False),
    CheckConstraint("id = 1", name="id"),
)

# ``uuid`` is derived from the job's id and the number, the primary key, and looked up among the records of one job. An
# index of its own, in which neighbours are strangers, would cost each PUT a page.
rescales = Table(
    "rescales",
    metadata,
    _job_id(),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("uuid", Text, nullable=False),
    Column("requirements_uuid", Text, nullable=False),
    Column("attempt_id", BigInteger, nullable=False),
    Column("cause", Text, nullable=False),
    Column("start_ms", BigInteger, nullable=False),
    Column("end_ms", BigInteger),
    Column("reason", Text),
    Column("terminal_state", Text),
    Column("message", Text),
    Column("rung", Text),
    Column("output_gap_ms", BigInteger),
    Column("reprocessed_records", BigInteger),
    Column("requested_by", Text),
    Column("request_reason", Text),
    Column("rollback_of", BigInteger),
    Column("vertices", Text, nullable=False),
    Column("groups", Text, nullable=False),
    Column("spans", Text, nullable=False),
    CheckConstraint("number >= 1", name="number"),
    CheckConstraint(_one_of("cause", TriggerCause), name="cause"),
    CheckConstraint(_one_of("reason", TerminatedReason), name="reason"),
    CheckConstraint(_one_of("terminal_state", TerminalState), name="terminal_state"),
    CheckConstraint(_one_of("rung", Rung), name="rung"),
    CheckConstraint(
        "(reason IS NULL) = (terminal_state IS NULL) AND (reason IS NULL) = (end_ms IS NULL)", name="terminal"
    ),
    CheckConstraint(
        "(terminal_state = 'COMPLETED') = (reason = 'SUCCEEDED') "
        "AND (terminal_state = 'FAILED') = (reason = 'EXCEPTION_OCCURRED')",
        name="reason_implies_state",
    ),
)
Index(
    "ix_rescales_one_open",
    rescales.c.job_id,
    unique=True,
    sqlite_where=rescales.c.terminal_state.is_(None),
    postgresql_where=rescales.c.terminal_state.is_(None),
)

# ``log_from``: where its part begins in the log of its driver, which may have run attempts before; null if that is not
# known, as of an attempt that an older version of Slotwise began. ``plan_version`` and ``parallelism`` are
# those that it began with; ``host`` up to ``ui_url`` are null until its driver has called.
attempts = Table(
    "attempts",
    metadata,
    _job_id(),
    Column("attempt", BigInteger, primary_key=True, autoincrement=False),
    Column("epoch", BigInteger, nullable=False),
    Column("driver_id", Text, nullable=False),
    Column("pid", BigInteger),
    Column("pid_started_at", Double),
    Column("lock_file", Text),
    Column("secret_hash", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("acknowledged", BigInteger, nullable=False, server_default=text("0")),
    Column("started_ms", BigInteger, nullable=False),
    Column("ended_ms", BigInteger),
    Column("runs_on", Text, nullable=False, server_default=text("''")),
    Column("log_from", BigInteger),
    Column("plan_version", BigInteger),
    Column("parallelism", Text),
    Column("host", Text),
    Column("spark_version", Text),
    Column("ui_url", Text),
    Column("ending", Text),
    Column("ended_why", Text),
    CheckConstraint("attempt >= 1", name="attempt"),
    CheckConstraint("acknowledged >= 0", name="acknowledged"),
    CheckConstraint(_one_of("state", AttemptState), name="state"),
    CheckConstraint("(state = 'DEAD') = (ended_ms IS NOT NULL)", name="ended"),
    sqlite_with_rowid=False,
)
Index(
    "ix_attempts_one_live",
    attempts.c.job_id,
    unique=True,
    sqlite_where=attempts.c.state == "LIVE",
    postgresql_where=attempts.c.state == "LIVE",
)

# Versions of a job that was replaced: the one in force and the one to come, or to go back to. `jobs` has the first.
job_versions = Table(
    "job_versions",
    metadata,
    _job_id(),
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    Column("document", Text, nullable=False),
    Column("options", Text, nullable=False),
    CheckConstraint("version >= 1", name="version"),
)

# The files of each version that is known.
artifacts = Table(
    "artifacts",
    metadata,
    _job_id(),
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    Column("name", Text, primary_key=True),
    Column("sha256", Text, nullable=False),
    Column("content", LargeBinary, nullable=False),
    CheckConstraint("version >= 1", name="version"),
)

# What clients follow. An event of the cluster has no job. With a row id: rows are added at the end, whichever jobs they
# are of (see `app.store.events` for how the numbers are given).
events = Table(
    "events",
    metadata,
    Column(
        "id",
        BigInteger().with_variant(Integer(), "sqlite"),
        primary_key=True,
        autoincrement=False,
        nullable=False,
    ),
    Column("job_id", Text, ForeignKey("jobs.job_id", ondelete="CASCADE")),
    Column("type", Text, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("fields", Text, nullable=False),
)
# On SQLite the events of a job are found among those of all jobs (ADR 43).
Index("ix_events_of_job", events.c.job_id, events.c.id, info={"dialect": "postgresql"})
