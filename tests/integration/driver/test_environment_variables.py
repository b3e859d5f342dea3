"""The environment variables of a job graph. test_program_session compares those of programs with plain Python."""

from __future__ import annotations

import json
from textwrap import dedent

import pytest

from tests.integration.driver.harness import Bench, Driver

pytestmark = pytest.mark.timeout(600)

FUNCTIONS = """
import os
from pyspark.sql import functions as F

def told(numbers):
    of_task = F.udf(lambda _: os.environ.get("TOPIC"))
    of_java = F.expr("java_method('java.lang.System', 'getenv', 'TOPIC')")
    of_driver = F.lit(os.environ["TOPIC"])
    return numbers.select(of_driver.alias("driver"), of_task("value").alias("task"), of_java.alias("java"))
"""


@pytest.mark.parametrize("warm", [pytest.param(False, marks=pytest.mark.long), True])
def test_the_functions_of_a_graph_find_them_in_the_driver_and_in_tasks(rig: Bench, warm: bool) -> None:
    (rig.artifacts_dir / "functions.py").write_text(dedent(FUNCTIONS), encoding="utf-8")
    out = rig.directory / "out"
    document = {
        "name": "told",
        "type": "STREAMING",
        "artifacts": ["functions.py"],
        "environmentVariables": {"TOPIC": "words"},
        "vertices": [
            {
                "name": "numbers",
                "source": {"format": "rate", "options": {"rowsPerSecond": 100, "rowCount": 100}},
            },
            {"name": "told", "inputs": ["numbers"], "python": "functions:told"},
            {"name": "store", "inputs": ["told"], "sink": {"format": "json", "path": str(out)}},
        ],
    }
    driver = Driver(rig.directory / "run", warm=warm)
    rig.drivers.append(driver)
    driver.wait_ready()
    driver.assign(rig.spec(document))
    assert driver.exit_status() == 0, driver.log
    rows = [json.loads(line) for file in out.glob("part-*") for line in file.read_text().splitlines()]
    assert len(rows) == 100
    assert all(row == {"driver": "words", "task": "words", "java": "words"} for row in rows)
