"""The demo's own server: a real `slotwise serve` in a process of its own, and its end, whatever happens."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from app.cli.client import Client
from app.cli.errors import CliError, NoServer, Refused

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 15.0
DRIVER_END_TIMEOUT_S = 10.0


class DemoServer:
    """Started by `start`, ended by `close`; ``log_file`` has what it printed."""

    def __init__(self, data_dir: Path, slots: int) -> None:
        self._data_dir = data_dir
        self._slots = slots
        self._process: subprocess.Popen[bytes] | None = None
        self.log_file = data_dir / "server.log"
        self.url = ""

    def start(self) -> Client:
        """Start the server on a free port and wait until it is ready.

        Raises:
            CliError: it ended or did not get ready; with the end of its log.
        """
        home = self._data_dir / "server"
        command = [sys.executable, "-m", "app.cli", "serve", "--host", "127.0.0.1", "--port", "0"]
        command += ["--data-dir", str(home), "--slots", str(self._slots)]
        # The demo's server is its own: settings of another one must not leak in.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SLOTWISE_")}
        with open(self.log_file, "ab") as output:
            # Its own session: Ctrl-C reaches the demo alone, which then ends the job before the server.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env=environment,
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise CliError(f"The server ended with status {self._process.returncode}.", *self._log_end())
            # The port is a free one: the server writes down where it listens.
            with contextlib.suppress(NoServer, Refused, FileNotFoundError):
                self.url = (home / "address").read_text(encoding="utf-8").strip()
                client = Client(self.url)
                client.get("/health/ready")
                return client
            time.sleep(0.1)
        raise CliError(f"The server was not ready after {START_TIMEOUT_S:.0f} s.", *self._log_end())

    def close(self, client: Client | None, job_id: str | None) -> list[str]:
        """Cancel the job, end the server and every driver of it; what could not be done, in sentences."""
        problems: list[str] = []
        if client is not None and job_id is not None:
            try:
                _cancel(client, job_id)
            except CliError as error:
                problems += error.errors
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
                problems.append(f"The server did not end within {STOP_TIMEOUT_S:.0f} s and was killed.")
        end_drivers(self._data_dir)
        return problems

    def _log_end(self, lines: int = 15) -> list[str]:
        with contextlib.suppress(OSError):
            text = self.log_file.read_text(encoding="utf-8", errors="replace")
            return [f"Its log, {self.log_file}, ends:", *text.splitlines()[-lines:]]
        return []


def _cancel(client: Client, job_id: str) -> None:
    from app.model.status import TERMINAL_STATUSES

    if client.get(f"/jobs/{job_id}/status")["status"] in TERMINAL_STATUSES:
        return
    client.request("PATCH", f"/jobs/{job_id}", params={"mode": "cancel"})
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while client.get(f"/jobs/{job_id}/status")["status"] not in TERMINAL_STATUSES:
        if time.monotonic() > deadline:
            raise CliError(f"The job could not be cancelled within {STOP_TIMEOUT_S:.0f} s.")
        time.sleep(0.1)


def drivers_of(data_dir: Path) -> list[int]:
    """The living driver processes, their JVMs included, whose lock file lies under ``data_dir``."""
    mark = f"_SLOTWISE_DRIVER_LOCK={data_dir}/".encode()
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            # A process of somebody else, or one that has just ended, is none of ours.
            with contextlib.suppress(OSError):
                if any(item.startswith(mark) for item in (process / "environ").read_bytes().split(b"\0")):
                    found.append(int(process.name))
    return found


def end_drivers(data_dir: Path) -> None:
    """Wait until the drivers have ended by themselves, as they should; kill those that have not."""
    deadline = time.monotonic() + DRIVER_END_TIMEOUT_S
    while drivers := drivers_of(data_dir):
        if time.monotonic() > deadline:
            for pid in drivers:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)
