"""What a program meets that is run in a driver: what it would meet without, in PySpark and in Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from app.cluster.java import usable_java
from tests.integration.driver.harness import DEADLINE_S, ROOT

pytestmark = pytest.mark.timeout(600)

HEAD = """
import os, sys, time, threading
from pyspark.sql import SparkSession, functions as F
spark = SparkSession.builder.appName("mine").config("spark.sql.shuffle.partitions", 77).getOrCreate()
rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
"""


def run(directory: Path, *args: str, **files: str) -> tuple[dict[str, Any], str]:
    """What became of the program ``job``, and what it printed."""
    artifacts = directory / "artifacts"
    artifacts.mkdir()
    for name, text in files.items():
        (artifacts / f"{name}.py").write_text(dedent(text), encoding="utf-8")
    java = Path(usable_java().command).resolve()
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.driver.plain_host", str(directory), "job.py", *args],
        cwd=ROOT,
        env={**os.environ, "JAVA_HOME": str(java.parents[1]), "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    outcome = directory / "outcome.json"
    assert outcome.exists(), done.stdout + done.stderr
    value: dict[str, Any] = json.loads(outcome.read_text(encoding="utf-8"))
    return value, done.stdout + done.stderr


def test_handles_functions_listeners_and_threads_work_as_without(tmp_path: Path) -> None:
    outcome, printed = run(
        tmp_path,
        "a",
        "b c",
        job=HEAD
        + '''
from pyspark.sql.streaming import StreamingQuery, StreamingQueryListener
import beside, atexit

class Listener(StreamingQueryListener):
    seen = []
    def onQueryStarted(self, event): self.seen.append("started")
    def onQueryProgress(self, event): self.seen.append("progress")
    def onQueryIdle(self, event): pass
    def onQueryTerminated(self, event): self.seen.append("terminated")

class Mine:
    """What only the module of the program knows."""
    factor = 3

@F.udf("bigint")
def tripled(value):
    return beside.times(value, Mine.factor)

def store(frame, batch_id):
    Mine.batches = getattr(Mine, "batches", 0) + frame.count()

def counted(key, frames, state):
    import pandas as pd
    n = (state.get[0] if state.exists else 0) + sum(len(each) for each in frames)
    state.update((n,))
    yield pd.DataFrame({"k": [key[0]], "n": [n]})

def main():
    spark.streams.addListener(Listener())
    assert spark.conf.get("spark.sql.shuffle.partitions") == "3", "the job wins"
    q = rows.select(tripled("value").alias("v")).writeStream.queryName("tripled").format("memory").start()
    kept = rows.select((F.col("value") % 2).alias("k")).groupBy("k").applyInPandasWithState(
        counted, "k long, n long", "n long", "update", "NoTimeout")
    each = kept.writeStream.foreachBatch(store).outputMode("update").start()
    assert isinstance(q, StreamingQuery) and q.isActive and q.name == "tripled" and q.id != q.runId
    assert {x.id for x in spark.streams.active} == {q.id, each.id} and spark.streams.get(q.id).name == "tripled"
    while not (q.lastProgress and getattr(Mine, "batches", 0)):
        assert q.awaitTermination(1) is False and q.exception() is None
    assert q.recentProgress and q.status["message"]
    assert spark.sql("select max(v) % 3 as x from tripled").first().x == 0
    stopper = threading.Timer(1.0, each.stop)
    stopper.start()
    each.awaitTermination()
    assert not each.isActive
    spark.streams.resetTerminated()
    threading.Timer(1.0, q.stop).start()
    assert spark.streams.awaitAnyTermination() is None
    while not {"terminated", "progress"} <= set(Listener.seen):  # Spark's listeners hear of it later.
        time.sleep(0.05)
    print("args", sys.argv[1:], os.path.basename(__file__), __name__)
    threading.Thread(target=lambda: (time.sleep(1), print("late"))).start()
    spark.stop()

if __name__ == "__main__":
    main()
''',
        beside="def times(a, b): return a * b",
    )
    assert outcome["error"] is None and outcome["ended"], outcome["error"] + printed
    assert "args ['a', 'b c'] job.py __main__" in printed and "late" in printed
    assert len(outcome["started"]) == 2 and all(
        each.startswith("job.py, line ") for each in outcome["started"]
    )


@pytest.mark.long
def test_a_query_that_fails_fails_in_the_program_which_may_go_on(tmp_path: Path) -> None:
    outcome, printed = run(
        tmp_path,
        job=HEAD
        + """
from pyspark.errors import StreamingQueryException
q = rows.select(F.raise_error(F.lit("no such luck"))).writeStream.format("noop").start()
try:
    q.awaitTermination()
except StreamingQueryException as error:
    assert "no such luck" in str(error) and q.exception() is not None
    print("met")
    sys.exit(3)
""",
    )
    assert "met" in printed and outcome["error"] == "job.py, line 14: the program ended with sys.exit(3)."


def test_a_session_that_is_stopped_on_the_way_out_does_not_hide_why(tmp_path: Path) -> None:
    outcome, printed = run(
        tmp_path,
        job=HEAD
        + """
with spark:
    q = rows.writeStream.format("noop").start()
    {}["b"]
""",
    )
    assert outcome["error"] == "job.py, line 9: KeyError: 'b'", outcome["error"] + printed


@pytest.mark.parametrize(
    "how",
    [
        "q.awaitTermination()",
        pytest.param("while q.isActive: time.sleep(0.1); q.lastProgress", marks=pytest.mark.long),
    ],
)
def test_a_program_does_not_hear_that_its_job_is_stopped(tmp_path: Path, how: str) -> None:
    (tmp_path / "stop when it has started").touch()
    outcome, printed = run(
        tmp_path,
        job=HEAD
        + f"""
q = rows.writeStream.format("noop").start()
try:
    {how}
finally:
    print("went on")
""",
    )
    assert not outcome["ended"] and "went on" not in printed
