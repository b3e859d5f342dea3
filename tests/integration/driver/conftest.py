from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.cluster.java import usable_java
from tests.integration.driver.harness import ROOT, Bench, Driver, bench


@pytest.fixture(scope="session")
def class_data_archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive that a server builds once per installation: every driver below starts seconds faster from it."""
    archive = tmp_path_factory.mktemp("archive") / "spark.jsa"
    command = [sys.executable, "-m", "app.driver.appcds", str(archive)]
    environment = {**os.environ, "_SLOTWISE_DRIVER_JAVA": usable_java().command}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return archive


@pytest.fixture
def rig(tmp_path: Path, class_data_archive: Path) -> Iterator[Bench]:
    Driver.environment["_SLOTWISE_DRIVER_ARCHIVE"] = str(class_data_archive)
    with bench(tmp_path) as made:
        yield made
