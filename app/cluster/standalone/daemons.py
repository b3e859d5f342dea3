"""Daemons of a Spark standalone cluster on this host, for development and tests: started from the pip package.

Each is a process in a session of its own, so it outlives whoever started it. What is known of them is in one file of
the cluster's directory. The master keeps what it knows in that directory too, and goes on from there when it is
started again.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import httpx
import psutil

from app.cluster.environments import inherited_environment, own_environment
from app.cluster.java import Java
from app.cluster.processes import is_running
from app.cluster.standalone.roster import NotAMaster, Roster, read_roster
from app.durablefiles import make_private, write_whole
from app.model.javaoptions import OPENED_PACKAGES

LOOPBACK = "127.0.0.1"
_FILE = "cluster.json"
_SCALA = "2.13"
_MASTER_CLASS = "org.apache.spark.deploy.master.Master"
_WORKER_CLASS = "org.apache.spark.deploy.worker.Worker"
_DAEMON_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_WORKER_TIMEOUT = "-Dspark.worker.timeout=15"
"""In seconds: a worker that is silent for longer is lost to the master."""
_START_DEADLINE_S = 60.0
_STOP_DEADLINE_S = 15.0
_POLL_S = 0.05
_LOG_LINES = 15


class ClusterError(Exception):
    """Something that was asked of the cluster cannot be done; the message is a sentence for people."""


@dataclass(frozen=True, slots=True)
class Daemon:
    """A process: the same one only if it started at ``started_at`` (epoch seconds)."""

    name: str
    pid: int
    started_at: float
    port: int
    webui_port: int
    cores: int = 0

    @property
    def is_running(self) -> bool:
        return is_running(self.pid, self.started_at)


@dataclass(frozen=True, slots=True)
class _State:
    master: Daemon | None = None
    workers: tuple[Daemon, ...] = ()
    numbered: int = 0


class DevCluster:
    """A master and workers on loopback, known by ``directory``."""

    def __init__(self, directory: Path, *, java: Java, home: Path | None = None) -> None:
        """``home`` has the jars of the Spark that daemons are started with; default: the installed one."""
        self.directory = directory
        self._java = java
        self._home = home
        # Kept so that they are waited for when they have ended; they outlive this object.
        self._children: list[subprocess.Popen[bytes]] = []

    @property
    def master_url(self) -> str:
        return f"spark://{LOOPBACK}:{self._master().port}"

    @property
    def webui_url(self) -> str:
        return f"http://{LOOPBACK}:{self._master().webui_port}"

    @property
    def workers(self) -> tuple[Daemon, ...]:
        """The workers that were started and not killed, in the order in which they were."""
        return self._load().workers

    @property
    def master(self) -> Daemon | None:
        return self._load().master

    # -- doing

    def up(self) -> None:
        """Start the master, where there is none; one that was here before is on the same ports again.

        Raises:
            ClusterError: it does not start.
        """
        state = self._load()
        if state.master is not None and state.master.is_running:
            return
        if state.master is not None:
            port, webui_port = state.master.port, state.master.webui_port
        else:
            port, webui_port = _free_ports(2)
        recovery = self.directory / "recovery"
        make_private(recovery)
        master = self._start(
            "master",
            port,
            webui_port,
            ["-Dspark.deploy.recoveryMode=FILESYSTEM", f"-Dspark.deploy.recoveryDirectory={recovery}"],
            _MASTER_CLASS,
        )
        self._save(replace(state, master=master))
        self._await(master, "the master is alive", lambda roster: roster.is_alive)

    def add(self, *, cores: int, memory_mb: int) -> Daemon:
        """Start one more worker, and wait until the master knows it.

        Raises:
            ClusterError: there is no master, or the worker does not start.
        """
        state = self._load()
        master_url, number = self.master_url, state.numbered + 1
        name = f"worker-{number}"
        port, webui_port = _free_ports(2)
        work_dir = self.directory / name
        make_private(work_dir)
        worker = self._start(
            name,
            port,
            webui_port,
            ["-Dspark.decommission.enabled=true", "-Dspark.worker.cleanup.enabled=true"],
            _WORKER_CLASS,
            *("--cores", str(cores), "--memory", f"{memory_mb}m", "--work-dir", str(work_dir), master_url),
        )
        worker = replace(worker, cores=cores)
        self._save(replace(state, workers=(*state.workers, worker), numbered=number))
        self._await(
            worker, f"the master knows {name}", lambda roster: any(one.port == port for one in roster.workers)
        )
        return worker

    def kill(self, name: str, *, how: signal.Signals = signal.SIGKILL) -> Daemon:
        """Send a signal to the master or a worker. SIGKILL takes a worker's executors along, as if its host were lost.

        Raises:
            ClusterError: there is none of this name.
        """
        state = self._load()
        everyone = [*([state.master] if state.master else []), *state.workers]
        daemon = next((one for one in everyone if one.name == name and one.is_running), None)
        if daemon is None:
            names = ", ".join(one.name for one in everyone if one.is_running) or "none"
            raise ClusterError(f"There is no running daemon {name} in {self.directory}; running: {names}.")
        if how is signal.SIGKILL:
            _end_all([daemon], how)
            self._reap()
            self._save(replace(state, workers=tuple(one for one in state.workers if one != daemon)))
        else:
            os.kill(daemon.pid, how)
        return daemon

    def down(self) -> int:
        """End everything; the number of daemons that ran."""
        state = self._load()
        running = [
            one for one in (*state.workers, *([state.master] if state.master else [])) if one.is_running
        ]
        _end_all(running, signal.SIGKILL)
        self._reap()
        (self.directory / _FILE).unlink(missing_ok=True)
        return len(running)

    def roster(self) -> Roster:
        """What the master says now.

        Raises:
            ClusterError: it does not answer.
        """
        try:
            answer = httpx.get(f"{self.webui_url}/json/", timeout=5.0, trust_env=False)
            answer.raise_for_status()
            return read_roster(answer.json())
        except (httpx.HTTPError, NotAMaster, ValueError) as error:
            raise ClusterError(f"The master at {self.webui_url} does not answer: {error}.") from error

    # -- inside

    def _master(self) -> Daemon:
        master = self._load().master
        if master is None:
            raise ClusterError(
                f"There is no cluster in {self.directory}. Start one with: slotwise cluster up"
            )
        return master

    def _reap(self) -> None:
        """What was started here is a child, and a zombie until it is waited for."""
        self._children = [child for child in self._children if child.poll() is None]

    def _load(self) -> _State:
        try:
            document = json.loads((self.directory / _FILE).read_text(encoding="utf-8"))
            master = Daemon(**document["master"]) if document["master"] else None
            workers = tuple(Daemon(**each) for each in document["workers"])
            return _State(master, workers, document["numbered"])
        except FileNotFoundError:
            return _State()
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ClusterError(f"The file {self.directory / _FILE} cannot be read: {error}.") from error

    def _save(self, state: _State) -> None:
        make_private(self.directory)
        write_whole(self.directory / _FILE, json.dumps(asdict(state), indent=2).encode())

    def _start(
        self, name: str, port: int, webui_port: int, properties: list[str], main_class: str, *arguments: str
    ) -> Daemon:
        make_private(self.directory)
        home = self._home or Path(own_environment().spark_home)
        command = [
            self._java.command,
            *_DAEMON_OPTIONS,
            *OPENED_PACKAGES,
            "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
            _WORKER_TIMEOUT,
            *properties,
            *("-cp", str(home / "jars" / "*"), main_class),
            *("--host", LOOPBACK, "--port", str(port), "--webui-port", str(webui_port)),
            *arguments,
        ]
        try:
            with open(self.directory / f"{name}.log", "ab") as log:
                child = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    cwd=self.directory,
                    env=_environment(home, self.directory),
                )
            self._children.append(child)
            started_at = psutil.Process(child.pid).create_time()
        except (OSError, psutil.NoSuchProcess) as error:
            raise ClusterError(f"{name} could not be started: {error}.") from error
        return Daemon(name, child.pid, started_at, port, webui_port)

    def _await(self, daemon: Daemon, what: str, reached: Callable[[Roster], bool]) -> None:
        deadline = time.monotonic() + _START_DEADLINE_S
        while time.monotonic() < deadline:
            if not daemon.is_running:
                raise ClusterError(f"{daemon.name} has ended:\n{self._log_end(daemon.name)}")
            with contextlib.suppress(ClusterError):
                if reached(self.roster()):
                    return
            time.sleep(_POLL_S)
        raise ClusterError(
            f"After {_START_DEADLINE_S:.0f} s this is still not true: {what}.\n{self._log_end(daemon.name)}"
        )

    def _log_end(self, name: str) -> str:
        text = (self.directory / f"{name}.log").read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-_LOG_LINES:])


def _environment(home: Path, directory: Path) -> Mapping[str, str]:
    """Executors inherit it from their worker: the same Python as here, with the same packages."""
    # Without Spark's zip file of PySpark, which every Python process would have to compile: here it is installed.
    bare = directory / "spark"
    bare.mkdir(exist_ok=True)
    if not (bare / "jars").is_symlink() or (bare / "jars").readlink() != home / "jars":
        (bare / "jars").unlink(missing_ok=True)
        (bare / "jars").symlink_to(home / "jars")
    return {
        **inherited_environment(),
        "SPARK_HOME": str(bare),
        # What starts executors looks for it, as `spark-class` sets it.
        "SPARK_SCALA_VERSION": _SCALA,
        "SPARK_LOCAL_IP": LOOPBACK,
        "PYSPARK_PYTHON": sys.executable,
    }


def _free_ports(count: int) -> list[int]:
    """Ports that are free now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(contextlib.closing(socket.socket())) for _ in range(count)]
        for one in sockets:
            one.bind((LOOPBACK, 0))
        return [int(one.getsockname()[1]) for one in sockets]


def _end_all(daemons: list[Daemon], how: signal.Signals) -> None:
    """End daemons and everything that they have started: executors are children of their worker."""
    doomed: list[psutil.Process] = []
    for daemon in daemons:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(daemon.pid)
            doomed += [process, *process.children(recursive=True)]
    for one in doomed:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.send_signal(how)
    psutil.wait_procs(doomed, timeout=_STOP_DEADLINE_S)
