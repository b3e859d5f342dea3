"""What a driver makes of Spark's progress: how many records wait at the sources."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from app.driver.progress import Committed, Happening, _Adapter

KAFKA = {
    "description": "KafkaV2[Subscribe[words]]",
    "startOffset": {"words": {"0": 5, "1": 0}},
    "endOffset": {"words": {"0": 10, "1": 4}},
    "latestOffset": {"words": {"0": 110, "1": 4}},
    "metrics": {"avgOffsetsBehindLatest": "50.0", "maxOffsetsBehindLatest": "100"},
}
OTHER_TOPIC = {**KAFKA, "endOffset": {"more": {"0": 0}}, "latestOffset": {"more": {"0": 7, "1": 9}}}
FILES = {
    "description": "FileStreamSource[file:/in]",
    "endOffset": {"logOffset": 3},
    "latestOffset": None,
    "metrics": {},
}
RATE = {
    "description": "RatePerMicroBatchStream",
    "endOffset": {"offset": 90, "timestamp": 4},
    "latestOffset": {"offset": 90, "timestamp": 4},
}
LINES = {"description": "TextSocketV2", "endOffset": 4, "latestOffset": 9}


@pytest.mark.parametrize(
    ("sources", "rows"),
    [
        ([KAFKA], 100),
        # A partition that is new has nothing that is known to wait.
        ([KAFKA, OTHER_TOPIC], 107),
        ([KAFKA, FILES], None),
        ([FILES], None),
        ([RATE], None),
        ([LINES], None),
        ([], None),
    ],
)
def test_the_backlog_is_what_each_source_tells_or_nothing(sources: list[Any], rows: int | None) -> None:
    told: list[Happening] = []
    progress = {
        "id": "id",
        "runId": "run",
        "batchId": 3,
        "durationMs": {"addBatch": 5},
        "sources": sources,
    }
    text = SimpleNamespace(json=lambda: json.dumps(progress))
    _Adapter(told.append).onQueryProgress(SimpleNamespace(progress=lambda: text))
    (happening,) = told
    assert isinstance(happening, Committed) and happening.backlog_rows == rows
