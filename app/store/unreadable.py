"""The end of a job whose row is damaged: only the columns beside its documents are written."""

from __future__ import annotations

from sqlalchemy.engine import Connection

from app.model.public_event import PublicEvent, PublicEventType
from app.model.rescale import TerminatedReason
from app.model.status import JobStatus
from app.store.errors import LeaseLost
from app.store.events import event_row, insert_events
from app.store.leases import Lease, holds_lease
from app.store.statements import sql


def fail_damaged(connection: Connection, lease: Lease, *, ended_ms: int, message: str) -> None:
    """The job is FAILED for what ``message`` says, and nothing of its attempts lives. Its documents stay as they are.

    Raises:
        LeaseLost: another control plane owns the job; nothing is written.
    """
    if not holds_lease(connection, lease.job_id, lease.owner, lease.epoch):
        raise LeaseLost(lease.job_id, lease.owner, lease.epoch)
    known = "SELECT status FROM job_states WHERE job_id = :job AND ended_ms IS NULL"
    status = sql(connection, known, job=lease.job_id).scalar()
    reason = TerminatedReason.JOB_FAILED
    values = {
        "job": lease.job_id,
        "now": ended_ms,
        "status": str(JobStatus.FAILED),
        "token": f"damaged-{lease.epoch}",
        "reason": str(reason),
        "outcome": str(reason.terminal_state),
        "message": message,
    }
    for statement in (
        "UPDATE attempts SET state = 'DEAD', ended_ms = :now WHERE job_id = :job AND state = 'LIVE'",
        "UPDATE rescales SET terminal_state = :outcome, reason = :reason, message = :message, "
        "end_ms = CASE WHEN :now > start_ms THEN :now ELSE start_ms END "
        "WHERE job_id = :job AND terminal_state IS NULL",
        "UPDATE job_states SET status = :status, ended_ms = :now, seq = seq + 1, unit_token = :token "
        "WHERE job_id = :job AND ended_ms IS NULL",
    ):
        sql(connection, statement, **values)
    if status is not None:
        fields = {"status": str(JobStatus.FAILED), "previousStatus": str(status), "cause": message}
        event = PublicEvent(PublicEventType.STATUS, ended_ms, fields)
        insert_events(connection, [event_row(lease.job_id, event)])
