"""What goes to the log of a server."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterator

import pytest
import structlog

from app.logs import configure_logs


@pytest.fixture
def _as_before() -> Iterator[None]:
    root, config = logging.getLogger(), structlog.get_config()
    handlers, level = root.handlers, root.level
    yield
    structlog.configure(**config)
    root.handlers = handlers
    root.setLevel(level)


@pytest.mark.usefixtures("_as_before")
@pytest.mark.parametrize("log_format", ["console", "json"])
def test_a_stack_trace_shows_no_values(monkeypatch: pytest.MonkeyPatch, log_format: str) -> None:
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    configure_logs(log_format, "INFO")

    def connect(password: str) -> None:
        raise RuntimeError(f"no answer to {len(password)} characters")

    try:
        connect("hunter" + str(2))
    except RuntimeError as error:
        structlog.get_logger().error("a defect", exc_info=error)
        logging.getLogger("elsewhere").error("another", exc_info=error)
    assert written.getvalue().count("no answer to 7 characters") == 2
    assert "hunter2" not in written.getvalue()
