"""What a rescale on a Spark standalone cluster costs the output: the longest pause between two micro-batches.

    python benchmarks/cluster_rescale.py [--repetitions 3] [--steps 2,5,3] [--interval-ms 0] [--json]

A master and three workers with two cores each on this host, a server, one job with state and an exact sink. Its bounds
are changed by PUT, step by step; executors come and go meanwhile. Per step:

* `to all executors`: from the PUT until the master shows as many cores of the job as were asked for;
* `to first batch`: from the PUT until the first micro-batch with the new parallelism is committed;
* `longest gap`: the longest pause between two committed batches from the PUT until 15 batches after the rescale, also
  as a multiple of the steady interval (the median of the batches before the PUT).

``--interval-ms`` is the job's `slotwise.batch.interval`. With 0 a batch follows the other at once, and every process of
the job competes with what starts; with an interval, as most jobs have one, there is time between batches.

At the end the run id of the query must be that of the beginning, and the sink exact. All processes share this host, so
the start of executors slows the batches down that run meanwhile; on a cluster it would not.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sqlite3
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from app.cluster.java import usable_java
from app.cluster.standalone.daemons import DevCluster
from benchmarks._servers import Server, server, wait_for

KEYS = 97
WORKERS, CORES = 3, 2
CALM_BATCHES = 15
# Looking takes the time of what is looked at. It is the precision of all figures but the gaps.
LOOK_S = 0.25
VERTICES = ("numbers", "counts", "store")


@dataclass(frozen=True)
class Sample:
    source: int
    target: int
    steady_s: float
    to_executors_s: float
    to_first_batch_s: float
    longest_gap_s: float

    @property
    def multiple(self) -> float:
        return self.longest_gap_s / self.steady_s


def document(sink: Path, parallelism: int, interval_ms: int = 0) -> dict[str, Any]:
    count = (
        f"SELECT value % {KEYS} AS k, count(*) AS n, sum(value) AS total FROM numbers GROUP BY value % {KEYS}"
    )
    table = {"table": "counts", "mode": "upsert", "keys": "k"}
    vertices: list[dict[str, Any]] = [
        {"name": "numbers", "source": {"format": "rate", "options": {"rowsPerSecond": "500"}}},
        {"name": "counts", "inputs": ["numbers"], "sql": count, "maxParallelism": 12},
        {
            "name": "store",
            "inputs": ["counts"],
            "sink": {"format": "sqlite", "path": str(sink), "outputMode": "update", "options": table},
        },
    ]
    return {
        "name": "cluster-rescale",
        "type": "STREAMING",
        "config": {
            "slot.idle.timeout": "100 ms",
            "jobmanager.adaptive-scheduler.submission.resource-stabilization-timeout": "0 s",
            "slotwise.batch.interval": f"{interval_ms} ms",
        },
        "vertices": [{**vertex, "parallelism": parallelism} for vertex in vertices],
    }


class Job:
    """The job on its server, and what its checkpoint says of its batches."""

    def __init__(self, running: Server, sink: Path, parallelism: int, interval_ms: int = 0) -> None:
        self._server = running
        self._sink = sink
        answer = running.http.post("/jobs", json=document(sink, parallelism, interval_ms))
        answer.raise_for_status()
        self.id = str(answer.json()["jobid"])

    def commits(self) -> list[float]:
        """When each batch was committed, in seconds; those that Spark has not removed yet."""
        found: list[float] = []
        for entry in (self._server.directory / "jobs" / self.id / "checkpoint").glob("*/commits/*"):
            with contextlib.suppress(OSError):
                if entry.name.isdigit():
                    found.append(entry.stat().st_mtime)
        return sorted(found)

    def await_batches(self, count: int) -> list[float]:
        """The commit times of the next ``count`` batches, with the last one before them."""
        known = self.commits()
        last = known[-1] if known else 0.0
        seen = wait_for(
            "batches", lambda: (m := [t for t in self.commits() if t >= last])[count:] and m, 300, LOOK_S
        )
        return list(seen[: count + 1])

    def run_id(self) -> str:
        return str(self._server.get(f"/jobs/{self.id}")["queries"][0]["runId"])

    def runs_at(self, parallelism: int) -> bool:
        vertices = self._server.get(f"/jobs/{self.id}")["vertices"]
        records = self._server.get(f"/jobs/{self.id}/rescales/history?limit=1")
        return all(one["parallelism"] == parallelism for one in vertices) and all(
            one["terminalState"] == "COMPLETED" for one in records
        )

    def require(self, upper: int) -> None:
        self._server.require(self.id, dict.fromkeys(VERTICES, (1, upper)), f"to {upper}")

    def is_exact(self) -> bool:
        with contextlib.closing(sqlite3.connect(self._sink, timeout=30)) as database:
            found = {k: (n, total) for k, n, total in database.execute("SELECT k, n, total FROM counts")}
        rows = sum(n for n, _ in found.values())
        ranges = {key: range(key, rows, KEYS) for key in range(min(KEYS, rows))}
        return found == {key: (len(numbers), sum(numbers)) for key, numbers in ranges.items()}


def measure(job: Job, cluster: DevCluster, source: int, target: int) -> Sample:
    calm = job.await_batches(CALM_BATCHES)
    steady_s = statistics.median(after - before for before, after in pairwise(calm))
    began = time.time()
    before = calm[-1]
    job.require(target)

    def holds() -> bool:
        return sum(one.cores for one in cluster.roster().applications) == target

    rescaled = executors = 0.0
    while not (rescaled and executors):
        if not rescaled and job.runs_at(target):
            rescaled = time.time()
        if not executors and holds():
            executors = time.time()
        if time.time() - began > 300:
            raise TimeoutError(f"{source} -> {target} is not done within 300 s")
        time.sleep(LOOK_S)
    job.await_batches(CALM_BATCHES)
    times = [one for one in job.commits() if one >= before]
    gaps = [after - earlier for earlier, after in pairwise(times)]
    return Sample(source, target, steady_s, executors - began, rescaled - began, max(gaps))


def run(steps: list[int], repetitions: int, interval_ms: int) -> tuple[list[Sample], bool, bool]:
    """The samples, whether the query was never stopped, and whether the sink is exact."""
    samples = []
    with tempfile.TemporaryDirectory(prefix="slotwise-benchmark-") as folder:
        cluster = DevCluster(Path(folder) / "cluster", java=usable_java())
        try:
            cluster.up()
            for _ in range(WORKERS):
                cluster.add(cores=CORES, memory_mb=CORES * 512)
            places = {"cluster_master": cluster.master_url, "cluster_webui": cluster.webui_url}
            with server(slots=None, cluster_kind="spark-standalone", warm_drivers="0", **places) as running:
                job = Job(running, Path(folder) / "counts.db", steps[0], interval_ms)
                wait_for("the first batches", lambda: job.runs_at(steps[0]) and len(job.commits()) > 5)
                job.await_batches(CALM_BATCHES)
                first_run, at = job.run_id(), steps[0]
                for target in [*steps[1:], *(steps * (repetitions - 1))]:
                    if target != at:
                        samples.append(measure(job, cluster, at, target))
                        at = target
                never_stopped = job.run_id() == first_run
                running.http.post(f"/jobs/{job.id}/stop", json={}).raise_for_status()
                wait_for(
                    "the end of the job", lambda: running.get(f"/jobs/{job.id}")["state"] == "FINISHED", 60
                )
                return samples, never_stopped, job.is_exact()
        finally:
            cluster.down()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--steps", default="2,5,3", help="parallelism, one after another")
    parser.add_argument("--interval-ms", type=int, default=0, help="slotwise.batch.interval of the job")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    steps = [int(each) for each in options.steps.split(",")]
    samples, never_stopped, exact = run(steps, options.repetitions, options.interval_ms)
    if options.json:
        rows = [{**asdict(each), "multiple": each.multiple} for each in samples]
        print(json.dumps({"samples": rows, "never_stopped": never_stopped, "exact": exact}, indent=2))
    else:
        show(samples)
        print("the query was never stopped" if never_stopped else "THE QUERY WAS STOPPED")
        print("the sink is exact" if exact else "THE SINK IS WRONG")
    return 0 if never_stopped and exact else 1


def show(samples: list[Sample]) -> None:
    table = Table(title="Rescales on a standalone cluster, medians")
    heads = ("step", "n", "steady s", "to all executors s", "to first batch s", "longest gap s", "x steady")
    for name in heads:
        table.add_column(name, justify="right")
    for step in dict.fromkeys((each.source, each.target) for each in samples):
        own = [each for each in samples if (each.source, each.target) == step]
        columns = ("steady_s", "to_executors_s", "to_first_batch_s", "longest_gap_s", "multiple")
        medians = [statistics.median(getattr(each, name) for each in own) for name in columns]
        table.add_row(f"{step[0]} -> {step[1]}", str(len(own)), *(f"{value:.2f}" for value in medians))
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
