"""`slotwise events`: what is stored, what comes from now on, and a stream that breaks off."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from app.cli import events
from app.cli.client import lines_of
from app.cli.events import line_of, parsed

Run = Callable[..., Any]
JOB_ID = "0123456789abcdef0123456789abcdef"
STREAM = {"Content-Type": "text/event-stream; charset=utf-8"}
PATH = f"/jobs/{JOB_ID}/events"


def event(id: int, kind: str = "status", **fields: Any) -> dict[str, Any]:
    return {"id": id, "type": kind, "jid": JOB_ID, "timestampInMillis": 1_764_111_600_000, **fields}


def stream(*sent: dict[str, Any]) -> bytes:
    blocks = [f"id: {one['id']}\nevent: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in sent]
    return ("retry: 2000\nid: 3\n\n" + "".join(blocks)).encode()


STARTED = event(4, status="RUNNING", previousStatus="CREATED", summary="CREATED -> RUNNING")
ENDED = event(7, "rescale-ended", number=2, summary="rescale 2 COMPLETED after 350 ms, in-place")


def test_a_stream_is_read_as_the_standard_says() -> None:
    text = ": comment\nid: 5\n\nevent: status\ndata: {}\nid: 6\n\ndata: 7\n\n\nevent: cut off\ndata: {}"
    assert list(parsed(text.split("\n"))) == [("5", None), ("6", {}), (None, 7)]


def test_what_is_stored_is_a_line_each(fake: Any, slotwise: Run) -> None:
    fake.on("GET", PATH, (200, stream(STARTED, ENDED), STREAM))
    done = slotwise("events", "delays", "--types", "status,rescale-ended")
    (asked,) = fake.sent("GET", PATH)
    assert asked.query == {"follow": "false", "after": "0", "types": "status,rescale-ended"}
    started, ended = done.out.splitlines()
    assert started.endswith("  status          CREATED -> RUNNING")
    assert ended.endswith("  rescale-ended   rescale 2 COMPLETED after 350 ms, in-place")


def test_json_is_a_document_per_line(fake: Any, slotwise: Run) -> None:
    fake.on("GET", "/events", (200, stream(STARTED, ENDED), STREAM))
    done = slotwise("events", "--json", "--after", "3")
    assert [json.loads(line) for line in done.out.splitlines()] == [STARTED, ENDED]
    assert fake.sent("GET", "/events")[0].query == {"follow": "false", "after": "3"}


def test_lines_of_all_jobs_name_the_job() -> None:
    assert "  01234567  status " in line_of(STARTED, with_job=True)
    joined = {"type": "member-joined", "jid": None, "timestampInMillis": 1, "summary": "server 1 joined"}
    assert line_of(joined, with_job=True).endswith("  -         member-joined   server 1 joined")


def test_one_who_follows_comes_again_behind_the_last_event(
    fake: Any, slotwise: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "COME_AGAIN_S", 0.0)
    closing = b'event: closing\ndata: {"type": "closing", "message": "The server is stopping."}\n\n'
    fake.on(
        "GET",
        PATH,
        (200, stream(STARTED) + closing, STREAM),
        (503, {"errors": ["Not now."]}, {"Retry-After": "1"}),
        (503, {"errors": ["Not now."]}, {"Retry-After": "1"}),
        (200, stream(ENDED), STREAM),
        (400, {"errors": ["That is enough."]}),
    )
    done = slotwise("events", JOB_ID, "-f")
    cursors = [one.headers.get("last-event-id") for one in fake.sent("GET", PATH)]
    assert cursors == [None, "4", "4", "4", "7"]
    assert len(done.out.splitlines()) == 2
    assert done.err.splitlines() == ["The server is stopping.", "Not now.", "That is enough."]
    assert done.status == 1


def test_a_gap_is_told(fake: Any, slotwise: Run) -> None:
    gone = {"type": "gone", "cursor": 1, "after": 8, "message": "Events 2 to 8 are not kept any more."}
    fake.on("GET", PATH, (200, f"event: gone\nid: 8\ndata: {json.dumps(gone)}\n\n".encode(), STREAM))
    assert (
        slotwise("events", JOB_ID, "--after", "1").out.split("  ")[-1]
        == "Events 2 to 8 are not kept any more.\n"
    )


def test_refusals_are_the_servers_sentences(fake: Any, slotwise: Run) -> None:
    fake.on("GET", PATH, (400, {"errors": ["The query parameter types should be some of status."]}))
    done = slotwise("events", JOB_ID, "--types", "x")
    assert (done.status, done.err) == (1, "The query parameter types should be some of status.\n")
    closing = b'event: closing\ndata: {"type": "closing", "message": "The database is away."}\n\n'
    fake.on("GET", PATH, (200, closing, STREAM))
    done = slotwise("events", JOB_ID)
    assert (done.status, done.err) == (1, "The database is away.\n")


def test_no_server_is_told(slotwise: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    done = slotwise("events", "--server", "http://127.0.0.1:1")
    assert done.status == 1 and "No Slotwise server at http://127.0.0.1:1" in done.err


def test_texts_with_line_separators_that_json_leaves_as_they_are(fake: Any, slotwise: Run) -> None:
    reason = "one\u2028two\u2029three\x85four"
    told = event(5, "requirements", version=2, reason=reason)
    block = f"id: 5\nevent: requirements\ndata: {json.dumps(told, ensure_ascii=False)}\n\n"
    assert reason in block
    fake.on("GET", PATH, (200, block.encode(), STREAM))
    done = slotwise("events", JOB_ID, "--json")
    assert done.status == 0 and json.loads(done.out)["reason"] == reason


@pytest.mark.parametrize("size", [1, 2, 7, 1_000])
def test_lines_are_put_together_from_pieces_and_what_is_cut_off_is_none(size: int) -> None:
    text = "id: 5\ndata: 1\u2028\n\ndata: cut"
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    assert list(lines_of(pieces)) == ["id: 5", "data: 1\u2028", ""]
