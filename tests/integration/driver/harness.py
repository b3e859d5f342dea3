"""A driver process under test: the real program, started as a cluster starts it, and a control plane that plays the
other end of the protocol and can be told to be away, to order, or to fence."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

from app.cluster.java import usable_java
from app.cluster.processes import driver_command
from app.documents.graph import parse_document
from app.model.graphdoc import read_graph, to_document
from app.model.jobgraph import JobGraph
from app.model.protocol import DriverSpec
from tests.environments import QUICK_JAVA

ROOT = Path(__file__).resolve().parents[3]
# A host that is shared may stand still for a minute. What has not come after this will not come.
DEADLINE_S = 240.0


def wait_for(what: str, check: Callable[[], Any], deadline_s: float = DEADLINE_S) -> Any:
    """Poll ``check`` until it gives something true, for a tenth of the time at most: some read all that was written."""
    looked = time.monotonic()
    end = looked + deadline_s
    while not (value := check()):
        now = time.monotonic()
        assert now < end, f"{what}: not within {deadline_s} s"
        # A look may be one that waits for something itself.
        time.sleep(min(max(0.02, 9 * (now - looked)), 0.5))
        looked = time.monotonic()
    return value


class ControlPlaneDouble:
    """Answers one driver. Everything that it hears is kept."""

    def __init__(self, address_file: Path) -> None:
        self.address_file = address_file
        self.registrations: list[dict[str, Any]] = []
        self.reports: list[dict[str, Any]] = []
        self.calls: list[dict[str, str]] = []
        self.fenced = False
        self.home = ""
        # As whom it acknowledges reports; 0: a server that does not say.
        self.epoch = 0
        self._orders: dict[str, Any] = {
            "plan_version": 0,
            "parallelism": {},
            "stop": "none",
            "epoch": 1,
            "restarts": {},
        }
        self._changed = threading.Condition()
        self._server: ThreadingHTTPServer | None = None
        self.come_back()

    # -- what tests do

    def order(self, **changes: Any) -> None:
        with self._changed:
            self._orders = {**self._orders, **changes}
            self._changed.notify_all()

    def go_away(self) -> None:
        assert self._server is not None
        with self._changed:
            self._changed.notify_all()
        self._server.shutdown()
        self._server.server_close()
        self._server = None

    def come_back(self) -> None:
        """Listen, on another port than before."""
        double = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
                double._answer(self, body)

            def do_GET(self) -> None:
                double._answer(self, None)

            def handle(self) -> None:
                # Drivers are killed in the middle of calls.
                with contextlib.suppress(ConnectionError):
                    super().handle()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        self.address_file.write_text(f"http://127.0.0.1:{self._server.server_port}\n", encoding="utf-8")

    def of_type(self, kind: str) -> list[dict[str, Any]]:
        return [report for report in list(self.reports) if report["type"] == kind]

    @property
    def batches(self) -> list[dict[str, Any]]:
        return self.of_type("batch")

    # -- the protocol

    def _answer(self, handler: BaseHTTPRequestHandler, body: Any) -> None:
        path, _, query = handler.path.partition("?")
        self.calls.append(
            {
                "path": path,
                "query": query,
                "authorization": handler.headers.get("Authorization", ""),
                "epoch": handler.headers.get("X-Slotwise-Epoch", ""),
            }
        )
        if self.fenced:
            return self._send(
                handler, 410, {"errors": ["A newer attempt exists."], "fenced": True, "home": self.home}
            )
        if path.endswith("/register"):
            self.registrations.append(body)
            return self._send(handler, 200, self._orders)
        if path.endswith("/reports"):
            # Numbers of reports begin again with each attempt.
            attempt = int(path.split("/")[-2])
            known = {(report["attempt"], report["seq"]) for report in self.reports}
            new = [report for report in body["reports"] if (attempt, report["seq"]) not in known]
            self.reports.extend({**report, "attempt": attempt} for report in new)
            answer = {"acknowledged": body["reports"][-1]["seq"], "epoch": self.epoch}
            return self._send(handler, 200, answer)
        asked = dict(part.split("=") for part in query.split("&"))
        with self._changed:
            server, end = self._server, time.monotonic() + int(asked["wait_ms"]) / 1000
            while self._known(asked["slots"]) == tuple(
                asked[name] for name in ("plan", "stop", "restarts", "slots")
            ):
                left_s = end - time.monotonic()
                if left_s <= 0 or self.fenced or self._server is not server:
                    break
                self._changed.wait(min(left_s, 0.2))
            if self._server is not server:
                handler.close_connection = True
                return None
            orders = self._orders
        if self.fenced:
            return self._send(
                handler, 410, {"errors": ["A newer attempt exists."], "fenced": True, "home": self.home}
            )
        return self._send(handler, 200, orders)

    def _known(self, slots: str) -> tuple[str, str, str, str]:
        """What a driver says that knows the orders. ``slots``: how many it knows of, if they say nothing of them."""
        restarts = ",".join(f"{key}:{number}" for key, number in sorted(self._orders["restarts"].items()))
        slots = str(self._orders.get("slots", slots))
        return str(self._orders["plan_version"]), self._orders["stop"], restarts, slots

    def _send(self, handler: BaseHTTPRequestHandler, status: int, body: Any) -> None:
        content = json.dumps(body).encode()
        with contextlib.suppress(OSError):
            handler.send_response(status)
            handler.send_header("Content-Type", "application/json")
            handler.send_header("Content-Length", str(len(content)))
            handler.end_headers()
            handler.wfile.write(content)


class Driver:
    """A driver process, started as `app.cluster.processes` does."""

    environment: ClassVar[dict[str, str]] = {}
    python: ClassVar[str | None] = None
    """That of an environment of its own."""

    def __init__(self, directory: Path, *, warm: bool = False, working_dir: Path = ROOT) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        name = f"driver-{secrets.token_hex(4)}"
        self.log_file = directory / f"{name}.log"
        with open(self.log_file, "ab") as errors:
            self.process = subprocess.Popen(
                [*driver_command("app.driver", Driver.python), *(["--warm"] if warm else [])],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
                cwd=working_dir,
                env={
                    **os.environ,
                    "_SLOTWISE_DRIVER_JAVA": usable_java().command,
                    "_SLOTWISE_DRIVER_LOCK": str(directory / f"{name}.lock"),
                    "_SLOTWISE_DRIVER_JAVA_OPTIONS": QUICK_JAVA,
                    **Driver.environment,
                },
            )
        self._output = b""

    @property
    def log(self) -> str:
        return self.log_file.read_text(encoding="utf-8", errors="replace")

    def wait_ready(self) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line == b"READY\n", f"{line!r}\n{self.log}"

    def assign(self, spec_file: Path) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{spec_file}\n".encode())
        self.process.stdin.flush()

    def exit_status(self, deadline_s: float = DEADLINE_S) -> int:
        try:
            return self.process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the driver lives on\n{self.log}") from None

    def kill(self) -> None:
        """Kill -9 of the process and of what it started, and wait until nothing is left."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


def graph_in(document: Mapping[str, Any]) -> JobGraph:
    """That of a document as it is submitted, or of one of a program as it is stored."""
    return read_graph(document) if "script" in document else parse_document(document)


class Bench:
    """A job, its directories, its control plane, and the drivers that were started for it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.artifacts_dir = directory / "artifacts"
        self.artifacts_dir.mkdir()
        self.checkpoint_dir = directory / "checkpoint"
        self.control_plane = ControlPlaneDouble(directory / "address")
        self.drivers: list[Driver] = []
        self._attempt = 0

    def spec(
        self, document: dict[str, Any], parallelism: dict[str, int] | None = None, **changes: Any
    ) -> Path:
        """Write the assignment of the next attempt. ``parallelism`` is by vertex name, 1 where it says nothing."""
        graph = graph_in(document)
        self._attempt += 1
        by_name = {vertex.name: 1 for vertex in graph.vertices} | (parallelism or {})
        spec = DriverSpec(
            job_id="0" * 32,
            job_name=graph.name,
            attempt=self._attempt,
            epoch=1,
            secret="the secret",
            address_file=str(self.control_plane.address_file),
            graph=to_document(graph),
            plan_version=self._attempt * 100,
            parallelism={vertex.id: by_name[vertex.name] for vertex in graph.vertices},
            master="local[8]",
            slots=8,
            held_slots=8,
            checkpoint_dir=str(self.checkpoint_dir),
            work_dir=str(self.directory / f"attempt-{self._attempt}"),
            artifacts_dir=str(self.artifacts_dir),
            available_now=document.get("config", {}).get("slotwise.batch.trigger") == "available-now",
        )
        held = changes.get("executors") or changes.get("slots", spec.slots)
        value = {**asdict(spec), "held_slots": held, **changes}
        self.control_plane.order(
            plan_version=value["plan_version"],
            parallelism=value["parallelism"],
            stop="none",
            epoch=value["epoch"],
            restarts={},
            slots=value["held_slots"],
        )
        path = Path(value["work_dir"]) / "spec.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(value), encoding="utf-8")
        return path

    def start(
        self, document: dict[str, Any], parallelism: dict[str, int] | None = None, **changes: Any
    ) -> Driver:
        driver = Driver(self.directory / "run")
        self.drivers.append(driver)
        driver.wait_ready()
        driver.assign(self.spec(document, parallelism, **changes))
        return driver

    def change_plan(self, document: dict[str, Any], version: int, parallelism: dict[str, int]) -> None:
        graph = graph_in(document)
        by_name = {vertex.name: 1 for vertex in graph.vertices} | parallelism
        self.control_plane.order(
            plan_version=version, parallelism={v.id: by_name[v.name] for v in graph.vertices}
        )

    def wait_batches(self, count: int) -> list[dict[str, Any]]:
        def enough() -> list[dict[str, Any]] | None:
            failed = self.control_plane.of_type("failed")
            assert not failed, failed[0]["error"] + "\n" + str(failed[0]["stack"])
            assert self.drivers[-1].process.poll() is None or len(self.control_plane.batches) >= count, (
                self.drivers[-1].log
            )
            return self.control_plane.batches if len(self.control_plane.batches) >= count else None

        found: list[dict[str, Any]] = wait_for(f"{count} batches", enough)
        return found

    def close(self) -> None:
        for driver in self.drivers:
            driver.kill()
        with contextlib.suppress(AssertionError):
            self.control_plane.go_away()


@contextlib.contextmanager
def bench(directory: Path) -> Iterator[Bench]:
    made = Bench(directory)
    try:
        yield made
    finally:
        made.close()
