"""`submit --wait`, and how a job is shown that fails again and again before it has processed anything."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import JOB_ID, details

Run = Callable[..., Any]

GRAPH = """
name: delays
type: STREAMING
vertices:
  - {name: flights, source: {format: csv, path: in/, schema: a INT}}
  - {name: store, inputs: [flights], sink: {format: parquet, path: "/abs/out", outputMode: append}}
"""
FAILURE = {"timestampInMillis": 1_795_204_805_000, "attempt": 1, "message": "ZeroDivisionError: x\n  at f"}


def seen(state: str, *, attempt: int = 1, failed: bool = False, under_way: bool = False) -> Any:
    told = {"attempt": attempt, "underWay": under_way, "lastFailure": FAILURE if failed else None}
    return 200, {**details(state), **told, "schedulerState": "X"}


@pytest.fixture
def graph(fake: Any, tmp_path: Path) -> str:
    (tmp_path / "g.yaml").write_text(GRAPH)
    fake.on("POST", "/jobs", (202, {"jobid": JOB_ID, "jobUrl": ""}))
    fake.on(
        "GET",
        f"/jobs/{JOB_ID}/explanation",
        (200, {"sentences": ["It begins in 1.5 s."]}),
        (200, {"sentences": ["It begins in 700 ms.", "Attempt 1 failed 1.0 s ago: x"]}),
        (200, {"sentences": ["Attempt 1 failed 2.0 s ago: x"]}),
    )
    return str(tmp_path / "g.yaml")


def test_waiting_ends_with_what_is_processed_and_not_with_running(
    slotwise: Run, fake: Any, graph: str
) -> None:
    fake.on(
        "GET",
        f"/jobs/{JOB_ID}",
        seen("CREATED"),
        seen("RUNNING"),
        seen("CREATED", attempt=2, failed=True),
        seen("RUNNING", attempt=2, failed=True),
        seen("RUNNING", attempt=2, under_way=True),
    )
    outcome = slotwise("submit", "--wait", graph)
    assert (outcome.status, outcome.out) == (0, f"{JOB_ID} is RUNNING.\n")
    assert outcome.err.splitlines() == [
        "CREATED ...",
        "  It begins in 1.5 s.",
        "RUNNING ...",
        "  Attempt 1 failed 1.0 s ago: x",
        "RESTARTING, attempt 2 ...",
        "RUNNING, attempt 2 ...",
    ]


def test_a_job_that_is_finished_at_once_is_no_problem(slotwise: Run, fake: Any, graph: str) -> None:
    fake.on("GET", f"/jobs/{JOB_ID}", seen("FINISHED"))
    assert slotwise("submit", "--wait", graph).status == 0


@pytest.mark.parametrize("as_json", [False, True])
def test_after_the_timeout_the_last_failure_is_told(
    slotwise: Run, fake: Any, graph: str, monkeypatch: pytest.MonkeyPatch, as_json: bool
) -> None:
    monkeypatch.setattr("app.cli.events.POLL_S", 0.5)
    # The last look is behind the timeout, and a busy host may take longer for it than a client would wait.
    monkeypatch.setattr("app.cli.client._LAST_TRY_S", 10.0)
    fake.on("GET", f"/jobs/{JOB_ID}", seen("CREATED", attempt=2, failed=True))
    outcome = slotwise("submit", "--wait", "--timeout", "1", graph, *(["--json"] if as_json else []))
    assert outcome.status == 4
    first, second, third = outcome.err.splitlines()[-3:]
    assert first == f"The job {JOB_ID} is RESTARTING and has processed nothing within 1 s. It goes on."
    assert second.startswith("attempt 1 failed at 2026-")
    assert second.endswith(": ZeroDivisionError: x")
    assert third == f"See: slotwise explain {JOB_ID}"
    if as_json:
        assert (outcome.json["state"], outcome.json["jobid"]) == ("CREATED", JOB_ID)


@pytest.mark.parametrize("options", [("--timeout", "5"), ("--wait", "--timeout", "inf")])
def test_a_timeout_that_means_nothing_is_refused(
    slotwise: Run, fake: Any, graph: str, options: tuple[str, ...]
) -> None:
    outcome = slotwise("submit", *options, graph)
    assert (outcome.status, fake.requests) == (2, [])


def test_on_a_terminal_it_is_shown_live_without_what_could_command_it(
    slotwise: Run, fake: Any, graph: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.on("GET", f"/jobs/{JOB_ID}/explanation", (200, {"sentences": ["\x1b]0;owned\x07"]}))
    fake.on("GET", f"/jobs/{JOB_ID}", seen("CREATED"), seen("RUNNING", under_way=True))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    outcome = slotwise("submit", "--wait", graph)
    assert outcome.status == 0
    assert "CREATED" in outcome.err
    assert "]0;owned" in outcome.err
    assert "\x1b]0" not in outcome.err


def test_a_job_between_attempts_is_restarting_to_people(slotwise: Run, fake: Any) -> None:
    listed = fake.routes["GET", "/jobs/overview"](None)[1]["jobs"]
    listed[0] |= {"state": "CREATED", "lastFailure": FAILURE}
    fake.on("GET", "/jobs/overview", (200, {"jobs": listed}))
    fake.on("GET", f"/jobs/{JOB_ID}", seen("CREATED", attempt=2, failed=True))
    lines = slotwise("jobs").out.splitlines()
    assert lines[2].split()[1:3] == ["delays", "RESTARTING"]
    assert lines[3].startswith("delays: attempt 1 failed at ")
    assert lines[3].endswith(": ZeroDivisionError: x")
    shown = slotwise("show", "delays").out
    assert "delays  RESTARTING (X)" in shown
    assert ": ZeroDivisionError: x\n" in shown
    # Clients of Flink's API see Flink's status.
    assert slotwise("jobs", "--json").json[1]["state"] == "CREATED"
