"""The files of a SQLite database that is open: the database, its write-ahead log (``-wal``), and the index of that
log (``-shm``).

SQLite goes on with files that were moved away or deleted, where no start would find what it writes. So before a commit
and before its answer the paths are compared with the files that are open. When only the log is gone, SQLite can still
read it: a checkpoint then brings into the database what was acknowledged.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from app.store.errors import StoreUnavailable

_SUFFIXES = ("", "-wal", "-shm")


class OpenFiles:
    """Those of one database, from `open` to `close`; before and after, and without a file: none.

    It holds a connection of its own: as long as one is open SQLite removes no log, so each of the files must be there.
    """

    def __init__(self) -> None:
        self._connection: sqlite3.Connection | None = None
        self._opened: list[tuple[Path, os.stat_result]] = []
        self._database: tuple[Path, ...] = ()
        self._is_saved = False

    def open(self, path: Path, busy_timeout_ms: int) -> None:
        """Look after the files of the database at ``path``, which is open already.

        Raises:
            StoreUnavailable: it cannot be read.
        """
        try:
            self._connection = sqlite3.connect(
                path, timeout=busy_timeout_ms / 1000, check_same_thread=False, isolation_level=None
            )
            # The first read opens the log, or makes it.
            self._connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            (mode,) = self._connection.execute("PRAGMA journal_mode").fetchone()
            # Where SQLite has it: the log lies beside the file that a link leads to.
            real = Path(self._connection.execute("PRAGMA database_list").fetchone()[2])
            # Not every file system allows a write-ahead log.
            files = [path, *(Path(f"{real}{suffix}") for suffix in (_SUFFIXES if mode == "wal" else [""]))]
            self._opened = [(file, os.stat(file)) for file in dict.fromkeys(files)]
            self._database = (path, real)
        except (sqlite3.Error, OSError) as error:
            raise StoreUnavailable(f"The database {path} cannot be opened: {error}.") from error

    @property
    def missing(self) -> Path | None:
        """The first of the files whose path does not lead to the file that is open; None if all do."""
        for file, opened in self._opened:
            try:
                if not os.path.samestat(opened, os.stat(file)):
                    return file
            except OSError:
                return file
        return None

    def check(self) -> None:
        """Raises StoreUnavailable: a file was removed or replaced."""
        file = self.missing
        if file is None:
            self._is_saved = False
            return
        if file in self._database:
            raise StoreUnavailable(
                f"The database {file} was removed or replaced while it is in use: put it back, or restart the server."
            )
        what_to_do = (
            f"what was recorded before is safe in {self._database[0]}. Restart the server."
            if self._is_saved
            else "put it back. A restart without it may lose what was recorded last."
        )
        raise StoreUnavailable(
            f"The file {file} was removed or replaced while the database is in use. Nothing more is recorded; "
            f"{what_to_do}"
        )

    def save(self, *, again: bool = False) -> bool:
        """Bring what a lost log has into the database; whether no part of it is missing there.

        ``again``: though that was done before. No transaction of the caller may be open.
        """
        missing = self.missing
        if self._connection is None or missing is None:
            return True
        if missing in self._database:
            return False
        if again or not self._is_saved:
            try:
                busy, frames, copied = self._connection.execute("PRAGMA wal_checkpoint(FULL)").fetchone()
                self._is_saved = busy == 0 and frames == copied
            except sqlite3.Error:
                self._is_saved = False
        return self._is_saved

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
