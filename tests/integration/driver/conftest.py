from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.cluster.appcds import ArchiveBuilder, default_cache_dir
from app.cluster.java import usable_java
from tests.integration.driver.harness import Bench, Driver, bench


@pytest.fixture(scope="session")
def class_data_archive() -> Path:
    """The archive that a server builds once per installation, and where: every driver below starts seconds faster from
    it, and so do those of servers that other tests start."""
    builder = ArchiveBuilder(default_cache_dir(), usable_java())
    assert asyncio.run(builder.ensure()), builder.path.with_suffix(".log").read_text(encoding="utf-8")
    return builder.path


@pytest.fixture
def rig(tmp_path: Path, class_data_archive: Path) -> Iterator[Bench]:
    Driver.environment["_SLOTWISE_DRIVER_ARCHIVE"] = str(class_data_archive)
    with bench(tmp_path) as made:
        yield made
