"""A job in an environment of its own, which has PySpark and nothing of the server's."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.model.ids import vertex_id
from tests.integration.driver.harness import Bench, Driver
from tests.integration.driver.test_program_attempt import conf, job

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def bare_python(tmp_path: Path) -> Iterator[Path]:
    """Of a new environment with the PySpark of the server."""
    home = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    (libraries,) = home.glob("lib/python*/site-packages")
    for library in ("pyspark", "py4j"):
        (libraries / library).symlink_to(Path(importlib.metadata.distribution(library).locate_file(library)))
    Driver.python = str(home / "bin" / "python")
    yield home / "bin" / "python"
    Driver.python = None


LOOK = """
import importlib.util, sys
from pyspark.sql import SparkSession, functions as F
for name in ("httpx", "psutil", "pyarrow", "pandas", "sqlalchemy", "structlog"):
    assert importlib.util.find_spec(name) is None, name
print("python is", sys.executable)

def counted(rows):
    return rows.groupBy((F.col("value") % 10).alias("k")).count()
"""
START = """
rows = SparkSession.builder.getOrCreate().readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
counted(rows).writeStream.queryName("counts").outputMode("update").format("noop").start().awaitTermination()
"""
SOURCE = {"format": "rate-micro-batch", "options": {"rowsPerBatch": 10}}
VERTICES = (
    {"name": "rate-micro-batch", "source": SOURCE},
    {"name": "aggregate", "inputs": ["rate-micro-batch"], "python": "look:counted"},
    {"name": "counts", "inputs": ["aggregate"], "sink": {"format": "noop", "outputMode": "update"}},
)


def counting(rig: Bench, kind: str) -> dict[str, Any]:
    """A job whose own code looks around first."""
    if kind == "program":
        return job(rig, LOOK + START, ())
    (rig.artifacts_dir / "look.py").write_text(LOOK, encoding="utf-8")
    return {"name": "job", "type": "STREAMING", "artifacts": ["look.py"], "vertices": list(VERTICES)}


@pytest.mark.parametrize(
    ("kind", "warm"),
    [
        pytest.param("program", False, id="program", marks=pytest.mark.long),
        pytest.param("document", True, id="document, warm"),
    ],
)
def test_a_job_finds_what_its_environment_has_and_nothing_else(
    rig: Bench, bare_python: Path, kind: str, warm: bool
) -> None:
    driver = Driver(rig.directory / "run", warm=warm)
    rig.drivers.append(driver)
    driver.wait_ready()
    assert "the warm-up" not in driver.log
    driver.assign(rig.spec(counting(rig, kind), **conf()))
    ran = {vertex["vertex_id"] for vertex in rig.wait_batches(1)[0]["vertices"]}
    assert ran == {vertex_id("job", str(vertex["name"])) for vertex in VERTICES}
    assert f"python is {bare_python}" in driver.log
