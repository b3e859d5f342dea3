"""The end of the JVM, as PySpark's server of accumulators sees it: it is expected, and nothing else is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from app.driver.session import _expect_the_end


@pytest.mark.parametrize(
    ("error", "is_told"),
    [(EOFError, False), (ConnectionResetError, False), (BrokenPipeError, False), (ValueError, True)],
)
def test_only_what_is_not_the_end_of_the_jvm_is_told(error: type[Exception], is_told: bool) -> None:
    told: list[Any] = []
    server = SimpleNamespace(handle_error=lambda *request: told.append(request))
    _expect_the_end(SimpleNamespace(_accumulatorServer=server))  # type: ignore[arg-type]
    try:
        raise error
    except error:
        server.handle_error("request", "address")
    assert told == [("request", "address")] * is_told
