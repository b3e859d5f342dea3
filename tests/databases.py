"""Databases for tests: a SQLite file or a PostgreSQL database of its own, empty, per test.

The PostgreSQL server is started by the tests themselves from the installed package, on a free port, in a temporary
directory, as a user that is not root. It is started once per test run and dies with it, also when that is killed.
"""

from __future__ import annotations

import contextlib
import glob
import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

START_TIMEOUT_S = 60.0
ROOM_IN_MEMORY = 1 << 30
_numbers = itertools.count(1)


class PostgresMissing(Exception):
    """No PostgreSQL server is installed here."""


def binaries() -> Path:
    """The directory with ``initdb`` and ``postgres``, the newest version first.

    Raises:
        PostgresMissing: there is none.
    """
    candidates = sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda p: -int(p.split("/")[-2]))
    if on_path := shutil.which("initdb"):
        candidates.append(str(Path(on_path).resolve().parent))
    for candidate in candidates:
        if all(os.access(Path(candidate, name), os.X_OK) for name in ("initdb", "postgres")):
            return Path(candidate)
    raise PostgresMissing("PostgreSQL is not installed here (Debian: apt-get install postgresql)")


def _account() -> pwd.struct_passwd | None:
    """Whom the server runs as; None: as ourselves. PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise PostgresMissing("PostgreSQL does not run as root, and there is no other account here")


@dataclass
class PostgresServer:
    """A running server. `stop` ends it and removes its files."""

    directory: Path
    port: int
    tools: Path
    account: pwd.struct_passwd | None
    durable: bool = False
    process: subprocess.Popen[bytes] | None = None
    databases: list[str] = field(default_factory=list)

    @classmethod
    def start(cls, *, durable: bool = False) -> PostgresServer:
        """``durable``: commits reach the disk, as in production; tests do not wait for that."""
        tools = binaries()
        account = _account()
        directory = Path(tempfile.mkdtemp(prefix="slotwise-postgres-", dir=None if durable else _memory()))
        if account is not None:
            os.chown(directory, account.pw_uid, account.pw_gid)
        server = cls(directory, _free_port(), tools, account, durable)
        try:
            server._initialise()
            server.launch()
        except BaseException:
            server.stop()
            raise
        return server

    def _initialise(self) -> None:
        done = subprocess.run(
            [
                self.tools / "initdb", "--pgdata", self.directory / "data", "--auth", "trust", "--no-sync",
                "--username", "slotwise", "--encoding", "UTF8", "--locale", "C",
            ],
            **self._as_account(),
            capture_output=True,
            text=True,
        )  # fmt: skip
        if done.returncode != 0:
            raise RuntimeError(f"initdb failed: {done.stdout}{done.stderr}")

    def _as_account(self) -> dict[str, object]:
        # Started from a directory that the account can enter.
        if self.account is None:
            return {"cwd": self.directory}
        return {
            "cwd": self.directory,
            "user": self.account.pw_uid,
            "group": self.account.pw_gid,
            "extra_groups": [],
        }

    def launch(self) -> None:
        """Start the server process (again), and wait until it answers. Call it from the main thread: the server ends
        with the thread that started it."""
        settings = {
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "fsync": "on" if self.durable else "off",
            "full_page_writes": "on" if self.durable else "off",
            "max_connections": "200",
            **({} if self.durable else {"max_wal_size": "128MB"}),
        }
        log = (self.directory / "server.log").open("ab")
        self.process = subprocess.Popen(
            [
                *_dies_with_us(),
                self.tools / "postgres", "-D", self.directory / "data",
                *(f"--{name}={value}" for name, value in settings.items()),
            ],
            **self._as_account(),
            stdout=log,
            stderr=log,
        )  # fmt: skip
        log.close()
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                psycopg.connect(self.dsn("postgres"), connect_timeout=2).close()
                return
            except psycopg.OperationalError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    self.kill()
                    text = (self.directory / "server.log").read_text()
                    raise RuntimeError(f"PostgreSQL did not start: {text[-2000:]}") from None
                time.sleep(0.05)

    def kill(self) -> None:
        """End the server as a crash would, and wait for it."""
        process = self.process
        if process is not None:
            process.send_signal(signal.SIGQUIT)
            process.wait(START_TIMEOUT_S)
            # Not before: who waits for this, in another thread, starts a new one in the same directory.
            self.process = None

    def stop(self) -> None:
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def dsn(self, database: str) -> str:
        return f"postgresql://slotwise@127.0.0.1:{self.port}/{database}"

    def create_database(self, template: str | None = None) -> str:
        """An empty database, or a copy of that with the URL ``template``, which nobody uses; returns its URL."""
        name = f"test_{os.getpid()}_{next(_numbers)}"
        of = f' TEMPLATE "{template.rpartition("/")[2]}"' if template else ""
        with psycopg.connect(self.dsn("postgres"), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"{of}')
        return self.dsn(name)

    def drop_database(self, url: str) -> None:
        name = url.rpartition("/")[2]
        with psycopg.connect(self.dsn("postgres"), autocommit=True) as connection:
            connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


def _memory() -> Path | None:
    """A directory in memory, if there is room. A database is 300 files, and ext4 steps over the inodes of those that
    were dropped a moment ago: a new database would take a third of a second of CPU time."""
    shared = Path("/dev/shm")
    has_room = shared.is_dir() and shutil.disk_usage(shared).free >= ROOM_IN_MEMORY
    return shared if has_room else None


def _dies_with_us() -> list[str]:
    """A prefix for a command that the kernel ends when the thread that starts it has ended, however it ended."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "QUIT"] if setpriv else []


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
