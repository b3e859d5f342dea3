"""Three minutes of chaos, with a seed of its own in each run; `tests.acceptance.chaos` says what happens."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from tests.acceptance.chaos import run


@pytest.mark.timeout(900)
def test_three_minutes_of_chaos(tmp_path: Path) -> None:
    seed = secrets.randbelow(1_000_000)
    told: list[str] = []
    result = run(tmp_path, seconds=180, seed=seed, tell=told.append)
    story = "\n".join([f"seed {seed}", *told, str(result)])
    assert not result.faults, story
    assert result.answered and result.looks and sum(result.happened.values()) > 5, story
