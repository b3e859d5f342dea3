"""Decisions of a BATCH job."""

from __future__ import annotations

from typing import Any

from app.api.examples.common import COUNTS, NOW

DECISION: dict[str, Any] = {
    "vertexId": COUNTS,
    "vertexName": "counts",
    "region": 1,
    "run": 1,
    "timestampInMillis": NOW - 9000,
    "rule": "flip-187",
    "parallelism": 4,
    "lowerBound": 1,
    "upperBound": 32,
    "limit": None,
    "limitedBy": None,
    "wanted": 4,
    "normalized": 4,
    "bytes": 60_000_000,
    "rows": 1_200_000,
    "broadcastBytes": 0,
    "countedBroadcastBytes": 0,
    "volumeBytes": 16_777_216,
    "subpartitions": 32,
    "skewed": [],
    "groups": None,
    "sentence": (
        "counts ran at 4 by flip-187: 60000000 bytes of input, 16777216 for each task, ask for 4 (bounds 1 to 32)."
    ),
    "regionRun": {
        "state": "FINISHED",
        "startTimestampInMillis": NOW - 9000,
        "endTimestampInMillis": NOW - 2000,
        "writtenBytes": 4096,
        "writtenRows": 10,
    },
}
