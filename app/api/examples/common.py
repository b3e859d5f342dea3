"""Ids and times that the examples share."""

from __future__ import annotations

JOB = "7d6df2573d9e01ea17a6d6f0557cae64"
SOURCE = "6bf01baa9d2ca23a3ef7ce311722523d"
COUNTS = "1cdea45891a0a991da91c1a3d840ab55"
GROUP = "4861b22755154b6e6c6f628f4290b8ac"
RESCALE = "26be9c2ba874781f21720a2ad7544914"
REQUIREMENTS_UUID = "9c074aba0576138f55a641e1c52ba375"
TRIGGER = "c25d8d4362fb2c2ad0789e4ce2c0401b"
START = 1795204804384
NOW = 1795204811989

_RESOURCES = {
    "taskHeapMemory": 0,
    "taskOffHeapMemory": 0,
    "managedMemory": 0,
    "networkMemory": 0,
    "extendedResources": {},
}


def cores(count: float) -> dict[str, object]:
    """A resource profile of cores and nothing else."""
    return {"cpuCores": count, **_RESOURCES}
