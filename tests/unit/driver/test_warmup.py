"""A warm-up that fails leaves nothing that the driver's first job would meet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.driver import warmup


def test_the_session_of_a_warm_up_that_failed_is_closed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fails(_session: Any) -> None:
        raise RuntimeError("no luck")

    session, closed = object(), list[Any]()
    monkeypatch.setattr(warmup, "open_session", lambda **_given: session)
    monkeypatch.setattr(warmup, "close_session", closed.append)
    monkeypatch.setattr(warmup, "self_test", fails)
    assert warmup.warm_up(tmp_path, str(tmp_path), "local[1]") is None
    assert closed == [session]
