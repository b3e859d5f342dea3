"""Driver processes on this host: start, watch, find again, kill for certain.

Why a lock file and not only a pid: the driver's JVM is what writes the checkpoint, and it outlives a Python process
that was killed with -9 by a second or two. The lock is taken by the driver and inherited by its JVM, so the kernel
frees it exactly when the last of them is gone, whatever happened to pids in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
import structlog

import app
from app import filelocks
from app.cluster.driverlogs import log_file_of
from app.cluster.driveruser import DriverUser
from app.cluster.environments import inherited_environment
from app.cluster.ports import DriverLaunchError, DriverRef
from app.durablefiles import remove_tree

log = structlog.get_logger()

# What a driver process is told. Not SLOTWISE_: that is what people set, and a server refuses names it does not know.
DRIVER_ENV_PREFIX = "_SLOTWISE_DRIVER_"

# The package is found by its own path from then on: neither it nor what lies beside it is in the way of what the
# environment and its programs import. Nor is the working directory.
_BOOT = (
    "import runpy, sys; sys.path[:] = [sys.argv.pop(1), *filter(None, sys.path)]; import app; del sys.path[0]; "
    "runpy.run_module(sys.argv.pop(1), run_name='__main__')"
)

_POLL_S = 0.02
_KILL_DEADLINE_S = 20.0
_LOGS_KEPT = 100
# psutil derives start times from the boot time: two readings of one process may differ by a clock tick.
_START_TOLERANCE_S = 0.05
# The lock files that could not be opened, and why.
_untold: dict[str, int | None] = {}


def is_lock_free(lock_file: str) -> bool:
    """Whether no process holds ``lock_file``. Where that cannot be told it is taken to be held, and logged."""
    try:
        return not filelocks.is_held(lock_file)
    except OSError as error:
        if _untold.get(lock_file) != error.errno:
            # Once, for it is asked many times a second.
            _untold[lock_file] = error.errno
            log.warning(
                "a lock file cannot be opened: its driver is taken to live",
                lock_file=lock_file,
                error=error.strerror,
            )
        return False


def is_running(pid: int, started_at: float) -> bool:
    """Whether a process lives, and is the one that started then (epoch seconds)."""
    try:
        process = psutil.Process(pid)
        same = abs(process.create_time() - started_at) <= _START_TOLERANCE_S
        return same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _socket_dir(driver_id: str) -> Path:
    """Where a driver has its Unix sockets: their paths must be short, so not in the data directory."""
    return Path(tempfile.gettempdir()) / f"slotwise-{driver_id.rpartition('-')[2]}"


def tidy(lock_file: Path) -> None:
    """Remove what a dead driver left behind, its log apart."""
    remove_tree(lock_file.with_suffix(".scratch"))
    remove_tree(_socket_dir(lock_file.stem))
    lock_file.unlink(missing_ok=True)
    _untold.pop(str(lock_file), None)


def _kill_members(group: int, uid: int) -> None:
    """Kill the processes of a group that are a user's."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if os.getpgid(process.pid) == group and process.uids().real == uid:
                process.kill()


def sweep(run_dir: Path) -> None:
    """Remove what drivers left that died while nobody looked, and all but the newest of their logs.

    Nobody else may be starting drivers in ``run_dir``.
    """
    for lock_file in run_dir.glob("driver-*.lock"):
        if is_lock_free(str(lock_file)):
            tidy(lock_file)
    logs = sorted(run_dir.glob("driver-*.log"), key=lambda path: path.stat().st_mtime)
    for path in logs[:-_LOGS_KEPT]:
        if not path.with_suffix(".lock").exists():
            path.unlink(missing_ok=True)


class LocalDriver:
    """A driver process of this host, started here or adopted. Implements `app.cluster.ports.DriverHandle`."""

    def __init__(
        self,
        ref: DriverRef,
        child: subprocess.Popen[bytes] | None,
        user: DriverUser | None = None,
    ) -> None:
        self._ref = ref
        self._user = user
        self._child = child
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._exited: asyncio.Future[int | None] = self._loop.create_future()
        self._output = b""
        self._watch_exit()
        if child is not None and child.stdout is not None:
            os.set_blocking(child.stdout.fileno(), False)
            self._loop.add_reader(child.stdout.fileno(), self._on_output)

    @property
    def ref(self) -> DriverRef:
        return self._ref

    @property
    def has_exited(self) -> bool:
        return self._exited.done()

    async def assign(self, spec_file: Path) -> None:
        if self._child is None or self._child.stdin is None:
            raise DriverLaunchError(
                f"Driver process {self._ref.pid} was adopted and takes no further assignment."
            )
        either: set[asyncio.Future[Any]] = {self._ready, self._exited}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if self._exited.done():
            raise DriverLaunchError(
                f"The driver process {self._ref.pid} ended with exit status {self._exited.result()} before it could "
                f"take the job."
            )
        try:
            if self._user is not None:
                await asyncio.to_thread(self._user.open_job, spec_file)
        except OSError as error:
            raise DriverLaunchError(
                f"The files of the job cannot be opened to the user of its driver: {error}."
            ) from error
        try:
            self._child.stdin.write(f"{spec_file}\n".encode())
            self._child.stdin.flush()
        except OSError as error:
            raise DriverLaunchError(
                f"The driver process {self._ref.pid} died before it took the job."
            ) from error

    async def kill(self) -> None:
        # The group outlives its leader, and its number is not reused while a member lives: a held lock means that
        # the group is still the driver's.
        deadline = self._loop.time() + _KILL_DEADLINE_S
        while True:
            if is_lock_free(self._ref.lock_file) and not self._is_running():
                await asyncio.to_thread(tidy, Path(self._ref.lock_file))
                return
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if self._user is None or self._is_running():
                    os.killpg(self._ref.pid, signal.SIGKILL)
                else:
                    # The user of drivers can hold the lock of one that is gone, and its group be somebody else's.
                    await asyncio.to_thread(_kill_members, self._ref.pid, self._user.uid)
            if self._loop.time() > deadline:
                raise DriverLaunchError(f"The driver process group {self._ref.pid} survives SIGKILL.")
            await asyncio.sleep(_POLL_S)

    def _is_running(self) -> bool:
        """Whether its main process lives, or is not waited for."""
        if self._child is not None and self._child.poll() is None:
            return True
        return is_running(self._ref.pid, self._ref.pid_started_at)

    async def gone(self) -> None:
        await asyncio.shield(self._exited)
        # The kernel does not report when a lock is released.
        while not is_lock_free(self._ref.lock_file):  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)
        await asyncio.to_thread(tidy, Path(self._ref.lock_file))

    def on_ready(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once the driver can take a job."""
        self._ready.add_done_callback(lambda future: None if future.cancelled() else callback())

    def on_exit(self, callback: Callable[[int | None], None]) -> None:
        self._exited.add_done_callback(
            lambda future: None if future.cancelled() else callback(future.result())
        )

    def detach(self) -> None:
        """Stop watching without touching the process: it keeps running when this control plane ends."""
        if self._child is not None and self._child.stdout is not None and not self._child.stdout.closed:
            self._loop.remove_reader(self._child.stdout.fileno())
        if not self._exited.done():
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._exited.cancel()
        if not self._ready.done():
            self._ready.cancel()

    def _watch_exit(self) -> None:
        try:
            self._pidfd = os.pidfd_open(self._ref.pid)
        except ProcessLookupError:
            self._pidfd = -1
            self._exited.set_result(None)
            return
        self._loop.add_reader(self._pidfd, self._on_exit_ready)

    def _on_exit_ready(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        status = self._child.wait() if self._child is not None else None
        if not self._exited.done():
            self._exited.set_result(status)

    def _on_output(self) -> None:
        assert self._child is not None
        assert self._child.stdout is not None
        chunk = self._child.stdout.read()
        if chunk:
            self._output += chunk
        if b"READY" in self._output and not self._ready.done():
            self._ready.set_result(None)
        if self._ready.done() or chunk == b"":
            self._loop.remove_reader(self._child.stdout.fileno())
            self._child.stdout.close()


def driver_command(module: str, python: str | None = None) -> list[str]:
    """What runs a module of the driver: by the Python of the server, or by that of an environment (``python``), which
    has PySpark and nothing of ours."""
    return [python or sys.executable, "-c", _BOOT, str(Path(app.__file__).resolve().parents[1]), module]


def start_driver(
    *,
    driver_id: str,
    run_dir: Path,
    warm: bool,
    environment: Mapping[str, str],
    user: DriverUser | None = None,
    python: str | None = None,
    working_dir: Path | None = None,
) -> LocalDriver:
    """Start a driver process in a session of its own, so that it outlives this one; as ``user`` if there is one.

    It inherits nothing but its standard streams, and the environment without the settings of the server. Its standard
    input is the rope that it hangs on until it has a job (end of file there ends it), its output says READY, its errors
    go to ``<run_dir>/<driver_id>.log``. ``python``: see `driver_command`. ``working_dir``: its working directory.

    Raises:
        DriverLaunchError: the operating system refused.
    """
    run_dir.mkdir(parents=True, exist_ok=True)
    lock_file = run_dir / f"{driver_id}.lock"
    log_file = log_file_of(lock_file)
    command = [*driver_command("app.driver", python), *(["--warm"] if warm else [])]
    child = None
    try:
        if user is not None:
            user.open_run(lock_file, lock_file.with_suffix(".scratch"))
        with open(log_file, "ab") as errors:
            child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
                cwd=working_dir or run_dir,
                env={
                    **inherited_environment(),
                    **(user.environment() if user is not None else {}),
                    **environment,
                    DRIVER_ENV_PREFIX + "LOCK": str(lock_file),
                    DRIVER_ENV_PREFIX + "SOCKETS": str(_socket_dir(driver_id)),
                },
                **(user.popen() if user is not None else {}),
            )
        started_at = psutil.Process(child.pid).create_time()
        ref = DriverRef(driver_id, child.pid, started_at, str(lock_file))
        driver = LocalDriver(ref, child, user)
    except (OSError, psutil.NoSuchProcess) as error:
        if child is not None:
            # Nobody would watch it, since there was no descriptor left to watch it with.
            child.kill()
            child.wait()
        raise DriverLaunchError(f"A driver process could not be started: {error}.") from error
    log.info("driver process started", driver=driver_id, pid=child.pid, warm=warm)
    return driver
