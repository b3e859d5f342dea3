"""A server full of jobs that wait for slots, so that no driver starts, and the requests of `control_plane.py`."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from benchmarks import _http_load as http_load
from benchmarks._servers import Server

SLOTS = 4
_WAITING = {"parallelism": 2 * SLOTS, "lowerBound": 2 * SLOTS}
_SQL = "SELECT value % 10 AS k, count(*) AS n FROM flights GROUP BY value % 10"
GRAPH: dict[str, Any] = {
    "name": "waiting",
    "type": "STREAMING",
    # For ever: a job that waits for slots would otherwise fail after five minutes.
    "config": {"jobmanager.adaptive-scheduler.submission.resource-wait-timeout": "-1"},
    "vertices": [
        {"name": "flights", "source": {"format": "rate", "options": {"rowsPerSecond": "100"}}, **_WAITING},
        {"name": "delays", "inputs": ["flights"], "sql": _SQL, "maxParallelism": 128, **_WAITING},
        {
            "name": "store",
            "inputs": ["delays"],
            "sink": {"format": "noop", "outputMode": "update"},
            **_WAITING,
        },
    ],
}
NAMES = [vertex["name"] for vertex in GRAPH["vertices"]]


class Program:
    """`slotwise serve` in a directory that outlives it. ``command`` is how Python is started, for a profiler.
    ``checkout`` has the code of the server."""

    def __init__(self, directory: Path, command: list[str], checkout: Path) -> None:
        self.directory = directory
        self._command = command
        self._checkout = checkout
        self.server: Server

    def start(self) -> float:
        """Start it; how long it took until it was ready, in seconds."""
        began = time.perf_counter()
        log = self.directory / "server.log"
        settings = {"LOG_FORMAT": "json", "LOG_LEVEL": "warning", "WARM_DRIVERS": "0", "APPCDS": "false"}
        arguments = ["--data-dir", str(self.directory), "--port", "0", "--slots", str(SLOTS)]
        (self.directory / "address").unlink(missing_ok=True)

        def launch() -> subprocess.Popen[bytes]:
            with open(log, "ab") as output:
                return subprocess.Popen(
                    [*self._command, "-m", "app.cli", "serve", *arguments],
                    stdout=output,
                    stderr=output,
                    cwd=self._checkout,
                    env={**os.environ, **{f"SLOTWISE_{name}": value for name, value in settings.items()}},
                )

        self.server = Server(self.directory, launch, log)
        return time.perf_counter() - began

    def stop(self) -> float:
        """End it by SIGTERM; how long it took, in seconds."""
        began = time.perf_counter()
        self.server.http.close()
        process = self.server.process
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        return time.perf_counter() - began

    @property
    def port(self) -> int:
        return int(self.server.url.rpartition(":")[2])

    def cpu_s(self) -> float:
        times = psutil.Process(self.server.process.pid).cpu_times()
        return times.user + times.system

    def rss_bytes(self) -> int:
        return int(psutil.Process(self.server.process.pid).memory_info().rss)

    def load(self, requests: list[list[str]], **plan: Any) -> dict[str, Any]:
        """Run the load generator; its figures, and the CPU time that the server took."""
        before = self.cpu_s()
        figures = http_load.run({"port": self.port, "requests": requests, **plan})
        return {**figures, "server_cpu_s": self.cpu_s() - before}

    def submit(self, count: int, clients: int = 32) -> float:
        """Submit jobs; how long it took, in seconds."""
        request = f"POST /jobs {json.dumps(GRAPH)}"
        share = [count // clients + (number < count % clients) for number in range(clients)]
        requests = [[request] * one for one in share if one]
        figures = self.load(requests, clients=len(requests), once=True)
        if figures["all_statuses"] != {"202": count}:
            raise RuntimeError(f"not every job was accepted: {figures['all_statuses']}")
        return float(figures["seconds"])

    def job_ids(self) -> list[str]:
        return [job["id"] for job in self.server.get("/jobs")["jobs"]]

    def versions(self, job_ids: list[str]) -> int:
        """The sum of the versions of the jobs' requirements."""
        answers = (self.server.http.get(f"/jobs/{job_id}/resource-requirements") for job_id in job_ids)
        return sum(int(answer.headers["etag"].strip('"')) for answer in answers)


@contextlib.contextmanager
def program(command: list[str] | None = None, checkout: Path | None = None) -> Iterator[Program]:
    """``checkout``: another one of the project, with an environment of its own in .venv."""
    own = [sys.executable if checkout is None else str(checkout / ".venv/bin/python")]
    directory = Path(tempfile.mkdtemp(prefix="slotwise-benchmark-"))
    running = Program(directory, command or own, checkout or Path(__file__).resolve().parents[1])
    try:
        running.start()
        yield running
    finally:
        if hasattr(running, "server") and running.server.process.poll() is None:
            running.stop()
        shutil.rmtree(directory, ignore_errors=True)


def put(job_id: str, upper: int) -> str:
    """A PUT whose lower bounds no server of this benchmark can meet."""
    bounds = {"parallelism": {"lowerBound": 2 * SLOTS, "upperBound": upper}}
    return f"PUT /jobs/{job_id}/resource-requirements {json.dumps({name: bounds for name in NAMES})}"


def puts(job_ids: list[str], clients: int) -> list[list[str]]:
    """A cycle of PUTs for each client; no two that follow each other, of whatever client, are likely the same."""
    uppers = range(2 * SLOTS, 128)
    return [
        [
            put(job_ids[client % len(job_ids)], uppers[(one * 37 + client * 11) % len(uppers)])
            for one in range(120)
        ]
        for client in range(clients)
    ]


def gets(job_ids: list[str], path: str) -> list[list[str]]:
    return [[f"GET /jobs/{job_id}/{path}"] for job_id in job_ids]
