"""The errors of the store, as sentences. No error of a database driver leaves `app.store`."""

from __future__ import annotations


class StoreError(Exception):
    """Something that the store refuses or cannot do; nothing of the unit of work was written."""


class StoreUnavailable(StoreError):
    """The database cannot be written or read now: full, read-only, locked, gone. Nothing was written; try again."""


class OutcomeUnknown(StoreUnavailable):
    """The database went away while it was acknowledging a commit, which may be durable or not.

    Commit the *same* `UnitOfWork` again, until the answer is another one: the store knows it by its token and does
    not apply it twice. To build another one instead is wrong: its state may follow a state that is not stored. A
    store that is closed answers with a plain `StoreUnavailable`; then only the next start tells.
    """


class LeaseLost(StoreError):
    """Another owner, or a later epoch, holds the job's lease. This owner must stop acting for the job at once."""

    def __init__(self, job_id: str, owner: str, epoch: int) -> None:
        super().__init__(
            f"The lease of job {job_id} is not held by {owner} at epoch {epoch} any more: nothing was written."
        )
        self.job_id = job_id
        self.owner = owner
        self.epoch = epoch


class StateConflict(StoreError):
    """The stored state of the job is not the one that the unit of work builds upon. Load the job again."""


class ConstraintViolated(StoreError):
    """The database refused a row: a rule of the schema would be broken. This is a defect of the caller."""


class KeyUsed(ConstraintViolated):
    """The author of a submission has used its Idempotency-Key before, for a job that is stored."""


class JobExists(StoreError):
    """A job with that id is stored already."""


class SchemaError(StoreError):
    """The schema of the database is not the one that this version works with."""


class JobsUnknown(StoreError):
    """There are files of jobs that the database should know and does not: it is not the database of these jobs."""


class DataDirectoryInUse(StoreError):
    """Another control plane works on this data directory."""
