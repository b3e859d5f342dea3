"""The last word of a driver, in the file that it leaves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.model.protocol import OUTCOME_FILE, Report, outcome_document
from app.worker.job.attempt_record import read_outcome, write_outcome

SAID = Report(7, 1_000, "failed", error="It broke.", recoverable=False, not_followed={"v": "It does not."})


def test_it_is_read_as_it_was_said(tmp_path: Path) -> None:
    write_outcome(tmp_path, SAID)
    assert read_outcome(tmp_path) == SAID


def test_what_a_newer_driver_says_besides_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / OUTCOME_FILE).write_text(json.dumps({**outcome_document(SAID), "mood": "sad"}))
    assert read_outcome(tmp_path) == SAID


@pytest.mark.parametrize(
    "text", ["", "[]", '{"seq": 1}', '{"seq": 1, "at_ms": 1, "type": "failed", "error": 5}']
)
def test_what_is_no_report_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / OUTCOME_FILE).write_text(text)
    assert read_outcome(tmp_path) is None
