from __future__ import annotations

import pytest


@pytest.fixture(scope="session", autouse=True)
def _quick_starts(class_data_archive: object) -> None:
    """Before any server is there: each would build it, and not end it if it was stopped before."""
