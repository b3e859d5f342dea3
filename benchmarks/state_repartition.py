"""Redistribution of state on a real server with a real driver: 8 -> 12 -> 6 partitions, and kill -9 in the middle.

    python benchmarks/state_repartition.py [--keys 1000000] [--no-kills] [--directory DIR]

A job counts and adds up numbers per key into a SQLite table. When every key has state, it is given 12 partitions
instead of 8 by an upper bound, and then 6. After that it goes back and forth between 12 and 6, and at each point of a
redistribution the driver is killed once. The table is compared with the truth after each of them, for every key.

What each column means is in docs/benchmarks.md. The exit status is 1 if a number is wrong, or a point was not reached.
"""

from __future__ import annotations

import argparse
import contextlib
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.acceptance.deployment import Deployment, counting, is_alive, wait_for
from tests.acceptance.repartition_points import POINTS

FILL_S = 40
QUERY = "SELECT k, n, total FROM counts"


def graph(directory: Path, keys: int) -> dict[str, Any]:
    """Numbers, their count and sum per key, a table."""
    document = counting(directory, ours=True)
    document["vertices"] = [vertex for vertex in document["vertices"] if vertex["name"] != "plain"]
    numbers, counts, _ = document["vertices"]
    # What piled up during a redistribution is read in batches of the usual size.
    rate = max(500, keys // FILL_S)
    numbers["source"]["options"] = {"rowsPerSecond": str(rate), "maxRowsPerTrigger": str(2 * rate)}
    counts["inputs"] = ["numbers"]
    counts["sql"] = (
        f"SELECT value % {keys} AS k, count(*) AS n, sum(value) AS total FROM numbers GROUP BY value % {keys}"
    )
    counts["maxParallelism"] = 8
    document["config"]["slotwise.batch.interval"] = "1 s"
    return document


def rows_in(sink: Path, keys: int) -> int:
    """How many numbers are in the table, each of which is where it belongs; -1 if one is not."""
    if not sink.exists():
        return 0
    with contextlib.closing(sqlite3.connect(sink, timeout=60)) as database:
        if database.execute("SELECT 1 FROM sqlite_master WHERE name = 'counts'").fetchone() is None:
            return 0
        found = {k: (n, total) for k, n, total in database.execute(QUERY)}
    rows = sum(n for n, _ in found.values())
    whole, more = divmod(rows, keys)
    for k in range(keys):
        n = whole + (k < more)
        if found.get(k, (0, 0)) != (n, n * k + keys * (n * (n - 1) // 2)):
            return -1
    return rows


class Server(Deployment):
    """Whose job has other keys than those of the acceptance tests."""

    def rows(self) -> int:
        """How many numbers are in the table, right or wrong."""
        if not self.sink.exists():
            return 0
        with contextlib.closing(sqlite3.connect(self.sink, timeout=60)) as database:
            if database.execute("SELECT 1 FROM sqlite_master WHERE name = 'counts'").fetchone() is None:
                return 0
            return int(database.execute("SELECT coalesce(sum(n), 0) FROM counts").fetchone()[0])


class Run:
    """One job, and what is done to it."""

    def __init__(self, deployment: Deployment, keys: int) -> None:
        self._deployment = deployment
        self._keys = keys
        self.wrong = False

    def partitions(self) -> int:
        return int(
            next(v["maxParallelism"] for v in self._deployment.job()["vertices"] if v["name"] == "counts")
        )

    def fill(self) -> None:
        wait_for("every key has state", lambda: self._deployment.rows() >= self._keys, 600)

    def check(self) -> int:
        rows = rows_in(self._deployment.sink, self._keys)
        self.wrong |= rows < self._keys
        return rows

    def change(self, wanted: int, point: str | None = None) -> None:
        """Ask for ``wanted`` partitions, be killed at ``point``, and wait until the job goes on with them."""
        deployment = self._deployment
        before, known = self.partitions(), deployment.history()[0]["number"]
        if point is not None:
            deployment.kills.arm(point)
        pid = deployment.job()["driverPid"]
        body: dict[str, Any] = {
            name: {"parallelism": {"lowerBound": 1, "upperBound": 2}} for name in ("numbers", "store")
        }
        body["counts"] = {"parallelism": {"lowerBound": 1, "upperBound": wanted}}
        if wanted < before:
            body["counts"]["statePartitions"] = wanted
        began = time.monotonic()
        answer = deployment.call("PUT", f"/jobs/{deployment.job_id}/resource-requirements", json=body)
        assert answer.is_success, answer.text
        if point is not None:
            wait_for(f"{point} is reached", lambda: deployment.kills.fired(point))
            wait_for("the driver is dead", lambda: not is_alive(pid) or deployment.job()["driverPid"] != pid)
        wait_for("the state has its partitions", lambda: self._is_done(wanted, known))
        took_s = time.monotonic() - began
        deployment.kills.disarm()
        deployment.await_progress()
        rows = self.check()
        records = [one for one in deployment.history() if one["number"] > known]
        note = next((one["message"] for one in records if "Redistributed" in (one["message"] or "")), "")
        gap = next(
            (one["outputGapInMillis"] for one in records if one["outputGapInMillis"] is not None), None
        )
        rungs = ", ".join(one["rung"] or "-" for one in reversed(records))
        table = f"exact at {rows}" if rows > 0 else "WRONG"
        print(
            f"| {before} -> {wanted} | {point or '-'} | {took_s:.1f} s | {gap} ms | {rungs} | {table} |",
            flush=True,
        )
        print(f"  {note}", file=sys.stderr, flush=True)

    def _is_done(self, wanted: int, known: int) -> bool:
        job = self._deployment.job()
        assert job["state"] not in ("FAILED", "FINISHED", "CANCELED"), self._deployment.why(job["state"])
        newest = self._deployment.history()[0]
        return (
            job["state"] == "RUNNING"
            and self.partitions() == wanted
            and newest["number"] > known
            and newest["terminalState"] == "COMPLETED"
        )


@contextlib.contextmanager
def place(directory: str | None) -> Iterator[Path]:
    if directory is not None:
        Path(directory).mkdir(parents=True, exist_ok=True)
        yield Path(directory)
        return
    with tempfile.TemporaryDirectory() as temporary:
        yield Path(temporary)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--no-kills", action="store_true")
    parser.add_argument("--points", default=",".join(POINTS))
    parser.add_argument("--directory")
    options = parser.parse_args()
    with (
        place(options.directory) as directory,
        contextlib.closing(Server(directory, points_in_drivers=True, warm_drivers=1)) as deployment,
    ):
        deployment.start(with_points=True)
        deployment.submit(graph(directory, options.keys))
        run = Run(deployment, options.keys)
        run.fill()
        print(
            "| partitions | killed at | until it is done | gap | rungs | table |\n|---|---|---|---|---|---|"
        )
        run.change(12)
        run.change(6)
        for index, point in enumerate([] if options.no_kills else options.points.split(",")):
            run.change((12, 6)[index % 2], point)
        deployment.stop()
        print(f"After the stop: exact at {run.check()} rows." if not run.wrong else "WRONG", flush=True)
    return int(run.wrong)


if __name__ == "__main__":
    sys.exit(main())
