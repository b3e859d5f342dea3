"""Fixtures of the contract tests: a control plane of its own per test, on SQLite or on both databases."""

from __future__ import annotations

import logging
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import structlog

from tests.contract.world import World, open_world


@pytest.fixture
async def world(sqlite_template: Path, tmp_path: Path) -> AsyncIterator[World]:
    """A control plane on SQLite."""
    shutil.copy(sqlite_template, tmp_path / "slotwise.db")
    async with open_world(f"sqlite:///{tmp_path}/slotwise.db", tmp_path, migrate=False) as opened:
        yield opened


@pytest.fixture
async def any_world(database_url: str, tmp_path: Path) -> AsyncIterator[World]:
    """A control plane on each database in turn."""
    async with open_world(database_url, tmp_path, migrate=False) as opened:
        yield opened


@pytest.fixture(autouse=True, scope="session")
def _quiet_logs() -> Iterator[None]:
    """Warnings and errors only, with short stack traces."""
    structlog.configure(
        processors=[
            structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
    )
    yield
    structlog.reset_defaults()
