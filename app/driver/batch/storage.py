"""Where results lie: on this host, or on a Hadoop file system (`app.driver.batch.hadoop`).

A place is a text: an absolute path of this host, or the URI of a directory.
"""

from __future__ import annotations

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow
import pyarrow.parquet as parquet
from pyspark.sql import SparkSession

from app.driver.arrivals import RAW_FILES
from app.driver.failures import one_line
from app.durablefiles import write_whole
from app.model.resultsurl import is_local

DATA_FILES = "part-"
"""How the names of the files begin that Spark writes."""

LITERAL_PATH = {"__globPaths__": "false"}
"""Options of Spark for a place: it is no pattern, whatever characters it has."""

READ_OPTIONS = {
    **LITERAL_PATH,
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "parquet.page.verify-checksum.enabled": "true",
}
"""Options of every read of a result. A job may skip what is missing or damaged of its sources, but not of this."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file of a result."""

    name: str
    bytes: int
    rows: int


class Storage(ABC):
    """Every method may raise OSError: what it needs is not there or cannot be read. Nothing else means that.

    Raises:
        DriverError: a file system that is not on this host cannot be asked.
    """

    @property
    def write_options(self) -> Mapping[str, str]:
        """Options of Spark for a write here."""
        return {}

    @abstractmethod
    def uri(self, place: str) -> str:
        """``place`` in the form for Spark."""

    @abstractmethod
    def remove(self, place: str) -> None:
        """Remove a directory with all that is in it, if it is there."""

    @abstractmethod
    def names(self, place: str) -> list[str]:
        """What lies in a directory, sorted; nothing if it is not there."""

    @abstractmethod
    def lengths(self, place: str) -> dict[str, int]:
        """The files of a directory with their bytes."""

    @abstractmethod
    def data_files(self, place: str) -> list[DataFile]:
        """What Spark has written into a directory, sorted by name."""

    @abstractmethod
    def read(self, place: str, name: str) -> bytes:
        """The content of a small file."""

    @abstractmethod
    def write(self, place: str, name: str, content: bytes) -> None:
        """Write a small file that is not there yet: whole, or it is found out by its content."""

    @abstractmethod
    def damaged(self, place: str, names: Sequence[str], schema: str) -> tuple[str, str] | None:
        """Read data files from their beginning to their end: the name of one that is damaged, and why it is."""


class LocalStorage(Storage):
    """Directories of this host, without the JVM."""

    @property
    def write_options(self) -> Mapping[str, str]:
        return RAW_FILES

    def uri(self, place: str) -> str:
        # Without the scheme it would be a path of whatever file system a job makes the default one.
        return f"file://{place}"

    def remove(self, place: str) -> None:
        if os.path.lexists(place):
            shutil.rmtree(place)

    def names(self, place: str) -> list[str]:
        try:
            return sorted(os.listdir(place))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def lengths(self, place: str) -> dict[str, int]:
        with os.scandir(place) as entries:
            return {entry.name: entry.stat().st_size for entry in entries}

    def data_files(self, place: str) -> list[DataFile]:
        found = sorted(
            (name, size) for name, size in self.lengths(place).items() if name.startswith(DATA_FILES)
        )
        return [
            DataFile(name, size, parquet.read_metadata(os.path.join(place, name)).num_rows)
            for name, size in found
        ]

    def read(self, place: str, name: str) -> bytes:
        return Path(place, name).read_bytes()

    def write(self, place: str, name: str, content: bytes) -> None:
        write_whole(Path(place, name), content)

    def damaged(self, place: str, names: Sequence[str], schema: str) -> tuple[str, str] | None:
        for name in names:
            path = os.path.join(place, name)
            try:
                for _batch in parquet.ParquetFile(path, page_checksum_verification=True).iter_batches():
                    pass
            except (OSError, pyarrow.ArrowException) as error:
                return name, one_line(str(error), 200)
        return None


class Storages:
    """The storage of each place: after a change of the server's setting, results of one job may lie in two."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._local = LocalStorage()
        self._hadoop: Storage | None = None

    def of(self, place: str) -> Storage:
        if is_local(place):
            return self._local
        if self._hadoop is None:
            from app.driver.batch.hadoop import HadoopStorage

            self._hadoop = HadoopStorage(self._session)
        return self._hadoop
