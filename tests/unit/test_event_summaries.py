"""The summaries of events: what each type says, and that nothing an older or newer version wrote breaks a stream."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api.event_streams import EventTexts
from app.api.render.events import summary
from app.model.public_event import PublicEventType, StoredEvent
from app.worker.requests.event_feed import Given

NAMES = {"a": "counts", "b": "store"}
WHO = {"requestedBy": "ann", "reason": "peak"}
NOBODY = {"requestedBy": None, "reason": None}
RESCALE: dict[str, Any] = {
    "number": 2,
    "rung": "in-place",
    "postRescaleParallelism": {"a": 4, "b": None, "x": 9},
}
LIMITS = {"allVertices": {"floor": None, "ceiling": 6}, "vertices": {"a": {"floor": 3, "ceiling": 4}}}
BOUNDS = {"a": {"lowerBound": 1, "upperBound": 4}, "b": {"lowerBound": 2, "upperBound": 2}}

SUMMARIES: list[tuple[str, dict[str, Any], str]] = [
    ("status", {"status": "CREATED", "previousStatus": None}, "new -> CREATED"),
    (
        "status",
        {"status": "FAILED", "previousStatus": "RUNNING", "cause": "boom"},
        "RUNNING -> FAILED: boom",
    ),
    (
        "requirements",
        {"version": 3, "bounds": BOUNDS, "onTimeout": "COMMIT", **WHO},
        "version 3, counts 1 to 4, store 2 to 2, others wait, COMMIT at a deadline, by ann: peak",
    ),
    (
        "requirements",
        {
            **{"version": 4, "bounds": {}, "onTimeout": "ROLLBACK", **NOBODY},
            "deadlineTimestampInMillis": 1_795_687_200_000,
        },
        "version 4, others wait, ROLLBACK at 2026-11-26 10:00:00 UTC",
    ),
    ("requirements", {"version": 3, "bounds": {}, "onTimeout": None, **NOBODY}, "version 3"),
    ("graph", {"added": {"c": "silver", "d": "gold"}, "removed": {}}, "added silver, gold"),
    ("graph", {"added": {"c": "silver"}, "removed": {"a": "counts"}}, "added silver; removed counts"),
    (
        "slot-share",
        {"version": 2, "weight": 2, "priority": 0, "cap": None, **WHO},
        "version 2, weight 2, priority 0, cap none, by ann: peak",
    ),
    (
        "scaling-policy",
        {"version": 2, **LIMITS, **WHO},
        "version 2, ceiling 6, counts floor 3, counts ceiling 4, by ann: peak",
    ),
    (
        "scaling-policy",
        {"version": 3, "allVertices": {"floor": None, "ceiling": None}, "vertices": {}, **NOBODY},
        "version 3, no floor and no ceiling",
    ),
    (
        "rescale-begun",
        {**RESCALE, "triggerCause": "UPDATE_REQUIREMENT", **WHO},
        "rescale 2 begins: UPDATE_REQUIREMENT, in-place, counts 4, by ann: peak",
    ),
    (
        "rescale-step",
        {**RESCALE, "schedulerState": "Executing"},
        "rescale 2: Executing, in-place, counts 4",
    ),
    (
        "rescale-ended",
        {
            **RESCALE,
            "terminalState": "COMPLETED",
            "durationInMillis": 350,
            "outputGapInMillis": 12,
            "message": None,
        },
        "rescale 2 COMPLETED after 350 ms, in-place, counts 4, output gap 12 ms",
    ),
    (
        "rescale-ended",
        {
            **RESCALE,
            "rung": None,
            "terminalState": "FAILED",
            "durationInMillis": 2_000,
            "outputGapInMillis": None,
            "message": "boom",
        },
        "rescale 2 FAILED after 2.0 s, counts 4: boom",
    ),
    ("no-change", {"message": "Its cap is 2.", "count": 1}, "Its cap is 2."),
    ("no-change", {"message": "Its cap is 2.", "count": 1_000}, "Its cap is 2. (1000 times)"),
    ("failure", {"vertex": "counts", "error": "boom"}, "counts: boom"),
    ("failure", {"vertex": None, "error": "boom"}, "boom"),
    (
        "restart",
        {"query": None, "number": 3, "backoffInMillis": 1_500},
        "the job restarts, number 3, in 1.5 s",
    ),
    ("restart", {"query": "store", "number": 1, "backoffInMillis": 0}, "store restarts, number 1, in 0 ms"),
    ("attempt-begun", {"attempt": 1, "parallelism": {"a": 2, "b": 1}}, "attempt 1 begins, counts 2, store 1"),
    ("attempt-begun", {"attempt": 1, "parallelism": None}, "attempt 1 begins"),
    ("attempt-ended", {"attempt": 1, "outcome": "failed"}, "attempt 1: failed"),
    (
        "batches",
        {"batches": 40, "records": 4_000, "longestBatchInMillis": 350, "pendingRecords": 7},
        "40 batches, 4000 records, the longest took 350 ms, backlog 7",
    ),
    (
        "batches",
        {"batches": 1, "records": 0, "longestBatchInMillis": 1_500, "pendingRecords": None},
        "1 batch, 0 records, the longest took 1.5 s",
    ),
    ("job-forgotten", {"forgottenJob": "0123"}, "job 0123 was deleted"),
    ("member-joined", {"seat": 1, "url": "http://a"}, "server 1 joined: http://a"),
    ("member-left", {"seat": 1, "url": "http://a"}, "server 1 left: http://a"),
    ("from-the-future", {"message": "The wind turned.", "wind": "north"}, "The wind turned."),
    ("from-the-future", {"wind": "north"}, ""),
]


@pytest.mark.parametrize(("kind", "fields", "text"), SUMMARIES)
def test_what_an_event_says(kind: str, fields: dict[str, Any], text: str) -> None:
    assert summary(kind, fields, NAMES) == text


def test_every_type_has_a_summary() -> None:
    assert {kind for kind, _, text in SUMMARIES if text} >= {kind.value for kind in PublicEventType}


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
FIELDS = sorted({name for _, fields, _ in SUMMARIES for name in fields})


@given(
    st.sampled_from([kind.value for kind in PublicEventType]),
    st.dictionaries(st.sampled_from(FIELDS), values),
)
def test_fields_of_other_versions_break_nothing(kind: str, fields: dict[str, Any]) -> None:
    assert isinstance(summary(kind, fields, NAMES), str)


def test_a_text_without_the_names_of_the_job_is_not_kept() -> None:
    """A server may tell of a job before it has read it."""
    known: dict[str, str] = {}
    asked: list[str] = []

    def names(job_id: str) -> dict[str, str]:
        asked.append(job_id)
        return known

    texts = EventTexts(names)
    fields = {"version": 3, "bounds": BOUNDS, "onTimeout": None, **NOBODY}
    event = StoredEvent(1, "a" * 32, "requirements", 5, json.dumps(fields))
    assert b'"summary":"version 3"' in texts(Given((event,), 1))
    known |= NAMES
    for _ in range(2):
        assert b"counts 1 to 4" in texts(Given((event,), 1))
    assert len(asked) == 2, "kept since"
