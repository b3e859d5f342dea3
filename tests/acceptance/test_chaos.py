"""Chaos, with a seed of its own in each run; `tests.acceptance.chaos` says what happens."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from tests.acceptance.chaos import run


@pytest.mark.timeout(900)
@pytest.mark.long
@pytest.mark.parametrize(("seconds", "jobs"), [(30, 2), (180, 4)])
def test_chaos(tmp_path: Path, seconds: int, jobs: int) -> None:
    seed = secrets.randbelow(1_000_000)
    told: list[str] = []
    result = run(tmp_path, seconds=seconds, seed=seed, jobs=jobs, tell=told.append)
    story = "\n".join([f"seed {seed}", *told, str(result)])
    assert not result.faults, story
    assert result.answered and result.looks and sum(result.happened.values()) >= seconds / 30, story
