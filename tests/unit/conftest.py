"""Fixtures of all unit tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True, scope="session")
def _short_traces() -> Iterator[None]:
    """What is logged of a defect is short. The trace that structlog makes by itself shows all variables, and takes so
    long that the event loop of a test stands still for seconds."""
    structlog.configure(
        processors=[
            structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
        ],
    )
    yield
    structlog.reset_defaults()
