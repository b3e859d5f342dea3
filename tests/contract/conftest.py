"""Fixtures of the contract tests: a control plane of its own per test, on SQLite or on both databases."""

from __future__ import annotations

import contextlib
import logging
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
import structlog
from playwright.async_api import Browser

from tests.browser import browser
from tests.contract.world import World, open_world


@contextlib.asynccontextmanager
async def opened_on(sqlite_template: Path, directory: Path) -> AsyncIterator[World]:
    """A control plane on a copy of the database ``sqlite_template``."""
    shutil.copy(sqlite_template, directory / "slotwise.db")
    async with open_world(f"sqlite:///{directory}/slotwise.db", directory, migrate=False) as opened:
        yield opened


@pytest.fixture
async def world(sqlite_template: Path, tmp_path: Path) -> AsyncIterator[World]:
    """A control plane on SQLite."""
    async with opened_on(sqlite_template, tmp_path) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def shown(sqlite_template: Path, tmp_path: Path) -> AsyncIterator[World]:
    """A control plane on SQLite, in the event loop of `started`."""
    async with opened_on(sqlite_template, tmp_path) as opened:
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def started(chromium: str) -> AsyncIterator[Browser]:
    """A browser for all tests of a module: each has a profile of its own (`page_of`). They need its event loop:
    ``pytestmark = pytest.mark.asyncio(loop_scope="module")``."""
    async with browser(chromium) as running:
        yield running


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
