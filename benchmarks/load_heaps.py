"""An autoscaled job whose input comes in heaps of small files, and its neighbour that asks for slots.

    python benchmarks/load_heaps.py [--heaps 5] [--json]

A host with 16 slots. A job reads a file at a time, and works 20 ms of processor time on each row; each 45 s sixty files
come. So one task has all of the work of a batch, and two cores do no more than two tasks' work. `slotwise autoscale`
steers it by examples/autoscaler/quick.yaml without its maximum. After half of the time a neighbour asks for six slots.

`steps up`: changes by the autoscaler that gave a vertex more tasks. `most slots`: those that the job held. `neighbour`:
seconds from its PUT until that is in force, and `its tasks` at the end. `said`: the last sentences of `explain` on the
parts of the job's source.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks._servers import Server, server, wait_for

ROOT = Path(__file__).resolve().parents[1]
SLOTS = 16
FILES, ROWS, EVERY_S = 60, 10, 45.0
NEIGHBOUR = 6
PROGRAM = """
import sys, time
from pyspark.sql import SparkSession, functions as F

spark = SparkSession.builder.getOrCreate()

@F.udf("long")
def work(v):
    end = time.process_time() + 0.02
    while time.process_time() < end:
        pass
    return v

rows = spark.readStream.schema("v LONG").option("maxFilesPerTrigger", 1).json(sys.argv[1])
rows.select(work("v").alias("v")).writeStream.format("noop").start().awaitTermination()
"""
BESIDE = {
    "name": "neighbour",
    "type": "STREAMING",
    "vertices": [
        {"name": "numbers", "source": {"format": "rate", "options": {"rowsPerSecond": "10"}}},
        {"name": "out", "inputs": ["numbers"], "sink": {"format": "noop"}},
    ],
}


def add_heap(directory: Path, number: int) -> None:
    for file in range(FILES):
        hidden = directory / f".{number}-{file}"
        hidden.write_text("".join(f'{{"v": {value}}}\n' for value in range(ROWS)), encoding="ascii")
        os.replace(hidden, directory / f"{number:04d}-{file:03d}.json")


def measure(heaps: int) -> dict[str, Any]:
    with server(slots=SLOTS) as running:
        source = running.directory / "in"
        source.mkdir()
        script = {"name": "heaps", "script": "job.py", "args": [str(source)]}
        job_id = running.submit(script, job=PROGRAM)
        beside = running.submit(BESIDE)
        running.require(beside, {"numbers": (1, 1), "out": (1, 1)}, "at first")
        wait_for("the query", lambda: len(running.get(f"/jobs/{job_id}")["vertices"]) > 1)
        wait_for("the neighbour", lambda: running.get(f"/jobs/{beside}")["state"] == "RUNNING")
        log = running.directory / "autoscale.log"
        steering = [sys.executable, "-m", "app.cli", "autoscale", job_id, "--json", "--server", running.url]
        policy = yaml.safe_load((ROOT / "examples/autoscaler/quick.yaml").read_text(encoding="utf-8"))
        del policy["parallelism"]
        (running.directory / "policy.json").write_text(json.dumps(policy), encoding="utf-8")
        steering += ["--policy", str(running.directory / "policy.json")]
        with open(log, "wb") as output:
            scaler = subprocess.Popen(steering, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
        try:
            return _watch(running, job_id, beside, source, heaps)
        finally:
            scaler.terminate()
            scaler.wait()


def _watch(running: Server, job_id: str, beside: str, source: Path, heaps: int) -> dict[str, Any]:
    begin, most, number, asked_s = time.time(), 0, 0, 0.0
    said: dict[str, str] = {}
    while time.time() < begin + heaps * EVERY_S:
        if time.time() >= begin + number * EVERY_S:
            add_heap(source, number)
            number += 1
        if not asked_s and time.time() >= begin + heaps * EVERY_S / 2:
            running.require(beside, {"numbers": (1, NEIGHBOUR), "out": (1, NEIGHBOUR)}, "more")
            asked_s = time.time()
        explained = running.get(f"/jobs/{job_id}/explanation")
        most = max(most, explained["slots"]["held"])
        # The latest of each kind.
        for word in ("so few files or partitions", "are spread"):
            said.update((word, one) for one in explained["sentences"] if word in one)
        time.sleep(1.0)
    steps = [
        one
        for one in running.get(f"/jobs/{job_id}/rescales/history?limit=200")
        if any(
            (each["postRescaleParallelism"] or 0) > (each["preRescaleParallelism"] or 0) > 0
            for each in one["vertices"].values()
        )
    ]
    ended = [
        one["endTimestampInMillis"] / 1000 - asked_s
        for one in running.get(f"/jobs/{beside}/rescales/history?limit=20")
        if one["reason"] == "more" and one["terminalState"] == "COMPLETED"
    ]
    return {
        "steps up": len(steps),
        "most slots": most,
        "neighbour": min(ended, default=float("inf")),
        "its tasks": {one["name"]: one["parallelism"] for one in running.get(f"/jobs/{beside}")["vertices"]},
        "said": list(said.values()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--heaps", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = measure(given.heaps)
    if given.json:
        print(json.dumps(found))
        return
    table = Table()
    for name in ("steps up", "most slots", "neighbour", "its tasks"):
        table.add_column(name, justify="right")
    table.add_row(
        str(found["steps up"]), str(found["most slots"]), f"{found['neighbour']:.1f}", str(found["its tasks"])
    )
    console = Console()
    console.print(table)
    for sentence in found["said"]:
        console.print(sentence)


if __name__ == "__main__":
    main()
