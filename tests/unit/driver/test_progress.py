"""What a driver makes of Spark's progress: how many records wait at the sources."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from app.driver.progress import (
    Committed,
    Happening,
    QueryListener,
    SourceTold,
    StateTold,
    committed_of,
    measured,
)
from app.model.measured import TOPICS_TOLD

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
    QueryListener(told.append).onQueryProgress(SimpleNamespace(progress=lambda: text))
    (happening,) = told
    assert isinstance(happening, Committed) and happening.backlog_rows == rows


def test_what_waits_in_kafka_is_told_by_topic() -> None:
    both = {
        "description": "KafkaV2[Subscribe[few, words]]",
        "endOffset": {"few": {"0": 4}, "words": {"0": 10, "1": 4}},
        "latestOffset": {"few": {"0": 6}, "words": {"0": 110, "1": 44}},
        "numInputRows": 7,
    }
    many = {
        "description": "KafkaV2[SubscribePattern[.*]]",
        "endOffset": {f"t{number}": {"0": 0} for number in range(1_000)},
        "latestOffset": {f"t{number}": {"0": number} for number in range(1_000)},
    }
    of_both, of_many, *others = committed_of({**BATCH, "sources": [both, many, RATE, FILES]}).sources
    assert of_both == SourceTold(7, 142, {"words": 140, "few": 2}, lag_max=100)
    assert of_many.waiting == 499_500 and of_many.lag_max == 999
    assert list(of_many.topics) == [f"t{number}" for number in range(999, 999 - TOPICS_TOLD, -1)]
    assert others == [SourceTold(0), SourceTold(0, log=(-1, 3))]
    assert committed_of({**BATCH, "sources": [{**FILES, "startOffset": {"logOffset": 2}}]}).sources == (
        SourceTold(0, log=(2, 3)),
    )


BATCH: dict[str, Any] = {"id": "id", "runId": "run", "batchId": 3, "durationMs": {"addBatch": 5}}


def test_a_watermark_of_a_year_of_five_digits_is_not_known() -> None:
    """Event times in milliseconds that a job takes for seconds give one."""
    said = committed_of(
        {**BATCH, "eventTime": {"watermark": "57876-06-15T10:40:00.000Z"}, "sources": [KAFKA]}
    )
    assert (said.batch_id, said.watermark_ms, said.backlog_rows) == (3, None, 100)


@pytest.mark.parametrize(
    "wrong",
    [
        {"eventTime": {"watermark": 5}},
        {"stateOperators": [{}]},
        {"sources": [{"numInputRows": "many"}]},
        {"sources": [{"latestOffset": {"a": {"0": "x"}}, "endOffset": {"a": {"0": 1}}}]},
        {"durationMs": {"addBatch": None}},
    ],
)
def test_a_figure_that_cannot_be_read_loses_no_commit(wrong: dict[str, Any]) -> None:
    told: list[Happening] = []
    text = SimpleNamespace(json=lambda: json.dumps({**BATCH, "numInputRows": 4, **wrong}))
    QueryListener(told.append).onQueryProgress(SimpleNamespace(progress=lambda: text))
    (said,) = told
    assert isinstance(said, Committed) and (said.batch_id, said.input_rows, said.run_id) == (3, 4, "run")


def test_what_cannot_be_read_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        assert measured("a figure of this test", lambda: 1 // 0, 7) == 7
    assert [record.getMessage() for record in caplog.records] == [
        "a figure of this test cannot be read: integer division or modulo by zero"
    ]


def test_state_watermark_and_phases_are_told() -> None:
    progress = {
        "id": "id",
        "runId": "run",
        "batchId": 3,
        "batchDuration": 9,
        "numInputRows": 12,
        "durationMs": {"addBatch": 5, "triggerExecution": 9},
        "eventTime": {"watermark": "2030-01-01T00:00:00.500Z"},
        "sources": [{**KAFKA, "numInputRows": 9}, {**FILES, "numInputRows": 3}],
        "stateOperators": [
            {"numRowsTotal": 4, "memoryUsedBytes": 100, "customMetrics": {"rocksdbSstFileSize": 11}},
            {"numRowsTotal": 5, "memoryUsedBytes": 200},
        ],
    }
    said = committed_of(progress)
    assert said.sources == (SourceTold(9, 100, {"words": 100}, 100), SourceTold(3, log=(-1, 3)))
    assert said.states == (StateTold(4, 111), StateTold(5, 200))
    assert (said.state_rows, said.backlog_rows) == (9, None)
    assert said.watermark_ms == 1_893_456_000_500
    assert said.phases_ms == {"addBatch": 5, "triggerExecution": 9}
    before_any = {**progress, "eventTime": {"watermark": "1970-01-01T00:00:00.000Z"}, "stateOperators": []}
    assert (committed_of(before_any).watermark_ms, committed_of(before_any).state_rows) == (None, None)
    assert committed_of({**progress, "eventTime": {}}).watermark_ms is None


@pytest.mark.parametrize(
    ("sources", "has_input"),
    [
        ([{**KAFKA, "numInputRows": 0}], True),
        ([{**KAFKA, "startOffset": KAFKA["endOffset"]}], False),
        ([{**KAFKA, "startOffset": KAFKA["endOffset"]}, FILES], True),
        ([FILES], True),
        ([], True),
    ],
    ids=["empty files", "only time passes", "one of two", "the first batch", "nothing is known"],
)
def test_a_batch_has_input_if_a_source_got_further(sources: list[Any], has_input: bool) -> None:
    progress = {"id": "id", "runId": "run", "batchId": 3, "sources": sources, "durationMs": {"addBatch": 1}}
    assert committed_of(progress).has_input is has_input
