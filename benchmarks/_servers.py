"""A Slotwise server of its own for a benchmark: the real program, on a free port, in a directory of its own."""

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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx

DEADLINE_S = 300.0


def wait_for(
    what: str, check: Callable[[], Any], deadline_s: float = DEADLINE_S, interval_s: float = 0.01
) -> Any:
    """Poll ``check`` until it gives something true, every ``interval_s``: what is measured shares the machine."""
    end = time.monotonic() + deadline_s
    while True:
        value = check()
        if value:
            return value
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {deadline_s:.0f} s")
        time.sleep(interval_s)


class Server:
    """A running server, started by ``launch``. ``log`` has what it said, an object per line."""

    def __init__(
        self, directory: Path, launch: Callable[[], subprocess.Popen[bytes]], log_file: Path
    ) -> None:
        self.directory = directory
        self._launch = launch
        self._log_file = log_file
        self._start()

    def _start(self) -> None:
        self.process = self._launch()
        try:
            self.url = wait_for("the server", self._address)
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise
        self.http = httpx.Client(base_url=self.url, timeout=30.0)

    def start_again(self) -> None:
        """Another process on the same directory, after this one was killed with -9."""
        self.process.wait()
        self.http.close()
        (self.directory / "address").unlink()
        self._start()

    @property
    def log(self) -> list[dict[str, Any]]:
        entries = []
        for line in self._log_file.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(ValueError):
                entries.append(json.loads(line))
        return entries

    def events(self, name: str) -> list[dict[str, Any]]:
        return [entry for entry in self.log if entry.get("event") == name]

    def get(self, path: str) -> Any:
        response = self.http.get(path)
        response.raise_for_status()
        return response.json()

    def submit(self, document: dict[str, Any], **files: str) -> str:
        """Submit a job, with the texts of its files by their names without `.py`; its id."""
        parts = [("graph", ("graph.json", json.dumps(document).encode(), "application/json"))]
        parts += [
            ("files", (f"{name}.py", text.encode(), "application/octet-stream"))
            for name, text in files.items()
        ]
        answer = self.http.post("/jobs", files=parts)
        answer.raise_for_status()
        return str(answer.json()["jobid"])

    def require(self, job_id: str, bounds: dict[str, tuple[int, int]], reason: str) -> None:
        """Change the bounds of the vertices named, by vertex name."""
        current = self.get(f"/jobs/{job_id}/resource-requirements")
        names = {v["id"]: v["name"] for v in self.get(f"/jobs/{job_id}")["vertices"]}
        body = {
            vertex_id: {
                "parallelism": {
                    "lowerBound": bounds[names[vertex_id]][0],
                    "upperBound": bounds[names[vertex_id]][1],
                }
            }
            if names[vertex_id] in bounds
            else entry
            for vertex_id, entry in current.items()
        }
        headers = {"X-Slotwise-Reason": reason}
        self.http.put(f"/jobs/{job_id}/resource-requirements", json=body, headers=headers).raise_for_status()

    def _address(self) -> str | None:
        if self.process.poll() is not None:
            raise RuntimeError(f"The server ended:\n{self._log_file.read_text(encoding='utf-8')}")
        try:
            url = (self.directory / "address").read_text(encoding="utf-8").strip()
            return url if httpx.get(url + "/health/ready", timeout=2.0).is_success else None
        except (OSError, httpx.HTTPError):
            return None


@contextlib.contextmanager
def server(
    *, slots: int | None, run_by: Sequence[str] = (), checkout: Path | None = None, **settings: str
) -> Iterator[Server]:
    """Run a server, with ``slots`` of its host or None where a cluster has them. Its jobs are killed at the end.

    ``run_by``: a program and its arguments that start the server, such as `prlimit`.
    ``checkout``: the server is that of another checkout of the project, with the environment in its ``.venv``.
    ``settings`` are environment settings without their prefix.
    """
    directory = Path(tempfile.mkdtemp(prefix="slotwise-benchmark-"))
    log_file = directory / "server.log"
    environment = {f"SLOTWISE_{name.upper()}": value for name, value in settings.items()}
    command = [
        *run_by,
        sys.executable if checkout is None else str(checkout / ".venv" / "bin" / "python"),
        "-m",
        "app.cli",
        "serve",
        "--data-dir",
        str(directory),
        "--port",
        "0",
        *(() if slots is None else ("--slots", str(slots))),
    ]

    def launch() -> subprocess.Popen[bytes]:
        with open(log_file, "ab") as output:
            return subprocess.Popen(
                command,
                stdout=output,
                stderr=output,
                cwd=checkout,
                env={**os.environ, "SLOTWISE_LOG_FORMAT": "json", **environment},
            )

    running: Server | None = None
    try:
        running = Server(directory, launch, log_file)
        yield running
    finally:
        if running is not None:
            _end_jobs(running)
            running.process.send_signal(signal.SIGTERM)
            try:
                running.process.wait(20)
            except subprocess.TimeoutExpired:
                running.process.kill()
                running.process.wait()
        shutil.rmtree(directory, ignore_errors=True)


def _end_jobs(running: Server) -> None:
    with contextlib.suppress(httpx.HTTPError, TimeoutError):
        for job in running.get("/jobs")["jobs"]:
            running.http.patch(f"/jobs/{job['id']}", params={"mode": "cancel"})
        ended = {"CANCELED", "FAILED", "FINISHED"}
        wait_for(
            "the end of the jobs", lambda: all(j["status"] in ended for j in running.get("/jobs")["jobs"]), 30
        )
