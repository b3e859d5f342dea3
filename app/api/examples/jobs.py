"""Jobs."""

from __future__ import annotations

from typing import Any

from app.api.examples.common import COUNTS, GROUP, JOB, NOW, SOURCE, START
from app.api.render.execution import EXECUTION_STATES
from app.api.render.jobs import NOT_MEASURED

NO_TASKS = dict.fromkeys(EXECUTION_STATES, 0)

GRAPH: dict[str, Any] = {
    "name": "counts-by-key",
    "type": "STREAMING",
    "vertices": [
        {
            "name": "numbers",
            "source": {"format": "rate", "options": {"rowsPerSecond": "100"}},
            "parallelism": 2,
        },
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
PROGRAM_YAML = """\
name: word-count
script: word_count.py
args: [--topic, words]
bounds:
  counts: {lowerBound: 1, upperBound: 4}
"""
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
        "progress": None,
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
    "underWay": True,
    "lastFailure": None,
    "queries": [
        {
            "id": "8f2a4f5e-37a3-4e0b-9f0e-0d6b6b2a3c1d",
            "runId": "1b5c9c52-6d1f-4c5e-8a43-5f0f4f2f9a77",
            "batchId": 41,
        }
    ],
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
            "tasks": {**{state.lower(): 0 for state in EXECUTION_STATES}, "running": 6, "total": 6},
            "pending-operators": 0,
            "lastFailure": None,
        }
    ]
}

JOB_CONFIG: dict[str, Any] = {
    "jid": JOB,
    "name": "counts-by-key",
    "execution-config": {
        "restart-strategy": (
            "Restart with exponential delay: 1000 ms to 60000 ms, multiplier 1.5, jitter 0.1."
        ),
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
    "progress": {"tasksDone": 12, "tasksKnown": 40, "percent": 30, "estimatedRestInMillis": 14245},
}
