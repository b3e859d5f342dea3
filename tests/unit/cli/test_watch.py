"""What `watch` shows of a job, and what it keeps quiet about."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator
from contextlib import closing
from typing import Any

import pytest
from rich.console import Console

from app.cli import watch as watch_module
from app.cli.client import Client
from app.cli.errors import NoServer, Refused
from app.cli.watch import look
from app.model.ids import vertex_id

Run = Callable[..., Any]
JOB_ID = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def metrics(fake: Any) -> Any:
    """The running job of the fake with metrics on its source; it finishes at the fourth look."""
    running = fake.routes["GET", f"/jobs/{JOB_ID}"](None)[1]
    ended = {**running, "state": "FINISHED"}
    fake.on("GET", f"/jobs/{JOB_ID}", (200, running), (200, running), (200, running), (200, ended))
    told = {vertex["id"]: {"lowerBound": 1, "upperBound": 2} for vertex in running["vertices"]}
    fake.on(
        "GET",
        f"/jobs/{JOB_ID}/explanation",
        (200, {"sentences": ["Two slots are missing."], "violations": [], "vertices": told}),
    )
    values = {"numRecordsOutPerSecond": 40.0, "pendingRecords": 1200.0}
    for name in ("flights", "delays", "store"):
        path = f"/jobs/{JOB_ID}/vertices/{vertex_id('delays', name)}/subtasks/metrics"

        def answer(request: Any, known: dict[str, float] = values if name == "flights" else {}) -> Any:
            wanted = request.query["get"].split(",")
            return 200, [{"id": metric, "sum": known[metric]} for metric in wanted if metric in known]

        fake.routes["GET", path] = answer
    return fake


def test_watch_prints_a_line_per_change_and_ends_with_the_job(slotwise: Run, metrics: Any) -> None:
    outcome = slotwise("watch", "delays", "--interval", "0.1")
    first, last = outcome.out.splitlines()
    assert first.startswith("RUNNING  flights 1  delays 1  store 1  40 records/s  backlog 1,200")
    assert last.startswith("FINISHED")
    assert "\x1b" not in outcome.out
    assert outcome.status == 0


def test_a_vertex_that_goes_between_two_requests_does_not_end_the_watching(
    slotwise: Run, metrics: Any
) -> None:
    path = f"/jobs/{JOB_ID}/vertices/{vertex_id('delays', 'flights')}/subtasks/metrics"
    metrics.on("GET", path, (404, {"errors": ["No such vertex."]}))
    outcome = slotwise("watch", "delays", "--interval", "0.1")
    assert outcome.status == 0, outcome.err
    assert outcome.out.startswith("RUNNING  flights 1  delays 1  store 1")


def test_what_happens_is_shown_at_once(slotwise: Run, metrics: Any) -> None:
    """With an interval of a minute, and an event for each look."""
    details = metrics.routes["GET", f"/jobs/{JOB_ID}"]
    looks = threading.Semaphore(0)

    def looked(request: Any) -> Any:
        looks.release()
        return details(request)

    def stream() -> Generator[bytes]:
        yield b"id: 3\n\n"
        assert looks.acquire(timeout=10)
        for number in range(4, 6):
            assert looks.acquire(timeout=10)
            yield f'id: {number}\ndata: {{"type": "status"}}\n\n'.encode()

    metrics.routes["GET", f"/jobs/{JOB_ID}"] = looked
    metrics.on("GET", f"/jobs/{JOB_ID}/events", (200, stream(), {"Content-Type": "text/event-stream"}))
    outcome = slotwise("watch", JOB_ID, "--interval", "60")
    assert [line.split()[0] for line in outcome.out.splitlines()] == ["RUNNING", "FINISHED"]


def test_watch_json_prints_one_document_per_change(slotwise: Run, metrics: Any) -> None:
    outcome = slotwise("watch", "delays", "--interval", "0.1", "--json")
    first, last = [json.loads(line) for line in outcome.out.splitlines()]
    assert (first["status"], last["status"]) == ("RUNNING", "FINISHED")
    assert first["backlog"] == 1200
    assert first["vertices"][1] | {"id": ""} == {
        "id": "",
        "name": "delays",
        "lower": 1,
        "upper": 2,
        "parallelism": 1,
        "tasks": None,
        "records_in_per_second": None,
        "records_out_per_second": None,
        "busy_per_mille": None,
        "state": "RUNNING",
        "duration_ms": None,
        "read_bytes": None,
        "written_bytes": None,
        "percent": None,
        "rest_ms": None,
    }
    assert first["sentences"] == ["Two slots are missing."]
    assert last["vertices"][1]["upper"] == 2, "a job that has ended has bounds in its explanation only"


def test_how_far_a_job_is_behind_fits_into_a_hundred_columns(slotwise: Run, metrics: Any) -> None:
    values = {"pendingTimeMs": "30000", "watermarkLag": "125000", "lastCheckpointDuration": "850"}
    told = [{"id": name, "value": value} for name, value in values.items()]
    metrics.on("GET", f"/jobs/{JOB_ID}/metrics", (200, told))
    with closing(Client()) as client:
        seen = look(client, JOB_ID)
    console = Console(width=100, no_color=True)
    with console.capture() as capture:
        console.print(watch_module.render(seen))
    lines = capture.get().splitlines()
    assert lines[1] == "backlog 1,200, 30.0 s of input  watermark 2 min 5 s behind  last batch 850 ms"
    assert "flights" in lines[4] and max(map(len, lines)) <= 100
    assert "backlog 1,200 (30.0 s)" in watch_module.plain_line(seen)


def test_busy_time_is_that_of_the_average_slot(slotwise: Run, metrics: Any) -> None:
    path = f"/jobs/{JOB_ID}/vertices/{vertex_id('delays', 'store')}/subtasks/metrics"
    told = [{"id": "busyTimeMsPerSecond", "sum": 1600.0, "avg": 400.0}]
    metrics.routes["GET", path] = lambda _: (200, told)
    with closing(Client()) as client:
        assert look(client, JOB_ID).vertices[2].busy_per_mille == 400.0


def test_ctrl_c_ends_watching_without_a_complaint(
    slotwise: Run, metrics: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(watch_module.JobChanges, "wait", interrupted)
    outcome = slotwise("watch", "delays")
    assert (outcome.status, outcome.err) == (0, "")


def test_watching_goes_on_while_the_server_is_away(
    slotwise: Run, metrics: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter([None, NoServer("No server."), NoServer("No server."), Refused(503, "Later."), None, None])
    real = watch_module.look

    def look(client: Any, job_id: str) -> Any:
        error = next(looks, None)
        if error is not None:
            raise error
        return real(client, job_id)

    monkeypatch.setattr(watch_module, "look", look)
    outcome = slotwise("watch", "delays", "--interval", "0.1")
    first, away, *_, last = outcome.out.splitlines()
    assert (first.split()[0], away, last.split()[0]) == ("RUNNING", "No server.", "FINISHED")
    assert outcome.status == 0


def test_any_other_refusal_ends_watching(
    slotwise: Run, metrics: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(client: Any, job_id: str) -> Any:
        raise Refused(404, "The job was forgotten.")

    monkeypatch.setattr(watch_module, "look", look)
    outcome = slotwise("watch", "delays")
    assert (outcome.status, outcome.err) == (1, "The job was forgotten.\n")


def test_a_look_takes_few_requests(metrics: Any) -> None:
    with closing(Client()) as client:
        look(client, JOB_ID)
    assert len(metrics.requests) == 4 + 3, "four for the job, and one for each vertex"


def test_a_batch_job_is_shown_by_its_regions(batch: Any) -> None:
    with closing(Client()) as client:
        seen = look(client, JOB_ID)
    console = Console(width=120, no_color=True)
    with console.capture() as capture:
        console.print(watch_module.render(seen))
    lines = [" ".join(line.split()) for line in capture.get().splitlines()]
    assert "flights 1 2 1 FINISHED 100 % 1 min 1 s - - 12 MB" in lines
    assert "delays 1 2 1 RUNNING 30 % 1.5 s 8.1 s 999 B -" in lines
    assert "store 1 2 - CREATED - - - - -" in lines
    assert "flights 1 finished  delays 1 running 30 %  store created" in watch_module.plain_line(seen)


def test_a_percent_more_is_no_line_more(slotwise: Run, batch: Any) -> None:
    path = f"/jobs/{JOB_ID}"
    now = batch.routes["GET", path](None)[1]
    source, running, sink = now["vertices"]
    later = {**running, "progress": {**running["progress"], "percent": 31}}
    answers = [(200, {**now, "vertices": [source, vertex, sink]}) for vertex in (running, later)]
    batch.on("GET", path, *answers, *answers, (200, {**now, "state": "FINISHED"}))
    outcome = slotwise("watch", JOB_ID, "--interval", "0.1")
    assert [line.split()[0] for line in outcome.out.splitlines()] == ["RUNNING", "FINISHED"]
    assert outcome.out.count("%") == 2


def test_a_failure_that_the_job_has_not_got_over_is_told(slotwise: Run, metrics: Any) -> None:
    ended = metrics.routes["GET", f"/jobs/{JOB_ID}"](None)[1]
    failure = {"timestampInMillis": 1_795_204_805_000, "attempt": 3, "message": "boom\n  at f"}
    between = {**ended, "state": "CREATED", "lastFailure": failure}
    metrics.on(
        "GET", f"/jobs/{JOB_ID}", (200, between), (200, between), (200, {**ended, "state": "FINISHED"})
    )
    first, _ = slotwise("watch", "delays", "--interval", "0.1").out.splitlines()
    assert first.startswith("RESTARTING  flights 1")
    assert "  attempt 3 failed at 2026-" in first and first.endswith(": boom")
