"""Are the answers right, whoever decides and whatever the bounds? Six TPC-H queries on a real server.

    python benchmarks/batch_answers.py [--scale 1] [--queries q3,q9] [--deciders flip-187] [--upper 1,4,16]
        [--slots 1,4] [--directory DIR]

Each query is submitted as the job graph of examples/tpch, with a durable result at every join, by REST to `slotwise
serve` with its defaults, and runs in a driver process as every job does. Its answer is compared with DuckDB's on the
same files. Seconds are from the submission until the job is finished, the start of a (warm) driver with it. The exit
status is 1 if an answer is wrong or a job failed.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks._servers import Server, server, wait_for
from tests.tpch import answers, graphs, tables

DECIDERS = "flip-187,even-data"
ENDED = ("FINISHED", "FAILED", "CANCELED")


class Table:
    """Runs the jobs one after another, and prints a row for each."""

    def __init__(self, data: Path, directory: Path) -> None:
        self._data = data
        self._directory = directory
        self._expected = {}
        self.wrong = 0
        self.rows = 0

    def run(self, running: Server, query: str, decider: str, upper: int, slots: int) -> None:
        if query not in self._expected:
            self._expected[query] = answers.expected(query, self._data)
        self.rows += 1
        out = self._directory / f"out-{self.rows}"
        document = graphs.document(
            query, self._data, out, upper=upper, config={"slotwise.batch.parallelism-decider": decider}
        )
        started_s = time.perf_counter()
        response = running.http.post("/jobs", json=document)
        response.raise_for_status()
        job_id = response.json()["jobid"]
        status = wait_for(
            "the end of the job",
            lambda: (now := running.get(f"/jobs/{job_id}/status")["status"]) in ENDED and now,
            600,
        )
        seconds = time.perf_counter() - started_s
        job = running.get(f"/jobs/{job_id}")
        exact = status == "FINISHED" and answers.found(out) == self._expected[query]
        self.wrong += not exact
        decided = " ".join(
            f"{vertex['name']}:{vertex['parallelism']}"
            for vertex in job["vertices"]
            if vertex["name"] not in ("store", *graphs.TABLES)
        )
        print(
            f"{query:4} {decider:9} {upper:>5} {slots:>5} {seconds:7.1f}  "
            f"{'exact' if exact else f'WRONG ({status})':6} {decided}",
            flush=True,
        )
        if status != "FINISHED":
            print(running.get(f"/jobs/{job_id}/exceptions"), file=sys.stderr)
        shutil.rmtree(out, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--scale", default="1", help="TPC-H scale factor")
    parser.add_argument("--queries", default=",".join(graphs.GRAPHS))
    parser.add_argument("--deciders", default=DECIDERS)
    parser.add_argument("--upper", default="1,4,16", help="upper bounds; the lower bound is 1")
    parser.add_argument("--slots", default="1,4")
    parser.add_argument("--directory", type=Path, help="where to keep the data between runs")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="slotwise-answers-") as scratch:
        data = tables(options.scale, options.directory or Path(scratch))
        table = Table(data, Path(scratch))
        print(f"TPC-H at scale {options.scale}")
        print(f"{'':4} {'decider':9} {'upper':>5} {'slots':>5} {'seconds':>7}  answer parallelism decided")
        for slots in map(int, options.slots.split(",")):
            # No warm drivers: each would run a query of its own first, beside the one that is measured.
            with server(slots=slots, driver_memory_mb="2048", warm_drivers="0") as running:
                for query in options.queries.split(","):
                    for decider in options.deciders.split(","):
                        for upper in map(int, options.upper.split(",")):
                            table.run(running, query, decider, upper, slots)
    print(f"{table.rows - table.wrong} of {table.rows} answers are exact.")
    return 1 if table.wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
