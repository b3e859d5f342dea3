"""Several real servers on one PostgreSQL database and one data directory, and a real job that they share."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psycopg

from app.cli.demo.server import drivers_of
from tests.acceptance.deployment import CHECKED_SERVER, OK, ROOT, counting, stored_counts, wait_for
from tests.environments import CACHE, QUICK_JAVA

PATIENCE_S = 60.0


@dataclass
class Server:
    """One process. ``log_file`` has an object per line."""

    number: int
    process: subprocess.Popen[bytes]
    log_file: Path
    url: str = ""

    def events(self, name: str) -> list[dict[str, Any]]:
        found = []
        for line in self.log_file.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(ValueError):
                entry = json.loads(line)
                if isinstance(entry, dict) and entry.get("event") == name:
                    found.append(entry)
        return found

    def log_end(self, lines: int = 30) -> str:
        return "\n".join(self.log_file.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """It does nothing more until `go_on`, and does not know it."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)


@dataclass
class Servers:
    """``dsn`` is of an empty PostgreSQL database."""

    directory: Path
    dsn: str
    lease_seconds: float = 15.0
    slots: int = 4
    warm_drivers: int = 0
    settings: dict[str, str] = field(default_factory=dict)
    max_parallelism: int = 4
    all: list[Server] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.data_dir = self.directory / "data"
        self.http = httpx.Client(timeout=60.0, trust_env=False)
        self._numbers = itertools.count(1)

    def start(self) -> Server:
        number = next(self._numbers)
        log_file = self.directory / f"server-{number}.log"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SLOTWISE_")}
        with open(log_file, "wb") as output:
            process = subprocess.Popen(
                [
                    sys.executable,
                    str(CHECKED_SERVER),
                    "serve",
                    "--port",
                    "0",
                    "--data-dir",
                    str(self.data_dir),
                ],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={
                    **kept,
                    "SLOTWISE_DATABASE_URL": self.dsn.replace("postgresql://", "postgresql+psycopg://"),
                    **(self.settings or {"SLOTWISE_SLOTS": str(self.slots)}),
                    "SLOTWISE_LEASE_SECONDS": str(self.lease_seconds),
                    "SLOTWISE_WARM_DRIVERS": str(self.warm_drivers),
                    "SLOTWISE_DRIVER_MEMORY_MB": "512",
                    "SLOTWISE_DRIVER_JAVA_OPTIONS": QUICK_JAVA,
                    "SLOTWISE_CACHE_DIR": str(CACHE),
                    "SLOTWISE_LOG_FORMAT": "json",
                },
            )
        server = Server(number, process, log_file)
        self.all.append(server)

        def serving() -> list[dict[str, Any]]:
            assert process.poll() is None, f"the server ended\n{server.log_end()}"
            return server.events("serving")

        server.url = wait_for("the server serves", serving, PATIENCE_S)[0]["url"]
        return server

    def close(self) -> None:
        for server in self.all:
            if server.process.poll() is None:
                server.process.kill()
                server.process.wait()
        for pid in drivers_of(self.data_dir):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.http.close()

    # -- REST

    def call(self, server: Server, method: str, path: str, **more: Any) -> httpx.Response:
        return self.http.request(method, server.url + path, **more)

    def get(self, server: Server, path: str) -> Any:
        response = self.call(server, "GET", path)
        assert response.status_code == OK, (path, response.status_code, response.text)
        return response.json()

    def arbiter(self) -> Server:
        """The server that decides about slots, as one that is alive says."""
        alive = next(one for one in self.all if one.process.poll() is None)

        def found() -> Server | None:
            pids = [one["pid"] for one in self.members(alive) if one["isArbiter"] and one["state"] == "ALIVE"]
            return next((one for one in self.all if [one.process.pid] == pids), None)

        arbiter: Server = wait_for("somebody decides about slots", found, PATIENCE_S)
        return arbiter

    def submit(self, server: Server, name: str = "counting", **more: Any) -> Job:
        """A job that has written its first rows."""
        directory = self.directory / f"{name}-{len(self.all)}"
        directory.mkdir()
        document = {**counting(directory, **more), "name": name}
        for vertex in document["vertices"]:
            if vertex["name"] == "counts":
                vertex["maxParallelism"] = self.max_parallelism
        response = self.call(server, "POST", "/jobs", json=document)
        assert response.is_success, response.text
        job = Job(self, response.json()["jobid"], directory / "counts.db")
        wait_for("the job runs", lambda: job.show(server)["state"] == "RUNNING" and job.rows() > 0)
        return job

    def members(self, server: Server) -> list[dict[str, Any]]:
        return list(self.get(server, "/cluster/members")["members"])

    def jobs_of(self, server: Server) -> int:
        """How many jobs ``server`` says it owns."""
        return int(next(one["jobs"] for one in self.members(server) if one["isSelf"]))

    def query(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            return connection.execute(statement, values).fetchall()  # type: ignore[arg-type]


@dataclass
class Job:
    servers: Servers
    job_id: str
    sink: Path

    def show(self, server: Server) -> Any:
        return self.servers.get(server, f"/jobs/{self.job_id}")

    def lease(self) -> tuple[str, int]:
        """The owner and the epoch."""
        ((owner, epoch),) = self.servers.query(
            "SELECT coalesce(owner, ''), epoch FROM leases WHERE job_id = %s", self.job_id
        )
        return owner, epoch

    def is_of(self, server: Server) -> bool:
        return f"-{server.process.pid}-" in self.lease()[0]

    def put(self, server: Server, upper: int, *, key: str | None = None) -> httpx.Response:
        """Let `numbers` and `counts` be as parallel as ``upper``."""
        body = {
            name: {"parallelism": {"lowerBound": 1, "upperBound": upper if name != "plain" else 2}}
            for name in ("numbers", "plain", "counts", "store")
        }
        headers = {} if key is None else {"Idempotency-Key": key}
        path = f"/jobs/{self.job_id}/resource-requirements"
        return self.servers.call(server, "PUT", path, json=body, headers=headers)

    def put_until_answered(self, server: Server, upper: int) -> float:
        """Seconds until a PUT at ``server`` is answered 200; each 503 is followed by another try."""
        began = time.monotonic()
        while True:
            with contextlib.suppress(httpx.TransportError):
                answer = self.put(server, upper)
                if answer.status_code == OK:
                    return time.monotonic() - began
                assert answer.status_code == 503, answer.text
            assert time.monotonic() < began + PATIENCE_S, "no PUT is answered"
            time.sleep(0.02)

    def await_parallelism(self, server: Server, upper: int) -> None:
        def there() -> bool:
            job = self.show(server)
            return job["state"] == "RUNNING" and all(
                vertex["parallelism"] == upper
                for vertex in job["vertices"]
                if vertex["name"] in ("numbers", "counts")
            )

        wait_for(f"the job runs with {upper}", there, PATIENCE_S)

    def rows(self) -> int:
        return sum(count for count, _ in stored_counts(self.sink).values())

    def commits(self) -> dict[int, float]:
        """When each micro-batch was committed, by its number; seconds."""
        checkpoint = self.servers.data_dir / "jobs" / self.job_id / "checkpoint"
        return {
            int(entry.name): entry.stat().st_mtime
            for entry in checkpoint.glob("*/commits/*")
            if entry.name.isdigit()
        }

    def longest_gap(self, since_s: float, until_s: float) -> float:
        """The longest time between two commits in a row, among those after ``since_s`` and before ``until_s``."""
        times = sorted(at for at in self.commits().values() if since_s <= at <= until_s)
        return max(after - before for before, after in itertools.pairwise(times))


@contextlib.contextmanager
def servers_on(directory: Path, dsn: str, **options: Any) -> Iterator[Servers]:
    servers = Servers(directory, dsn, **options)
    try:
        yield servers
    finally:
        servers.close()
