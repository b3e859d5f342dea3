"""Fixtures of the contract tests: a control plane of its own per test, on SQLite or on both databases."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract.world import World, open_world


@pytest.fixture
async def world(sqlite_url: str, tmp_path: Path) -> AsyncIterator[World]:
    """A control plane on SQLite."""
    async with open_world(sqlite_url, tmp_path) as opened:
        yield opened


@pytest.fixture
async def any_world(database_url: str, tmp_path: Path) -> AsyncIterator[World]:
    """A control plane on each database in turn."""
    async with open_world(database_url, tmp_path) as opened:
        yield opened
