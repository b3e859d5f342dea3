"""A program in an environment of its own, which has PySpark and nothing of the server's."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.driver.harness import Bench, Driver, wait_for
from tests.integration.driver.test_program_attempt import job
from tests.integration.driver.test_program_growth import names, of_type

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


def test_a_program_finds_what_its_environment_has_and_nothing_else(rig: Bench, bare_python: Path) -> None:
    text = """
        import importlib.util, sys
        from pyspark.sql import SparkSession, functions as F
        for name in ("httpx", "psutil", "pyarrow", "pandas", "sqlalchemy", "structlog"):
            assert importlib.util.find_spec(name) is None, name
        print("python is", sys.executable)
        spark = SparkSession.builder.getOrCreate()
        rows = spark.readStream.format("rate").load()
        counts = rows.groupBy((F.col("value") % 10).alias("k")).count()
        counts.writeStream.queryName("counts").outputMode("update").format("noop").start().awaitTermination()
        """
    driver = rig.start(job(rig, text, ()))
    (started,) = wait_for("the query", lambda: of_type(rig, "query-started"))
    assert names(started) == ["rate", "aggregate", "counts"]
    rig.wait_batches(1)
    assert f"python is {bare_python}" in driver.log


@pytest.mark.usefixtures("bare_python")
def test_a_driver_of_such_an_environment_warms_up(rig: Bench) -> None:
    driver = Driver(rig.directory / "run", warm=True)
    rig.drivers.append(driver)
    driver.wait_ready()
    assert "the warm-up" not in driver.log
