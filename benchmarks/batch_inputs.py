"""What a batch job decides from its input: days of other sizes, and keys of which a few have most of the rows.

    python benchmarks/batch_inputs.py [--rows 2000000] [--slots 2] [--volume 1mb]

**Days**: one job graph (source, result by key, aggregate, sink) over five days' files of 1, 2, 10, 0.1 and 0 times the
rows. Per vertex: bytes of its input, what the formula asks for (bytes over bytes per task; of what reads a result the
nearest power of two; within the bounds), what else limited it (a source has no use for more tasks than slots), and what
was decided. Each answer is compared with DuckDB's.

**Skew**: keys by Zipf's law (a = 1.2), one result of 32 subpartitions, an aggregate per key that does some work for
each row. The longest task against the median task of the reading stage, by either rule, medians of some runs. A key
cannot be divided, so no rule gets below its largest one; the last column says how much of all rows that key has.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from math import ceil
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet

sys.path.insert(0, str(Path(__file__).parent.parent))

from app.documents.graph import parse_document
from app.model.option_values import parse_size_bytes
from app.scheduler.batch.flip187 import nearest_power_of_two
from benchmarks.batch import open_spark, source_bytes
from tests.integration.batch.harness import Regions

UPPER = 32
REPETITIONS = 5
DAYS = (("Monday", 1.0), ("Tuesday", 2.0), ("Wednesday", 10.0), ("Thursday", 0.1), ("Friday", 0.0))
WORK = "sum(v) AS total, count(*) AS n, max(sha2(CAST(v AS STRING), 256)) AS h"


def write_rows(path: Path, keys: np.ndarray) -> None:
    values = np.arange(len(keys), dtype=np.int64)
    parquet.write_table(pa.table({"k": keys.astype(np.int64), "v": values}), path, row_group_size=100_000)


def document(data: Path, out: Path, volume: str, rule: str) -> dict[str, Any]:
    return {
        "name": "days",
        "type": "BATCH",
        "config": {
            "slotwise.batch.parallelism-decider": rule,
            "execution.batch.adaptive.auto-parallelism.avg-data-volume-per-task": volume,
        },
        "vertices": [
            {"name": "rows", "source": {"format": "parquet", "path": str(data)}, "parallelism": UPPER},
            {
                "name": "sums",
                "inputs": [{"vertex": "rows", "keys": ["k"], "exchange": "BLOCKING"}],
                "sql": f"SELECT k, {WORK} FROM rows GROUP BY k",
                "parallelism": UPPER,
            },
            {"name": "store", "inputs": ["sums"], "sink": {"format": "parquet", "path": str(out)}},
        ],
    }


def is_exact(data: Path, out: Path) -> bool:
    files = [str(path) for path in out.glob("*.parquet")]
    with duckdb.connect() as database:
        wanted = database.execute(
            "SELECT k, sum(v)::BIGINT, count(*) FROM read_parquet(?) GROUP BY k ORDER BY k", [str(data)]
        ).fetchall()
        if not files:
            return not wanted
        found = database.execute("SELECT k, total, n FROM read_parquet(?) ORDER BY k", [files]).fetchall()
    return bool(found == wanted)


def formula(size: int, volume: int) -> int:
    return min(UPPER, nearest_power_of_two(max(1, ceil(size / volume))))


class Jobs:
    def __init__(self, session: Any, directory: Path, slots: int, volume: str) -> None:
        self.session, self.directory, self.slots, self.volume = session, directory, slots, volume
        self._count = 0

    def run(self, data: Path, rule: str) -> tuple[Regions, float]:
        """One job over ``data``, and how long it took, in seconds. Its answer is checked."""
        self._count += 1
        work = self.directory / f"job-{self._count}"
        graph = parse_document(document(data, work / "out", self.volume, rule))
        job = Regions(self.session, graph, work, job_id=f"input{self._count}", slots=self.slots)
        started = time.perf_counter()
        job.run(source_bytes(graph))
        took_s = time.perf_counter() - started
        if not is_exact(data, work / "out"):
            raise SystemExit(f"{data.name}, {rule}: the answer is NOT DuckDB's")
        shutil.rmtree(work)
        return job, took_s

    def last_stage_tasks_ms(self) -> list[int]:
        """The run times of the tasks of the stage that ran last."""
        context = self.session.sparkContext
        store = context._jsc.sc().statusStore()
        jvm = context._jvm
        quantiles = context._gateway.new_array(jvm.double, 0)
        stages = store.stageList(None, False, False, quantiles, jvm.java.util.ArrayList())
        last = max((stages.apply(index) for index in range(stages.size())), key=lambda one: one.stageId())
        tasks = store.taskList(last.stageId(), last.attemptId(), 1000)
        return [
            int(tasks.apply(index).taskMetrics().get().executorRunTime()) for index in range(tasks.size())
        ]


def days(jobs: Jobs, rows: int, volume: int) -> None:
    rng = np.random.default_rng(1)
    print(
        f"{'day':10} {'rows':>9}  {'vertex':6} {'input':>11} {'formula':>7} {'limit':>9} {'decided':>7} {'seconds':>7}"
    )
    for name, factor in DAYS:
        data = jobs.directory / f"{name}.parquet"
        write_rows(data, rng.integers(0, 50_000, int(rows * factor)))
        job, took_s = jobs.run(data, "flip-187")
        assert job.job.state.batch is not None
        for vertex in ("rows", "sums"):
            decision = job.job.state.batch.decision(job.graph.by_name[vertex].id)
            assert decision is not None and decision.bytes is not None
            # A source is read in as many tasks as its bytes fill, whatever power of two is near.
            wanted = (
                formula(decision.bytes, volume)
                if vertex == "sums"
                else min(UPPER, max(1, ceil(decision.bytes / volume)))
            )
            limit = "-" if decision.limited_by is None else f"{decision.limit} {decision.limited_by}"
            print(
                f"{name:10} {int(rows * factor):9,}  {vertex:6} {decision.bytes:11,} {wanted:7} "
                f"{limit:>9} {decision.parallelism:7} {took_s:7.2f}",
                flush=True,
            )


def skew(jobs: Jobs, rows: int) -> None:
    keys = np.random.default_rng(2).zipf(1.2, rows) % 1_000_000
    data = jobs.directory / "zipf.parquet"
    write_rows(data, keys)
    largest = float(np.bincount(keys).max()) / rows
    print(
        f"\n{'rule':10} {'tasks':>5} {'longest ms':>10} {'median ms':>9} {'longest/median':>14} {'largest key':>11}"
    )
    for rule in ("flip-187", "even-data"):
        jobs.run(data, rule)
        seen = []
        for _ in range(REPETITIONS):
            jobs.run(data, rule)
            seen.append(jobs.last_stage_tasks_ms())
        longest = statistics.median(max(tasks) for tasks in seen)
        middle = statistics.median(statistics.median(tasks) for tasks in seen)
        print(
            f"{rule:10} {len(seen[0]):5} {longest:10.0f} {middle:9.0f} {longest / max(1.0, middle):14.1f} "
            f"{largest:10.1%}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--rows", type=int, default=2_000_000, help="of the first day, and of the skewed input"
    )
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--volume", default="1mb", help="bytes per task")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="slotwise-inputs-") as scratch:
        directory = Path(scratch)
        jobs = Jobs(open_spark(options.slots, directory), directory, options.slots, options.volume)
        days(jobs, options.rows, parse_size_bytes(options.volume))
        skew(jobs, options.rows)


if __name__ == "__main__":
    main()
