"""A document in an environment of its own, which has the libraries of the server and not its package."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.driver.harness import Bench, Driver, wait_for

pytestmark = pytest.mark.timeout(300)

ROWS = {"rowCount": "2000", "rowsPerSecond": "1000000"}
DOCUMENT = {
    "name": "rows",
    "type": "STREAMING",
    "vertices": [
        {"name": "rows", "source": {"format": "rate", "options": ROWS}},
        {"name": "out", "inputs": ["rows"], "sink": {"format": "noop"}},
    ],
}


@pytest.fixture
def other_python(tmp_path: Path) -> Iterator[None]:
    home = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    (libraries,) = home.glob("lib/python*/site-packages")
    for each in Path(str(importlib.metadata.distribution("pyspark").locate_file("."))).iterdir():
        # How the package of the server is found is in a file of paths.
        if each.suffix != ".pth" and "slotwise" not in each.name:
            (libraries / each.name).symlink_to(each)
    Driver.python = str(home / "bin" / "python")
    yield
    Driver.python = None


@pytest.mark.usefixtures("other_python")
@pytest.mark.parametrize("warm", [False, pytest.param(True, marks=pytest.mark.long)])
def test_workers_find_the_sources_of_the_server(rig: Bench, tmp_path: Path, warm: bool) -> None:
    # Python would find the package in the working directory.
    where = tmp_path / "elsewhere"
    where.mkdir()
    driver = Driver(rig.directory / "run", warm=warm, working_dir=where)
    rig.drivers.append(driver)
    driver.wait_ready()
    driver.assign(rig.spec(DOCUMENT, working_dir=str(where)))
    told = rig.control_plane.of_type
    wait_for("the end", lambda: told("failed") or told("finished"))
    assert not told("failed") and "the warm-up failed" not in driver.log
