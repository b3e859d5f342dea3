"""`slotwise decisions`: what was decided for a batch job, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Run = Callable[..., Any]
JOB_ID = "0123456789abcdef0123456789abcdef"
PATH = f"/jobs/{JOB_ID}/decisions"


def decision(name: str, *, state: str = "FINISHED", **changes: Any) -> dict[str, Any]:
    ended = state == "FINISHED"
    return {
        "vertexId": "a" * 32,
        "vertexName": name,
        "region": 1,
        "run": 1,
        "timestampInMillis": 1_795_204_804_651,
        "rule": "flip-187",
        "parallelism": 4,
        "lowerBound": 1,
        "upperBound": 32,
        "limit": None,
        "limitedBy": None,
        "wanted": 5,
        "normalized": 4,
        "bytes": 60_000_000,
        "rows": 1_200_000,
        "broadcastBytes": 4_000_000,
        "countedBroadcastBytes": 4_000_000,
        "volumeBytes": 16_777_216,
        "subpartitions": 32,
        "skewed": [],
        "groups": None,
        "sentence": "It runs at 4.",
        "regionRun": {
            "state": state,
            "startTimestampInMillis": 1_795_204_804_651,
            "endTimestampInMillis": 1_795_204_806_151 if ended else None,
            "writtenBytes": 4096 if ended else None,
            "writtenRows": 10 if ended else None,
        },
        **changes,
    }


def test_each_decision_is_a_line_with_its_numbers(slotwise: Run, batch: Any) -> None:
    unknown = dict.fromkeys(("wanted", "bytes", "rows", "subpartitions"))
    pipelined = decision("store", state="RUNNING", rule="pipelined", **unknown)
    source = decision("flights", rule="source", parallelism=1, limit=1, limitedBy="slots")
    batch.on("GET", PATH, (200, [pipelined, decision("delays"), source]))
    outcome = slotwise("decisions", "delays")
    headers, running, finished, limited = (" ".join(line.split()) for line in outcome.out.splitlines())
    assert headers.startswith("when (")
    assert headers.endswith(
        ") vertex run rule parallelism wanted bounds limit input rows per task state took written"
    )
    assert running.endswith(" store 1 pipelined 4 - 1 to 32 - - - 17 MB RUNNING - -")
    assert finished.endswith(" delays 1 flip-187 4 5 1 to 32 - 64 MB 1,200,000 17 MB FINISHED 1.5 s 4.1 kB")
    assert " flights 1 source 1 5 1 to 32 1 (slots) 64 MB " in limited
    assert "\x1b" not in outcome.out
    assert outcome.status == 0


def test_as_json_it_is_what_the_server_says(slotwise: Run, batch: Any) -> None:
    found = [decision("delays")]
    batch.on("GET", PATH, (200, found))
    assert slotwise("decisions", "delays", "--json").json == found
    batch.on("GET", PATH, (200, []))
    assert slotwise("decisions", "delays", "--json").json == []


def test_where_nothing_was_decided_it_says_why(slotwise: Run, fake: Any, batch: Any) -> None:
    batch.on("GET", PATH, (200, []))
    assert slotwise("decisions", "delays").out == "No decisions yet.\n"
    details = fake.routes["GET", f"/jobs/{JOB_ID}"](None)[1]
    fake.on("GET", f"/jobs/{JOB_ID}", (200, {**details, "job-type": "STREAMING"}))
    outcome = slotwise("decisions", "delays")
    assert (outcome.status, outcome.out) == (
        0,
        "No decisions: a streaming job does not make them. What changed its parallelism: slotwise rescales JOB\n",
    )


def test_what_it_does_not_know_is_an_error(slotwise: Run, fake: Any) -> None:
    outcome = slotwise("decisions", "delays", "--limit", "3")
    assert (outcome.status, outcome.out, fake.requests) == (2, "", [])
    assert "No such option: --limit" in outcome.err
    fake.on("GET", PATH, (404, {"errors": ["The job was forgotten."]}))
    outcome = slotwise("decisions", "delays")
    assert (outcome.status, outcome.err) == (1, "The job was forgotten.\n")
