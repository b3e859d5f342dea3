"""The examples of the OpenAPI document: one small job, a source and a counting vertex, seen from every side."""

from __future__ import annotations

from typing import Any

JOB = "7d6df2573d9e01ea17a6d6f0557cae64"
SOURCE = "6bf01baa9d2ca23a3ef7ce311722523d"
COUNTS = "1cdea45891a0a991da91c1a3d840ab55"
GROUP = "4861b22755154b6e6c6f628f4290b8ac"
RESCALE = "26be9c2ba874781f21720a2ad7544914"
REQUIREMENTS_UUID = "9c074aba0576138f55a641e1c52ba375"
TRIGGER = "c25d8d4362fb2c2ad0789e4ce2c0401b"
START = 1795204804384
NOW = 1795204811989

STATES = (
    "CREATED",
    "SCHEDULED",
    "DEPLOYING",
    "INITIALIZING",
    "RUNNING",
    "FINISHED",
    "CANCELING",
    "CANCELED",
    "FAILED",
    "RECONCILING",
)
NO_TASKS = dict.fromkeys(STATES, 0)

REQUIREMENTS: dict[str, Any] = {
    SOURCE: {"parallelism": {"lowerBound": 1, "upperBound": 2}},
    COUNTS: {"parallelism": {"lowerBound": 1, "upperBound": 4}},
}

GRAPH: dict[str, Any] = {
    "name": "counts-by-key",
    "type": "STREAMING",
    "vertices": [
        {"name": "numbers", "source": {"format": "rate", "options": {"rowsPerSecond": "100"}}, "parallelism": 2},
        {
            "name": "counts",
            "inputs": ["numbers"],
            "sql": "SELECT value % 10 AS k, count(*) AS n FROM numbers GROUP BY value % 10",
            "parallelism": 4,
            "maxParallelism": 12,
        },
        {"name": "store", "inputs": ["counts"], "sink": {"format": "noop", "outputMode": "update"}},
    ],
}
GRAPH_YAML = """\
name: counts-by-key
type: STREAMING
vertices:
  - name: numbers
    source: {format: rate, options: {rowsPerSecond: "100"}}
    parallelism: 2
  - name: counts
    inputs: [numbers]
    sql: SELECT value % 10 AS k, count(*) AS n FROM numbers GROUP BY value % 10
    parallelism: 4
    maxParallelism: 12
  - name: store
    inputs: [counts]
    sink: {format: noop, outputMode: update}
"""

NOT_MEASURED: dict[str, Any] = {
    "read-bytes": 0,
    "read-bytes-complete": False,
    "write-bytes": 0,
    "write-bytes-complete": False,
    "read-records": 0,
    "read-records-complete": False,
    "write-records": 0,
    "write-records-complete": False,
    "accumulated-backpressured-time": 0,
    "accumulated-idle-time": 0,
    "accumulated-busy-time": 0.0,
}

PLAN: dict[str, Any] = {
    "jid": JOB,
    "name": "counts-by-key",
    "type": "STREAMING",
    "nodes": [
        {
            "id": SOURCE,
            "operator": "",
            "parallelism": 2,
            "operator_strategy": "",
            "description": "numbers<br/>",
            "optimizer_properties": {},
        },
        {
            "id": COUNTS,
            "operator": "",
            "parallelism": 4,
            "operator_strategy": "",
            "description": "counts<br/>",
            "optimizer_properties": {},
            "inputs": [{"id": SOURCE, "num": 0, "exchange": "pipelined_bounded", "ship_strategy": "HASH"}],
        },
    ],
}


def _vertex(vertex_id: str, name: str, parallelism: int) -> dict[str, Any]:
    return {
        "id": vertex_id,
        "slotSharingGroupId": GROUP,
        "name": name,
        "maxParallelism": 12,
        "parallelism": parallelism,
        "status": "RUNNING",
        "start-time": START + 1500,
        "end-time": -1,
        "duration": NOW - START - 1500,
        "tasks": {**NO_TASKS, "RUNNING": parallelism},
        "metrics": NOT_MEASURED,
    }


DETAILS: dict[str, Any] = {
    "jid": JOB,
    "application-id": JOB,
    "name": "counts-by-key",
    "isStoppable": False,
    "state": "RUNNING",
    "job-type": "STREAMING",
    "schedulerType": "Adaptive",
    "start-time": START,
    "end-time": -1,
    "duration": NOW - START,
    "maxParallelism": 12,
    "now": NOW,
    "timestamps": {
        "INITIALIZING": START,
        "CREATED": START + 100,
        "RUNNING": START + 1500,
        "FAILING": 0,
        "FAILED": 0,
        "CANCELLING": 0,
        "CANCELED": 0,
        "FINISHED": 0,
        "RESTARTING": 0,
        "SUSPENDED": 0,
        "RECONCILING": 0,
    },
    "vertices": [_vertex(SOURCE, "numbers", 2), _vertex(COUNTS, "counts", 4)],
    "status-counts": {**NO_TASKS, "RUNNING": 2},
    "plan": PLAN,
    "pending-operators": 0,
    "schedulerState": "Executing",
    "attempt": 1,
    "driverPid": 41234,
    "submittedBy": "anonymous",
}

OVERVIEW: dict[str, Any] = {
    "jobs": [
        {
            "jid": JOB,
            "name": "counts-by-key",
            "jobType": "STREAMING",
            "schedulerType": "Adaptive",
            "start-time": START,
            "end-time": -1,
            "duration": NOW - START,
            "state": "RUNNING",
            "last-modification": START + 1500,
            "tasks": {**{state.lower(): 0 for state in STATES}, "running": 6, "total": 6},
            "pending-operators": 0,
        }
    ]
}

JOB_CONFIG: dict[str, Any] = {
    "jid": JOB,
    "name": "counts-by-key",
    "execution-config": {
        "restart-strategy": "Restart with exponential delay: 1000 ms to 60000 ms, multiplier 1.5, jitter 0.1.",
        "job-parallelism": 4,
        "object-reuse-mode": False,
        "user-config": {"spark.sql.session.timeZone": "UTC"},
    },
}

EXCEPTIONS: dict[str, Any] = {
    "exceptionHistory": {
        "entries": [
            {
                "exceptionName": "ValueError",
                "stacktrace": "ValueError: no airline has the code ZZ\n  in enrich, flights.py line 12",
                "timestamp": NOW - 2000,
                "failureLabels": {},
                "message": "ValueError: no airline has the code ZZ",
                "attempt": 1,
                "taskName": "counts",
                "concurrentExceptions": [],
            }
        ],
        "truncated": False,
    }
}

EXECUTION_RESULT: dict[str, Any] = {
    "status": {"id": "COMPLETED"},
    "job-execution-result": {
        "id": JOB,
        "name": "counts-by-key",
        "application-status": "SUCCEEDED",
        "accumulator-results": {},
        "net-runtime": 11857,
        "application-id": JOB,
        "start-time": START,
        "end-time": START + 11857,
    },
}

_AGGREGATE = {"min": 0, "max": 0, "avg": 0, "sum": 0, "median": 0, "p25": 0, "p75": 0, "p95": 0}
VERTEX_DETAILS: dict[str, Any] = {
    "id": COUNTS,
    "name": "counts",
    "parallelism": 1,
    "maxParallelism": 12,
    "now": NOW,
    "subtasks": [
        {
            "subtask": 0,
            "status": "RUNNING",
            "attempt": 0,
            "endpoint": "host",
            "start-time": START + 1500,
            "end-time": -1,
            "duration": NOW - START - 1500,
            "metrics": NOT_MEASURED,
            "taskmanager-id": "host",
            "status-duration": {"RUNNING": NOW - START - 1500},
            "start_time": START + 1500,
        }
    ],
    "aggregated": {
        "metrics": {name: _AGGREGATE for name in NOT_MEASURED if not name.endswith("-complete")},
        "status-duration": {"RUNNING": {**dict.fromkeys(_AGGREGATE, NOW - START - 1500)}},
    },
}

_PROFILE = {
    "cpuCores": -1.0,
    "taskHeapMemory": -1,
    "taskOffHeapMemory": -1,
    "managedMemory": -1,
    "networkMemory": -1,
    "extendedResources": {},
}
_CORES = {
    "taskHeapMemory": 0,
    "taskOffHeapMemory": 0,
    "managedMemory": 0,
    "networkMemory": 0,
    "extendedResources": {},
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
            "requestResourceProfile": _PROFILE,
            "desiredSlots": 4,
            "minimalRequiredSlots": 1,
            "preRescaleSlots": 2,
            "postRescaleSlots": 4,
            "acquiredResourceProfile": {"cpuCores": 1.0, **_CORES},
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
    "inPlaceResourceStabilizationTimeoutInMillis": 0,
    "inPlaceMaximumDelayInMillis": 0,
}

EXPLANATION: dict[str, Any] = {
    "jid": JOB,
    "name": "counts-by-key",
    "status": "RUNNING",
    "schedulerState": "Executing",
    "requirementsVersion": 2,
    "slots": {"desired": 4, "minimal": 1, "held": 2, "used": 2},
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

CONFIG: dict[str, Any] = {
    "refresh-interval": 3000,
    "timezone-name": "Coordinated Universal Time",
    "timezone-offset": 0,
    "flink-version": "2.3.0",
    "flink-revision": "slotwise 0.1.0",
    "features": {"web-submit": False, "web-cancel": True, "web-rescale": True, "web-history": False},
    "slotwise-version": "0.1.0",
}
CLUSTER: dict[str, Any] = {
    "taskmanagers": 1,
    "slots-total": 8,
    "slots-available": 4,
    "jobs-running": 1,
    "jobs-finished": 0,
    "jobs-cancelled": 0,
    "jobs-failed": 0,
    "flink-version": "2.3.0",
    "flink-commit": "slotwise 0.1.0",
    "slotwise-version": "0.1.0",
}
TASK_MANAGER: dict[str, Any] = {
    "id": "host",
    "path": "localhost",
    "dataPort": -1,
    "jmxPort": -1,
    "timeSinceLastHeartbeat": NOW,
    "slotsNumber": 8,
    "freeSlots": 4,
    "assignedTasks": 6,
    "totalResource": {"cpuCores": 8.0, **_CORES},
    "freeResource": {"cpuCores": 4.0, **_CORES},
    "hardware": {
        "cpuCores": 8,
        "physicalMemory": 25276502016,
        "freeMemory": 8589934592,
        "managedMemory": -1,
    },
    "memoryConfiguration": {
        "frameworkHeap": -1,
        "taskHeap": -1,
        "frameworkOffHeap": -1,
        "taskOffHeap": -1,
        "networkMemory": -1,
        "managedMemory": -1,
        "jvmMetaspace": -1,
        "jvmOverhead": -1,
        "totalFlinkMemory": -1,
        "totalProcessMemory": 25276502016,
    },
}
TASK_MANAGER_DETAILS: dict[str, Any] = {
    **TASK_MANAGER,
    "allocatedSlots": [{"jobId": JOB, "resource": {"cpuCores": 1.0, **_CORES}, "assignedTasks": 2}],
    "metrics": {
        **dict.fromkeys(
            (
                "heapUsed",
                "heapCommitted",
                "heapMax",
                "nonHeapUsed",
                "nonHeapCommitted",
                "nonHeapMax",
                "directCount",
                "directUsed",
                "directMax",
                "mappedCount",
                "mappedUsed",
                "mappedMax",
                "nettyShuffleMemorySegmentsAvailable",
                "nettyShuffleMemorySegmentsUsed",
                "nettyShuffleMemorySegmentsTotal",
                "nettyShuffleMemoryAvailable",
                "nettyShuffleMemoryUsed",
                "nettyShuffleMemoryTotal",
            ),
            -1,
        ),
        "garbageCollectors": [],
    },
}
