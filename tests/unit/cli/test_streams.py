"""Waiting for a job by its events, and without them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from app.cli import events
from app.cli.client import Client
from app.cli.events import JobChanges
from app.cli.jobs import wait_until_ended
from tests.unit.cli.conftest import JOB_ID

Run = Callable[..., Any]
EVENTS = f"/jobs/{JOB_ID}/events"
STATUS = f"/jobs/{JOB_ID}/status"
STREAM = {"Content-Type": "text/event-stream; charset=utf-8"}
BEGIN = b"retry: 2000\nid: 3\n\n"
EVENT = b'id: 4\nevent: status\ndata: {"id": 4, "type": "status"}\n\n'
FOR_EVER_S = 3600.0


@pytest.fixture
def only_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever does not go by events waits for an hour."""
    monkeypatch.setattr(events, "POLL_S", FOR_EVER_S)
    monkeypatch.setattr(events, "LOOK_S", FOR_EVER_S)
    monkeypatch.setattr(events, "COME_AGAIN_S", 0.01)


class Job:
    """A job of the fake server, and the streams of its events."""

    def __init__(self, fake: Any) -> None:
        self.state = "RUNNING"
        self._looks = threading.Semaphore(0)
        fake.routes["GET", STATUS] = self._status

    def _status(self, _: Any) -> Any:
        self._looks.release()
        return 200, {"status": self.state}

    def stream(self, *parts: int | str | bytes) -> Any:
        """The answer with a stream. A number waits for so many looks at the job, a text is the job's status from then
        on, and bytes are sent."""

        def pieces() -> Generator[bytes]:
            yield BEGIN
            for part in parts:
                if isinstance(part, int):
                    assert all(self._looks.acquire(timeout=10) for _ in range(part))
                elif isinstance(part, str):
                    self.state = part
                else:
                    yield part

        return 200, pieces(), STREAM


def ended() -> str:
    with closing(Client()) as client:
        return wait_until_ended(client, JOB_ID)


def test_a_job_is_looked_at_when_the_stream_begins_and_with_each_event(fake: Any, only_events: None) -> None:
    job = Job(fake)
    fake.on("GET", EVENTS, job.stream(2, "FINISHED", EVENT))
    assert ended() == "FINISHED"
    assert len(fake.sent("GET", STATUS)) == 3


def test_what_happens_before_the_stream_begins_is_seen(fake: Any, only_events: None) -> None:
    job = Job(fake)

    def begins_late(_: Any) -> Any:
        job.state = "FINISHED"
        return job.stream()

    fake.routes["GET", EVENTS] = begins_late
    assert ended() == "FINISHED"


def test_a_stream_that_breaks_off_goes_on_behind_its_last_event(fake: Any, only_events: None) -> None:
    job = Job(fake)
    # The third one goes on with what was missed.
    missed = EVENT.replace(b"4", b"5")
    fake.on(
        "GET", EVENTS, job.stream(2, EVENT), (503, {"errors": ["Not now."]}), job.stream("FINISHED", missed)
    )
    assert ended() == "FINISHED"
    # A stream that has ended is asked for again until the job has been looked at.
    begun = [one.headers.get("last-event-id") for one in fake.sent("GET", EVENTS)]
    assert begun[:3] == [None, "4", "4"] and set(begun[3:]) <= {"5"}


@pytest.mark.parametrize(
    "answer",
    [(404, {"errors": ["No."]}), (429, {"errors": ["Too many."]}), (200, b"data: {no JSON}\n\n", STREAM)],
)
def test_without_a_stream_the_job_is_looked_at_from_time_to_time(fake: Any, answer: Any) -> None:
    fake.on("GET", EVENTS, answer)
    running, over = (200, {"status": "RUNNING"}), (200, {"status": "CANCELED"})
    fake.on("GET", STATUS, *[running] * 5, over)
    assert ended() == "CANCELED"
    assert len(fake.sent("GET", EVENTS)) == 1


def test_a_proxy_that_keeps_the_stream_back_is_asked_for_it_once(only_events: None) -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        return httpx.Response(502, text="Bad Gateway")

    client = Client(transport=httpx.MockTransport(answer))
    with closing(client), JobChanges(client, JOB_ID) as changes:
        changes.wait(0.0)
        for reader in [one for one in threading.enumerate() if one.name == "events"]:
            reader.join(5)
            assert not reader.is_alive()
    assert asked == [EVENTS]


def test_what_is_no_event_is_seen_at_the_next_look(
    fake: Any, only_events: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "LOOK_S", 0.05)
    job = Job(fake)
    fake.on("GET", EVENTS, job.stream(2, "FINISHED", 1))
    assert ended() == "FINISHED"


def test_who_is_at_the_goal_at_once_follows_nothing(fake: Any, only_events: None) -> None:
    fake.on("GET", STATUS, (200, {"status": "FINISHED"}))
    assert ended() == "FINISHED"
    assert fake.sent("GET", EVENTS) == []


def test_the_stream_is_let_go_of_at_the_end(fake: Any, only_events: None) -> None:
    silent = threading.Event()

    def stream(_: Any) -> Any:
        def pieces() -> Generator[bytes]:
            yield BEGIN
            silent.wait(10)

        return 200, pieces(), STREAM

    fake.routes["GET", EVENTS] = stream
    try:
        with closing(Client()) as client, JobChanges(client, JOB_ID) as changes:
            changes.wait(FOR_EVER_S)
            reader = next(one for one in threading.enumerate() if one.name == "events")
            assert reader.is_alive()
        reader.join(5)
        assert not reader.is_alive()
    finally:
        silent.set()


def test_between_two_looks_is_a_rest_however_many_events_come(
    fake: Any, only_events: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    rests: list[float] = []
    monkeypatch.setattr(events, "time", SimpleNamespace(sleep=rests.append, monotonic=lambda: 5.0))
    job = Job(fake)
    fake.on("GET", EVENTS, job.stream(2, EVENT, 1, "FINISHED", EVENT))
    assert ended() == "FINISHED"
    # That of the last event counts only if the stream is still there.
    assert rests[:2] == [0.0, pytest.approx(events.REST_S)]
