"""A SQLite sink whose file another user reads: SQLite calls a file read-only while somebody else opens it."""

from __future__ import annotations

import multiprocessing
import os
import pwd
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from app.driver.failures import DriverError
from app.driver.sinks.sqlite import SqliteSink

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: only root can be two users")

TRANSACTIONS = 40
_FORK = multiprocessing.get_context("fork")


@pytest.fixture
def file() -> Iterator[Path]:
    """In a directory that is the other user's; pytest's own are private."""
    account = pwd.getpwnam("nobody")
    with tempfile.TemporaryDirectory(prefix="slotwise-") as directory:
        os.chown(directory, account.pw_uid, account.pw_gid)
        yield Path(directory) / "out.db"


def as_nobody(work: Callable[[], str]) -> tuple[Connection, multiprocessing.process.BaseProcess]:
    """``work`` in a process of another user; what it returns, or the sentence of its failure, is sent."""
    receiving, sending = _FORK.Pipe(duplex=False)

    def run() -> None:
        account = pwd.getpwnam("nobody")
        os.setgroups([])
        os.setgid(account.pw_gid)
        os.setuid(account.pw_uid)
        try:
            sending.send(work())
        except DriverError as error:
            sending.send(f"{'again' if error.recoverable else 'final'}: {error}")

    process = _FORK.Process(target=run, daemon=True)
    process.start()
    return receiving, process


def writer(file: Path) -> Callable[[], str]:
    sink = SqliteSink("store", "rows", (), False, file.parent, file)

    def work() -> str:
        for number in range(TRANSACTIONS):
            with sink.transaction() as db:
                db.execute("CREATE TABLE IF NOT EXISTS numbers (number)")
                db.execute("INSERT INTO numbers VALUES (?)", (number,))
        return "written"

    return work


def test_a_reader_of_another_user_stops_no_batch(file: Path) -> None:
    told, process = as_nobody(writer(file))
    while not told.poll():
        assert process.is_alive(), "the writer is gone"
        if file.exists():
            reader = sqlite3.connect(file, timeout=30)
            reader.execute("SELECT count(*) FROM sqlite_master").fetchone()
            reader.close()
    assert told.recv() == "written"


def test_a_file_that_is_not_ours_to_write_is_refused_at_once(file: Path) -> None:
    sqlite3.connect(file).execute("CREATE TABLE numbers (number)")
    file.chmod(0o444)
    told, _ = as_nobody(writer(file))
    assert told.poll(SqliteSink.busy_timeout_s / 2), "it was tried again"
    assert told.recv().startswith(f"final: The sqlite sink store cannot write to {file}: ")
