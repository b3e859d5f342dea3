"""How long until the first batch: after a submission, and after kill -9 of the driver.

    python benchmarks/first_batch.py [--runs 10] [--slots 4] [--before CHECKOUT] [--json]

A stateful job with default options and bounds of 1 to 12 (its state partitions) on fewer slots. Each sample has a
server of its own, with a warm driver or without any: a job is submitted when the driver is warm; when it has committed
some batches, and another driver is warm, its driver is killed with the JVM. A batch counts when its commit file is
there.

`--before`: another checkout of the project, with an environment of its own in .venv. Both take turns, so a machine that
is slow for a while is so for both. Seconds, a row per measurement and checkout.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks._servers import Server, server, wait_for

PARTITIONS = 12
BATCHES_BEFORE_KILL = 5
GRAPH: dict[str, Any] = {
    "name": "first-batch",
    "type": "STREAMING",
    "vertices": [
        {"name": "rows", "source": {"format": "rate", "options": {"rowsPerSecond": "100"}}},
        {
            "name": "counts",
            "inputs": ["rows"],
            "sql": "SELECT value % 1000 AS k, count(*) AS n FROM rows GROUP BY value % 1000",
            "parallelism": PARTITIONS,
            "maxParallelism": PARTITIONS,
        },
        {"name": "out", "inputs": ["counts"], "sink": {"format": "noop", "outputMode": "update"}},
    ],
}


def measure(checkout: Path | None, slots: int, *, warm: bool) -> dict[str, float]:
    """Seconds, by what was measured."""
    drivers = "warm" if warm else "cold"
    with server(slots=slots, checkout=checkout, warm_drivers=str(int(warm))) as running:
        _await_warm(running, int(warm))
        began = time.monotonic()
        answer = running.http.post("/jobs", json=GRAPH)
        answer.raise_for_status()
        job_id = str(answer.json()["jobid"])
        wait_for("the first batch", lambda: _newest(running, job_id) >= 0)
        submitted_s = time.monotonic() - began
        wait_for("some batches", lambda: _newest(running, job_id) >= BATCHES_BEFORE_KILL)
        _await_warm(running, 2 * int(warm))
        return {f"submission, {drivers}": submitted_s, f"kill -9, {drivers}": _killed(running, job_id)}


def _killed(running: Server, job_id: str) -> float:
    driver = psutil.Process(int(running.get(f"/jobs/{job_id}")["driverPid"]))
    processes = [driver, *driver.children(recursive=True)]
    newest, began = _newest(running, job_id), time.monotonic()
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    # One may have been committed in that moment.
    newest = max(newest, _newest(running, job_id))
    wait_for("the next batch", lambda: _newest(running, job_id) > newest)
    return time.monotonic() - began


def _newest(running: Server, job_id: str) -> int:
    commits = (running.directory / "jobs" / job_id / "checkpoint").glob("*/commits/*")
    return max((int(file.name) for file in commits if file.name.isdigit()), default=-1)


def _await_warm(running: Server, count: int) -> None:
    wait_for("a warm driver", lambda: len(running.events("warm driver ready")) >= count)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--before", type=Path, help="another checkout of the project, to compare with")
    parser.add_argument("--json", action="store_true", help="every sample, as JSON")
    arguments = parser.parse_args()
    checkouts = {"this": None} if arguments.before is None else {"before": arguments.before, "this": None}
    samples: dict[tuple[str, str], list[float]] = defaultdict(list)
    console = Console(file=sys.stderr if arguments.json else sys.stdout)
    for run in range(arguments.runs):
        for name, checkout in checkouts.items():
            for warm in (False, True):
                for what, seconds in measure(checkout, arguments.slots, warm=warm).items():
                    samples[what, name].append(seconds)
                    console.print(f"run {run + 1}, {name}: {what} {seconds:.1f} s")
    table = Table(title=f"Until the first batch, {arguments.slots} slots: seconds")
    for column in ("from", "checkout", "n", "p50", "min", "max"):
        table.add_column(column, justify="left" if column in ("from", "checkout") else "right")
    for (what, name), own in sorted(samples.items()):
        figures = (statistics.median(own), min(own), max(own))
        table.add_row(what, name, str(len(own)), *(f"{figure:.1f}" for figure in figures))
    console.print(table)
    if arguments.json:
        print(json.dumps([{"from": a, "checkout": b, "seconds": own} for (a, b), own in samples.items()]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
