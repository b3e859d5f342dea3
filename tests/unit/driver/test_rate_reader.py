"""The planner process of the source `rate`: it ends in silence when Spark hangs up, and tells every other error."""

from __future__ import annotations

import pytest

from app.driver.sources import rate


@pytest.mark.parametrize(
    ("error", "statuses"), [(EOFError, [0]), (ConnectionResetError, [0]), (ValueError, [])]
)
def test_it_ends_at_once_only_when_spark_has_hung_up(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception], statuses: list[int]
) -> None:
    ended: list[int] = []
    monkeypatch.setattr(rate.os, "_exit", ended.append)
    reader = rate.RateReader({rate.PARTS_FILE: "parts", rate.START_MS: "0"})
    # As PySpark does it (python_streaming_source_runner.py).
    with pytest.raises(error):
        try:
            raise error
        finally:
            reader.stop()
    assert ended == statuses
