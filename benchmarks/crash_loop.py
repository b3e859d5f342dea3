"""What a server that is killed again and again does to its host: time to the first answer, processes, memory, load.

    python benchmarks/crash_loop.py [--singles 5] [--kills 15] [--every-s 3] [--checkout DIR ...] [--rounds 1]

A server with its defaults (one warm driver) and one small streaming job. First it is killed with -9 and started again
``--singles`` times, each time when its driver is warm. Then ``--kills`` times in a row, one every ``--every-s`` seconds
or later if it has not answered before that. An answer is a 200 of /health/ready. Processes and memory (sum of PSS) are
those of the data directory: the server, its drivers, their JVMs and Python workers.

``--checkout``: other states of the project, each with its own .venv, measured in turns with this one.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks._servers import wait_for

ROOT = Path(__file__).resolve().parents[1]
OK = 200
JOB = {
    "name": "crash-loop",
    "type": "STREAMING",
    "config": {"slotwise.batch.interval": "1 s"},
    "vertices": [
        {"name": "numbers", "source": {"format": "rate", "options": {"rowsPerSecond": "100"}}},
        {"name": "out", "inputs": ["numbers"], "sink": {"format": "noop"}},
    ],
}


@dataclass
class Figures:
    """Of one checkout. ``processes`` and ``memory_mb``: before, after the last kill, when it is warm again."""

    single_s: list[float] = field(default_factory=list)
    loop_s: list[float] = field(default_factory=list)
    processes: list[int] = field(default_factory=list)
    memory_mb: list[float] = field(default_factory=list)
    load: list[float] = field(default_factory=list)


class Restarted:
    """A server of a checkout on one port, which is killed and started again."""

    def __init__(self, checkout: Path, directory: Path, cache_dir: Path) -> None:
        self.directory, self._log_file = directory, directory / "server.log"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        self._checkout = checkout
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("SLOTWISE_")},
            "SLOTWISE_LOG_FORMAT": "json",
            "SLOTWISE_CACHE_DIR": str(cache_dir),
        }
        self.start()

    def start(self) -> None:
        command = [str(self._checkout / ".venv/bin/python"), "-m", "app.cli", "serve"]
        options = ["--data-dir", str(self.directory), "--port", str(self._port), "--slots", "2"]
        with open(self._log_file, "ab") as output:
            self.process = subprocess.Popen(
                [*command, *options],
                cwd=self._checkout,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        self._seen = self._log_file.stat().st_size
        wait_for("an answer", lambda: self.call("GET", "/health/ready")[0] == OK)

    def kill_and_start(self) -> float:
        """The seconds from the kill to the first answer."""
        began = time.monotonic()
        self.process.kill()
        self.process.wait()
        self.start()
        return time.monotonic() - began

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """The status and the answer; 0 if there is none."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if text else None
        except (OSError, http.client.HTTPException):
            return 0, None
        finally:
            connection.close()

    def await_warm(self) -> None:
        """Wait until this server has a warm driver, and nothing is being built."""

        def is_there() -> bool:
            said = self._log_file.read_bytes()
            building, built = (
                said.count(each) for each in (b"building the class data", b"data archive ready")
            )
            return b"warm driver ready" in said[self._seen :] and built >= min(1, building)

        wait_for("a warm driver", is_there, interval_s=0.2)

    def pids(self) -> list[int]:
        mark = f"_SLOTWISE_DRIVER_LOCK={self.directory}/".encode()
        found = [self.process.pid]
        for process in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                if mark in (process / "environ").read_bytes():
                    found.append(int(process.name))
        return found

    def close(self) -> None:
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


def pss_mb(pids: list[int]) -> float:
    total_kb = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            total_kb += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total_kb / 1024


@contextlib.contextmanager
def running(checkout: Path, cache_dir: Path) -> Iterator[Restarted]:
    directory = Path(tempfile.mkdtemp(prefix="slotwise-crash-loop-"))
    server = Restarted(checkout, directory, cache_dir)
    try:
        status, answer = server.call("POST", "/jobs", JOB)
        if answer is None or "jobid" not in answer:
            raise RuntimeError(f"{status}: {answer}")
        path = f"/jobs/{answer['jobid']}"
        wait_for("the job runs", lambda: (server.call("GET", path)[1] or {}).get("state") == "RUNNING")
        server.await_warm()
        yield server
    finally:
        server.close()
        shutil.rmtree(directory, ignore_errors=True)


def measure(checkout: Path, cache_dir: Path, options: argparse.Namespace, figures: Figures) -> None:
    with running(checkout, cache_dir) as server:
        for _ in range(options.singles):
            figures.single_s.append(server.kill_and_start())
            server.await_warm()
        note(server, figures)
        for _ in range(options.kills):
            due = time.monotonic() + options.every_s
            figures.loop_s.append(server.kill_and_start())
            figures.load.append(os.getloadavg()[0])
            time.sleep(max(0.0, due - time.monotonic()))
        note(server, figures)
        server.await_warm()
        note(server, figures)


def note(server: Restarted, figures: Figures) -> None:
    pids = server.pids()
    figures.processes.append(len(pids))
    figures.memory_mb.append(pss_mb(pids))
    figures.load.append(os.getloadavg()[0])


def report(name: str, figures: Figures) -> None:
    """A row of the table for each round, the times over all of them."""
    single_s, loop_s = statistics.median(figures.single_s), statistics.median(figures.loop_s)
    processes, memory_mb = figures.processes[-3:], [round(each) for each in figures.memory_mb[-3:]]
    print(
        f"| {name} | {single_s:.2f} | {loop_s:.2f} | {max(figures.loop_s):.2f} | {loop_s / single_s:.2f} | "
        f"{max(figures.loop_s) / single_s:.2f} | {' / '.join(map(str, processes))} | "
        f"{' / '.join(map(str, memory_mb))} | {max(figures.load):.1f} |",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--singles", type=int, default=5, help="restarts with a warm driver before the loop")
    parser.add_argument("--kills", type=int, default=15, help="kills in a row")
    parser.add_argument("--every-s", type=float, default=3.0, help="seconds from one to the next")
    parser.add_argument("--checkout", type=Path, action="append", default=[], help="another state to measure")
    parser.add_argument("--rounds", type=int, default=1, help="turns")
    options = parser.parse_args()
    checkouts = [each.resolve() for each in (*options.checkout, ROOT)]
    found = {checkout: Figures() for checkout in checkouts}
    with tempfile.TemporaryDirectory(prefix="slotwise-crash-loop-cache-") as cache_dir:
        print(
            "| checkout | single, p50 s | in a row, p50 s | longest s | p50 / single | longest / single | "
            "processes: before / after the last kill / warm again | memory, MB | highest load |"
        )
        print("|---|---|---|---|---|---|---|---|---|")
        for _ in range(options.rounds):
            for checkout in checkouts:
                measure(checkout, Path(cache_dir), options, found[checkout])
                report(checkout.name, found[checkout])
    return 0


if __name__ == "__main__":
    sys.exit(main())
