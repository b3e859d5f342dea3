"""A program that goes to another directory before its first session finds Spark there, as by plain Python."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from tests.integration.driver.harness import ROOT, Bench, Driver, wait_for
from tests.integration.driver.test_batch_program import job

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]

TEXT = dedent(
    """
    import json, os, sys

    os.chdir(sys.argv[1])

    from pyspark import SparkContext
    from pyspark.serializers import CPickleSerializer
    from pyspark.sql import SparkSession

    sc = SparkContext(appName="mine", batchSize=2, serializer=CPickleSerializer())
    spark = SparkSession(sc)
    spark.range(3).write.parquet("rows")
    spark.range(3).write.saveAsTable("kept")
    lines = spark.readStream.schema("value string").text("in")
    query = lines.writeStream.trigger(availableNow=True).start("out", checkpointLocation=f"of {sc.appName}")
    query.awaitTermination()
    found = {
        "name": [sc.appName, sc.getConf().get("spark.app.name")],
        "worker": sc.range(1).map(lambda _: os.getcwd()).first(),
        "serializer": repr(sc.serializer),
    }
    with open("found.json", "w") as file:
        json.dump(found, file)
    """
)


def project(directory: Path) -> Path:
    (directory / "in").mkdir(parents=True)
    (directory / "in" / "one.txt").write_text("a\nb\n")
    return directory


def left_in(directory: Path) -> tuple[list[str], dict[str, object]]:
    """What is there now, and what the program has told."""
    told = (directory / "found.json").read_text("utf-8").replace(str(directory), "<here>")
    return sorted(each.name for each in directory.iterdir()), json.loads(told)


def by_plain_python(rig: Bench) -> tuple[list[str], dict[str, object]]:
    directory, script = project(rig.directory / "plain"), rig.directory / "moves.py"
    script.write_text(TEXT, encoding="utf-8")
    with open(rig.directory / "plain.log", "wb") as log:
        subprocess.run(
            [sys.executable, script, directory],
            cwd=rig.directory,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            check=True,
        )
    return left_in(directory)


@pytest.mark.parametrize("warm", [pytest.param(False, id="cold"), pytest.param(True, id="warm")])
def test_spark_is_where_the_program_went(rig: Bench, warm: bool) -> None:
    directory, working_dir = project(rig.directory / "a project"), rig.directory / "home"
    working_dir.mkdir()
    driver = Driver(rig.directory / "run", warm=warm, working_dir=ROOT if warm else working_dir)
    rig.drivers.append(driver)
    driver.wait_ready()
    document = job(rig, TEXT, args=[str(directory)])
    driver.assign(rig.spec(document, master="local[2]", slots=2, working_dir=str(working_dir)))
    wait_for("the end", lambda: driver.process.poll() is not None)
    assert rig.control_plane.of_type("finished"), driver.log
    assert left_in(directory) == by_plain_python(rig)
    assert not [each for each in working_dir.rglob("*") if each.is_file()]
    shutil.rmtree(directory)
