"""The database of the simulations of this process: a SQLite file in memory, emptied for each seed.

Opening it through `Store.open` for every control plane would spend most of the time on checking the schema and on
compiling the same queries again, so the engines are made once. Everything else is the real store.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from functools import cache
from multiprocessing.util import Finalize
from pathlib import Path

from sqlalchemy import event, text

from app.store.engine import create, parse_url
from app.store.leases import full_name
from app.store.store import Store
from app.store.writer import Writer

LEASE_TTL_MS = 15_000
_PLANES = 16


class SimDatabase:
    """``directory`` is for the files of jobs."""

    def __init__(self) -> None:
        shared = Path("/dev/shm")
        parent = str(shared) if shared.is_dir() else None
        self.directory = Path(tempfile.mkdtemp(prefix="slotwise-sim-", dir=parent))
        # Unlike atexit this is run at the end of a process of a pool, too.
        Finalize(None, shutil.rmtree, (self.directory, True), exitpriority=0)
        template = self.directory / "template.db"
        asyncio.run(self._make(template))
        self._template = sqlite3.connect(template)
        self._file = self.directory / "sim.db"
        self.reset()
        self._database = parse_url(f"sqlite:///{self._file}")
        self._write = create(self._database, write=True, pool_size=_PLANES, durable=False)
        self._read = create(self._database, write=False, pool_size=_PLANES, durable=False)
        # The time of the database, for worlds in which leases expire.
        self.now_ms: Callable[[], int] = lambda: 0
        for engine in (self._write, self._read):
            event.listen(engine, "connect", self._add_clock)

    async def _make(self, path: Path) -> None:
        store = await Store.open(f"sqlite:///{path}", "template", durable=False, inline=True)
        await store.close()

    def reset(self) -> None:
        """Forget every job."""
        target = sqlite3.connect(self._file)
        try:
            self._template.backup(target)
        finally:
            target.close()

    def _add_clock(self, connection: sqlite3.Connection, _record: object) -> None:
        connection.create_function("sim_now_ms", 0, lambda: self.now_ms())

    def open(self, owner: str, home: str = "", kind: type[Store] = Store) -> tuple[Store, Writer]:
        writer = Writer(self._write, self._database, full_name(owner, home), LEASE_TTL_MS, 10.0, True)
        writer.open()
        return kind(self._database, writer.owner, writer, self._read, True, home), writer

    def change(self, statement: str, values: dict[str, object]) -> None:
        """What nobody of the world does."""
        with self._write.begin() as connection:
            connection.execute(text(statement), values)

    def lease_of(self, job_id: str) -> tuple[str, int] | None:
        """The owner of the job by the database, and his epoch."""
        with self._read.connect() as connection:
            query = text("SELECT owner, epoch FROM leases WHERE job_id = :job")
            found = connection.execute(query, {"job": job_id}).first()
        return None if found is None else (str(found[0]), int(found[1]))


def database() -> SimDatabase:
    """That of this process: a forked one has its own."""
    return _database_of(os.getpid())


@cache
def _database_of(_pid: int) -> SimDatabase:
    return SimDatabase()


def let_go(writer: Writer) -> None:
    """Give the connection back: its owner is dead."""
    connection, writer._connection = writer._connection, None
    if connection is not None:
        connection.close()
