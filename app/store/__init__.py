"""The database: jobs, states, requirements, rescale records, attempts, events, and the owners of jobs.

Start with `Store` and `UnitOfWork`.
"""

from app.store.codec import CodecError
from app.store.datadir import DataDirectory
from app.store.errors import (
    ConstraintViolated,
    DataDirectoryInUse,
    JobExists,
    LeaseLost,
    OutcomeUnknown,
    SchemaError,
    StateConflict,
    StoreError,
    StoreUnavailable,
)
from app.store.leases import Lease, LeaseHeld
from app.store.queries import (
    DurationTotals,
    JobSummary,
    RescalePage,
    RescaleSummary,
    StoredAnswer,
    StoredJob,
)
from app.store.store import Store
from app.store.tables import AttemptEnding, AttemptState
from app.store.writes import (
    FIRST_EPOCH,
    AcknowledgeReports,
    AddArtifact,
    AddIdempotencyKey,
    AddRequirements,
    AddScalingPolicy,
    Attempt,
    CreateJob,
    DescribeDriver,
    PutAttempt,
    PutRescale,
    SaveState,
    UnitOfWork,
    Write,
)

__all__ = [
    "FIRST_EPOCH",
    "AcknowledgeReports",
    "AddArtifact",
    "AddIdempotencyKey",
    "AddRequirements",
    "AddScalingPolicy",
    "Attempt",
    "AttemptEnding",
    "AttemptState",
    "CodecError",
    "ConstraintViolated",
    "CreateJob",
    "DataDirectory",
    "DataDirectoryInUse",
    "DescribeDriver",
    "DurationTotals",
    "JobExists",
    "JobSummary",
    "Lease",
    "LeaseHeld",
    "LeaseLost",
    "OutcomeUnknown",
    "PutAttempt",
    "PutRescale",
    "RescalePage",
    "RescaleSummary",
    "SaveState",
    "SchemaError",
    "StateConflict",
    "Store",
    "StoreError",
    "StoreUnavailable",
    "StoredAnswer",
    "StoredJob",
    "UnitOfWork",
    "Write",
]
