"""transformWithState, for which Spark starts a Python worker of its own beside the driver."""

from __future__ import annotations

import sqlite3
import zipfile

import pytest

from tests.integration.driver.harness import Bench, wait_for

pytestmark = pytest.mark.timeout(600)

CODE = """
import pandas as pd
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

from adding import added


class Counting(StatefulProcessor):
    def init(self, handle):
        self.count = handle.getValueState("count", "n long")

    def handleInputRows(self, key, rows, timers):
        before = self.count.get()[0] if self.count.exists() else 0
        now = added(before, sum(len(frame) for frame in rows))
        self.count.update((now,))
        yield pd.DataFrame({"k": [key[0]], "n": [now]})

    def close(self):
        pass


def counts(numbers):
    keyed = numbers.withColumn("k", F.expr("value % 5")).groupBy("k")
    return keyed.transformWithStateInPandas(Counting(), "k long, n long", "update", "none")
"""


def test_a_processor_in_the_artifacts_keeps_its_state(rig: Bench) -> None:
    (rig.artifacts_dir / "counting.py").write_text(CODE)
    with zipfile.ZipFile(rig.artifacts_dir / "library.zip", "w") as archive:
        archive.writestr("adding.py", "def added(a, b):\n    return a + b\n")
    table = rig.directory / "counts.db"
    options = {"table": "counts", "mode": "upsert", "keys": "k"}
    document = {
        "name": "processor",
        "type": "STREAMING",
        "artifacts": ["counting.py", "library.zip"],
        "vertices": [
            {
                "name": "numbers",
                "source": {
                    "format": "rate",
                    "options": {"rowsPerSecond": "1e6", "maxRowsPerTrigger": "1000", "rowCount": "3000"},
                },
            },
            {
                "name": "counts",
                "inputs": ["numbers"],
                "python": "counting:counts",
                "stateful": True,
                "maxParallelism": 2,
            },
            {
                "name": "store",
                "inputs": ["counts"],
                "sink": {"format": "sqlite", "path": str(table), "outputMode": "update", "options": options},
            },
        ],
    }
    driver = rig.start(document)
    wait_for("the end", lambda: rig.control_plane.of_type("finished") or rig.control_plane.of_type("failed"))
    assert not rig.control_plane.of_type("failed"), rig.control_plane.of_type("failed")[0]["error"]
    assert driver.exit_status() == 0, driver.log
    connection = sqlite3.connect(table)
    try:
        assert dict(connection.execute("SELECT k, n FROM counts")) == dict.fromkeys(range(5), 600)
    finally:
        connection.close()
