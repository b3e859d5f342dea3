"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.mark.parametrize(
    "command",
    [
        ("serve", "--data-dir", ""),
        ("serve", "--config", ""),
        ("doctor", "--data-dir", " "),
        ("demo", "--data-dir", ""),
        ("cluster", "up", "--directory", ""),
        ("jobs", "--token-file", ""),
    ],
    ids=" ".join,
)
def test_an_empty_path_is_not_the_current_directory(
    slotwise: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = slotwise(*command)
    assert (outcome.status, list(tmp_path.iterdir())) == (2, [])
    assert "should not be empty" in outcome.err
