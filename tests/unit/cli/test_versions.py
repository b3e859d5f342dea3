"""`slotwise submit --replace`: what is sent, and what is told of what became of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import JOB_ID

Run = Callable[..., Any]

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    script = tmp_path / "job.py"
    script.write_text("print('hello')\n", encoding="utf-8")
    return script


def versions(outcome: str, why: str | None = None) -> tuple[int, Any]:
    one = {"version": 2, "outcome": outcome, "since": 1, "requestedBy": None, "requested": 1, "why": why}
    return 200, {"current": 1, "versions": [one]}


def accepts(fake: Any) -> None:
    fake.on("PUT", f"/jobs/{JOB_ID}/graph", (202, {"version": 2, "versionsUrl": f"/jobs/{JOB_ID}/versions"}))


def test_a_new_version_is_put(slotwise: Run, fake: Any, job: Path) -> None:
    accepts(fake)
    outcome = slotwise("submit", "--replace", JOB_ID, str(job), "--bounds", "counts=:2")
    assert outcome.status == 0, outcome.err
    assert outcome.out == f"Version 2 of {JOB_ID} is being started.\n"
    assert len(fake.sent("PUT", f"/jobs/{JOB_ID}/graph")) == 1
    assert fake.sent("POST", "/jobs") == []


def test_it_is_waited_for(slotwise: Run, fake: Any, job: Path) -> None:
    accepts(fake)
    fake.on("GET", f"/jobs/{JOB_ID}/versions", versions("TRIAL"), versions("IN_FORCE"))
    fake.on("GET", f"/jobs/{JOB_ID}", (200, {"state": "RUNNING"}))
    outcome = slotwise("submit", "--replace", JOB_ID, "--wait", str(job))
    assert (outcome.status, outcome.out) == (0, f"Version 2 of {JOB_ID} is in force.\n"), outcome.err
    assert "Version 2 is on trial" in outcome.err


def test_one_that_was_taken_back_is_an_error(slotwise: Run, fake: Any, job: Path) -> None:
    accepts(fake)
    fake.on("GET", f"/jobs/{JOB_ID}/versions", versions("TAKEN_BACK", "KeyError: 'k'"))
    outcome = slotwise("submit", "--replace", JOB_ID, "--wait", str(job))
    assert outcome.status == 1
    assert "Version 2 was taken back, and the version before is in force: KeyError: 'k'" in outcome.err


def test_a_module_that_is_missing_in_the_new_version_is_named(slotwise: Run, fake: Any, job: Path) -> None:
    accepts(fake)
    why = "job.py, line 1: there is no module helpers: it is neither among the artifacts of the job nor installed."
    fake.on("GET", f"/jobs/{JOB_ID}/versions", versions("TAKEN_BACK", why))
    helpers = job.parent / "helpers.py"
    helpers.write_text("", encoding="utf-8")
    outcome = slotwise("submit", "--replace", JOB_ID, "--wait", str(job))
    assert outcome.status == 1
    assert outcome.err.splitlines()[-1].endswith(f"add --file {helpers}"), outcome.err


def test_the_environment_of_a_program_is_built_after_the_answer(slotwise: Run, fake: Any, job: Path) -> None:
    accepts(fake)
    fake.on("GET", f"/jobs/{JOB_ID}/versions", versions("STARTING"), versions("IN_FORCE"))
    fake.on("GET", f"/jobs/{JOB_ID}", (200, {"state": "RUNNING"}))
    outcome = slotwise("submit", "--replace", JOB_ID, "--wait", str(job), "--requirements", "numpy==2.1.0")
    assert outcome.status == 0, outcome.err
    assert "Version 2 is being started; if its environment is new, it is built first ..." in outcome.err
    assert "it is built now" not in outcome.err


def test_one_that_the_server_has_forgotten_is_an_error(slotwise: Run, fake: Any, job: Path) -> None:
    accepts(fake)
    fake.on("GET", f"/jobs/{JOB_ID}/versions", (200, {"current": 60, "versions": []}))
    outcome = slotwise("submit", "--replace", JOB_ID, "--wait", str(job))
    assert (outcome.status, outcome.out) == (1, "")
    assert "does not know any more what became of version 2" in outcome.err
