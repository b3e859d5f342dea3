"""What it costs a job that its driver measures load: batch duration and CPU, with `slotwise.metrics.load` and without.

    python benchmarks/load_cost.py [--turns 6] [--batches 200] [--rows 20000] [--json]

A driver runs a graph of five vertices, with a Python function and state, over batches of one size that follow each
other without a pause. Turns are on, off, off, on, ... Of each, the first batches do not count. What is measured:

* how long batches took (Spark's triggerExecution): the median and the 95th percentile;
* CPU seconds per thousand batches, of the driver, its JVM and their Python workers.

Reports go to a control plane that only listens, so what a server does with them is not in it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from app.cluster.appcds import ArchiveBuilder
from app.cluster.java import usable_java
from tests.environments import CACHE
from tests.integration.driver.harness import Driver, bench

WARM_UP = 60
CODE = """
from pyspark.sql import functions as F

@F.udf("bigint")
def plus_one(value):
    return value + 1

def counted(rows):
    return rows.select(plus_one("value").alias("value"))
"""


def document(rows: int) -> dict[str, Any]:
    options = {"rowsPerSecond": "1000000000", "maxRowsPerTrigger": str(rows)}
    vertices: list[dict[str, Any]] = [
        {"name": "numbers", "source": {"format": "rate", "options": options}},
        {"name": "few", "inputs": ["numbers"], "sql": "SELECT value FROM numbers WHERE value % 10 = 0"},
        {"name": "next", "inputs": ["few"], "python": "code:counted"},
        {
            "name": "counts",
            "inputs": ["next"],
            "sql": "SELECT value % 1000 AS k, count(*) AS n FROM next GROUP BY value % 1000",
            "stateful": True,
            "maxParallelism": 4,
        },
        {"name": "store", "inputs": ["counts"], "sink": {"format": "noop", "outputMode": "update"}},
    ]
    for vertex in vertices:
        vertex["parallelism"] = 2
    return {"name": "load", "type": "STREAMING", "artifacts": ["code.py"], "vertices": vertices}


@dataclass(frozen=True)
class Measured:
    p50_ms: float
    p95_ms: float
    cpu_s_per_1000: float


def turn(measure_load: bool, batches: int, rows: int) -> Measured:
    with tempfile.TemporaryDirectory(prefix="slotwise-load-") as directory, bench(Path(directory)) as rig:
        (rig.artifacts_dir / "code.py").write_text(CODE, encoding="utf-8")
        graph = document(rows)
        names = [vertex["name"] for vertex in graph["vertices"]]
        driver = rig.start(
            graph, dict.fromkeys(names, 2), measure_load=measure_load, master="local[2]", slots=2
        )
        rig.wait_batches(WARM_UP)
        begin, cpu_before = len(rig.control_plane.batches), cpu_s(driver.process.pid)
        rig.wait_batches(begin + batches)
        end, cpu = len(rig.control_plane.batches), cpu_s(driver.process.pid) - cpu_before
        took = [batch["phases_ms"]["triggerExecution"] for batch in rig.control_plane.batches[begin:end]]
        return Measured(
            statistics.median(took), statistics.quantiles(took, n=20)[-1], cpu / (end - begin) * 1000
        )


def cpu_s(pid: int) -> float:
    driver = psutil.Process(pid)
    times = [each.cpu_times() for each in (driver, *driver.children(recursive=True))]
    return sum(each.user + each.system for each in times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--turns", type=int, default=6, help="of each of the two")
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--rows", type=int, default=20_000, help="of a batch")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    archive = ArchiveBuilder(CACHE, usable_java())
    if asyncio.run(archive.ensure()):
        Driver.environment["_SLOTWISE_DRIVER_ARCHIVE"] = str(archive.path)
    found: dict[bool, list[Measured]] = {True: [], False: []}
    for number in range(options.turns):
        for on in (True, False) if number % 2 == 0 else (False, True):
            found[on].append(turn(on, options.batches, options.rows))
            print(f"{'on' if on else 'off'}: {found[on][-1]}", file=sys.stderr)
    if options.json:
        print(
            json.dumps(
                {"on" if on else "off": [asdict(each) for each in found[on]] for on in found}, indent=2
            )
        )
        return
    table = Table("load is", "batch p50 ms", "p95 ms", "CPU s per 1000 batches")
    medians = {on: _medians(found[on]) for on in found}
    for on, values in medians.items():
        table.add_row("measured" if on else "not measured", *(f"{value:,.1f}" for value in values))
    ratios = [on / off for on, off in zip(medians[True], medians[False], strict=True)]
    table.add_row("ratio", *(f"{ratio:.3f}" for ratio in ratios))
    Console().print(table)


def _medians(many: list[Measured]) -> list[float]:
    return [
        statistics.median(values) for values in zip(*(asdict(each).values() for each in many), strict=True)
    ]


if __name__ == "__main__":
    main()
