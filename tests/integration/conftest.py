from __future__ import annotations

import os

import pytest

from tests.environments import quick_java


@pytest.fixture(scope="session", autouse=True)
def _quick_java(class_data_archive: object) -> None:
    """Of the JVM that PySpark starts in the process of the tests, and in those of plain runs."""
    os.environ.setdefault("SPARK_SUBMIT_OPTS", quick_java())
