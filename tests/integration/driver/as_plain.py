"""Runs a program by plain Python and, beside it, as a driver attempt of which no query is known; compares what they
print and write."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from app.cluster.java import usable_java
from tests.environments import quick_java
from tests.integration.driver.harness import DEADLINE_S, Bench, Driver
from tests.integration.driver.test_program_begin import unknown
from tests.outputs import rows_of

MARK = "> "
"""Begins what a program prints by `say`: in the log of a driver are lines of others, too."""
HEAD = """
import json, os, pathlib, shutil, sys, threading, time
from pyspark.sql import SparkSession, functions as F

def say(*what):
    print(">", *what, flush=True)

def put(name, *values):
    written = "".join(json.dumps({"k": value % 3, "v": value}) + chr(10) for value in values)
    pathlib.Path(".put").write_text(written)
    os.replace(".put", f"in/{name}.json")

def rows(frame):
    return sorted(map(tuple, frame.collect()))

os.makedirs("in", exist_ok=True)
spark = SparkSession.builder.appName("mine").config("spark.sql.shuffle.partitions", 2).getOrCreate()
lines = spark.readStream.schema("k long, v long").json("in")
"""
"""Programs work in the directory in which they are started; what they call cp... is not compared."""

Outcome = tuple[list[str], dict[str, Any]]


def said(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith(MARK)]


def written(directory: Path) -> dict[str, Any]:
    """The sorted rows of each folder of files, and the text of each other file at the top."""
    found: dict[str, Any] = {}
    for part in sorted(directory.rglob("part-*")):
        name = part.parent.relative_to(directory)
        if not name.parts[0].startswith("cp") and str(name) not in found:
            found[str(name)] = sorted(json.dumps(row, default=str) for row in rows_of(part.parent))
    for file in directory.glob("*.txt"):
        found[file.name] = file.read_text(encoding="utf-8")
    return found


def by_plain_python(program: Path, directory: Path, runs: int) -> Outcome:
    output = ""
    directory.mkdir()
    java = Path(usable_java().command).resolve().parents[1]
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))
    }
    for _ in range(runs):
        done = subprocess.run(
            [sys.executable, program, "one", "two words"],
            cwd=directory,
            env={**inherited, "JAVA_HOME": str(java), "SPARK_LOCAL_IP": "127.0.0.1"}
            | {"PYSPARK_PYTHON": sys.executable, "SPARK_SUBMIT_OPTS": quick_java()},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=2 * DEADLINE_S,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        output += done.stdout
    return said(output), written(directory)


def by_a_driver(rig: Bench, document: dict[str, Any], runs: int) -> Outcome:
    directory, output = rig.directory / "home", ""
    directory.mkdir()
    for run in range(runs):
        # As a cluster starts it: in the directory.
        driver = Driver(rig.directory / "run", working_dir=directory)
        rig.drivers.append(driver)
        driver.wait_ready()
        driver.assign(rig.spec(document, working_dir=str(directory), master="local[2]", slots=2))
        assert driver.exit_status(2 * DEADLINE_S) == 0, f"{rig.control_plane.of_type('failed')}\n{driver.log}"
        assert len(rig.control_plane.of_type("finished")) == run + 1, driver.log
        output += driver.log
    return said(output), written(directory)


def compare(rig: Bench, text: str, runs: int = 1, *, alike: bool = False) -> Outcome:
    """Run the program ``text`` in both ways, ``runs`` times in one directory; what they agree on. ``alike``: every run
    is to be like the first one, so plain Python has one only."""
    document = unknown(rig, text) | {"args": ["one", "two words"]}
    program = rig.artifacts_dir / "job.py"
    with ThreadPoolExecutor() as beside:
        plain = beside.submit(by_plain_python, program, rig.directory / "plain", 1 if alike else runs)
        ours = by_a_driver(rig, document, runs)
    log = rig.drivers[-1].log
    printed, files = plain.result()
    assert ours[0] == (printed * runs if alike else printed), log
    assert ours[1] == files, log
    assert ours[0], "it says something"
    return ours
