"""The server and its TaskManagers."""

from __future__ import annotations

from typing import Any

from app.api.examples.common import JOB, NOW, cores
from app.api.render.cluster import MEMORY_PARTS, TASK_MANAGER_METRICS

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
    "totalResource": cores(8.0),
    "freeResource": cores(4.0),
    "hardware": {
        "cpuCores": 8,
        "physicalMemory": 25276502016,
        "freeMemory": 8589934592,
        "managedMemory": -1,
    },
    "memoryConfiguration": {**dict.fromkeys(MEMORY_PARTS, -1), "totalProcessMemory": 25276502016},
}
TASK_MANAGER_DETAILS: dict[str, Any] = {
    **TASK_MANAGER,
    "allocatedSlots": [{"jobId": JOB, "resource": cores(1.0), "assignedTasks": 2}],
    "metrics": {**dict.fromkeys(TASK_MANAGER_METRICS, -1), "garbageCollectors": []},
}
MEMBER: dict[str, Any] = {
    "id": "control-1-4711-5f2c",
    "url": "http://127.0.0.1:8081",
    "host": "control-1",
    "pid": 4711,
    "version": "0.1.0",
    "seat": 1,
    "slots": 8,
    "cluster": None,
    "taskManager": "host",
    "jobs": 3,
    "state": "ALIVE",
    "joinedTimestampInMillis": NOW,
    "isSelf": True,
    "isArbiter": True,
}
