"""Requirements, rescale records, explanations."""

from __future__ import annotations

from typing import Any

from app.api.examples.common import COUNTS, GROUP, JOB, NOW, REQUIREMENTS_UUID, RESCALE, SOURCE, cores
from app.api.render.rescales import UNKNOWN_PROFILE

REQUIREMENTS: dict[str, Any] = {
    SOURCE: {"parallelism": {"lowerBound": 1, "upperBound": 2}},
    COUNTS: {"parallelism": {"lowerBound": 1, "upperBound": 4}},
}

RECORD: dict[str, Any] = {
    "rescaleUuid": RESCALE,
    "resourceRequirementsUuid": REQUIREMENTS_UUID,
    "rescaleAttemptId": 1,
    "vertices": {
        COUNTS: {
            "jobVertexId": COUNTS,
            "jobVertexName": "counts",
            "slotSharingGroupId": GROUP,
            "slotSharingGroupName": "default",
            "desiredParallelism": 4,
            "sufficientParallelism": 1,
            "preRescaleParallelism": 2,
            "postRescaleParallelism": 4,
        }
    },
    "slots": {
        GROUP: {
            "slotSharingGroupId": GROUP,
            "slotSharingGroupName": "default",
            "requestResourceProfile": UNKNOWN_PROFILE,
            "desiredSlots": 4,
            "minimalRequiredSlots": 1,
            "preRescaleSlots": 2,
            "postRescaleSlots": 4,
            "acquiredResourceProfile": cores(1.0),
        }
    },
    "schedulerStates": [],
    "startTimestampInMillis": NOW - 900,
    "endTimestampInMillis": NOW,
    "terminalState": "COMPLETED",
    "triggerCause": "UPDATE_REQUIREMENT",
    "terminatedReason": "SUCCEEDED",
    "number": 2,
    "requestedBy": "anonymous",
    "reason": "the evening peak",
    "message": None,
    "rung": "in-place",
    "outputGapInMillis": 40,
    "reprocessedRecords": 0,
    "rollbackOf": None,
}
RECORD_DETAILS: dict[str, Any] = {
    **RECORD,
    "schedulerStates": [
        {
            "state": "Rescaling",
            "enterTimestampInMillis": NOW - 900,
            "leaveTimestampInMillis": NOW,
            "durationInMillis": 900,
            "stringifiedException": None,
        }
    ],
}
_COUNTS = {"ignored": 0, "inProgress": 0, "completed": 1, "failed": 0}
RESCALES_OVERVIEW: dict[str, Any] = {
    "rescalesCounts": _COUNTS,
    "latest": {"completed": RECORD, "failed": None, "ignored": None},
}
_PERCENTILES = ("p50", "p90", "p95", "p99", "p999")
_STATISTICS = {"min": 900, "max": 900, "avg": 900, **dict.fromkeys(_PERCENTILES, 900.0)}
_NO_STATISTICS = {"min": 0, "max": 0, "avg": 0, **dict.fromkeys(_PERCENTILES, "NaN")}
RESCALES_SUMMARY: dict[str, Any] = {
    "rescalesCounts": _COUNTS,
    "rescalesDurationStatsInMillis": _STATISTICS,
    "completedRescalesDurationStatsInMillis": _STATISTICS,
    "ignoredRescalesDurationStatsInMillis": _NO_STATISTICS,
    "failedRescalesDurationStatsInMillis": _NO_STATISTICS,
}
RESCALES_CONFIG: dict[str, Any] = {
    "rescaleHistoryMax": 1000,
    "schedulerExecutionMode": None,
    "submissionResourceWaitTimeoutInMillis": 300000,
    "submissionResourceStabilizationTimeoutInMillis": 10000,
    "slotIdleTimeoutInMillis": 50000,
    "executingCooldownTimeoutInMillis": 30000,
    "executingResourceStabilizationTimeoutInMillis": 60000,
    "maximumDelayForTriggeringRescaleInMillis": 3000,
    "rescaleOnFailedCheckpointCount": 2,
    "inPlaceCooldownTimeoutInMillis": 0,
    "inPlaceResourceStabilizationTimeoutInMillis": 100,
    "inPlaceMaximumDelayInMillis": 0,
}

SLOT_SHARE: dict[str, Any] = {"weight": 2, "priority": 0, "cap": 6}
EXPLANATION: dict[str, Any] = {
    "jid": JOB,
    "name": "counts-by-key",
    "status": "RUNNING",
    "schedulerState": "Executing",
    "requirementsVersion": 2,
    "slots": {"desired": 4, "minimal": 1, "held": 2, "used": 2},
    "slotShare": {
        **SLOT_SHARE,
        "version": 2,
        "requestedBy": "anonymous",
        "reason": "the nightly report is late",
        "changedTimestampInMillis": NOW - 60_000,
        "share": 2,
        "allowed": 2,
        "why": "share",
        "missing": 0,
        "dueTimestampInMillis": None,
    },
    "supply": {
        "total": 4,
        "idle": 0,
        "outOfSight": False,
        "why": ["2 core(s) are in the hands of applications that are not jobs of this server."],
    },
    "executors": {"present": 1, "wanted": 2, "shortSinceInMillis": NOW - 45_000},
    "vertices": {
        COUNTS: {
            "name": "counts",
            "lowerBound": 1,
            "upperBound": 4,
            "maxParallelism": 12,
            "attainable": 2,
            "inForce": 2,
        }
    },
    "reactive": False,
    "rollback": None,
    "onTrialUntilInMillis": None,
    "sentences": ["The upper bounds need 4 slots; the job holds 2."],
    "violations": [],
    "lastBatchTimestampInMillis": NOW - 300,
}
DRY_RUN: dict[str, Any] = {
    "bounds": {SOURCE: {"lowerBound": 1, "upperBound": 2}, COUNTS: {"lowerBound": 1, "upperBound": 4}},
    "currentParallelism": {SOURCE: 2, COUNTS: 2},
    "parallelism": {SOURCE: 2, COUNTS: 4},
    "slotsBefore": 2,
    "slotsAfter": 4,
    "rung": "in-place",
    "refused": [],
    "explanation": [],
}
