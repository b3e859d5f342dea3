"""Where results lie: on this host, or on a Hadoop file system, through the JVM: the client and the credentials are
those of the job's Spark.

A place is a text: an absolute path of this host, or the URI of a directory.
"""

from __future__ import annotations

import errno
import os
import posixpath
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import pyarrow
import pyarrow.parquet as parquet
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from app.driver.arrivals import RAW_FILES
from app.driver.causes import java_causes
from app.driver.failures import DriverError, describe, one_line
from app.durablefiles import write_whole
from app.model.resultsurl import is_local

_DATA_FILES = "part-"
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

T = TypeVar("T")
P = ParamSpec("P")

# What the file system answers when it is there and the file is not, or not whole.
_GONE = frozenset({"FileNotFoundException", "BlockMissingException", "ChecksumException"})
# No later attempt will find these mended by themselves.
_FINAL = frozenset({"UnsupportedFileSystemException", "ClassNotFoundException"})
# Each footer is a call or two to another host.
_FOOTERS_AT_ONCE = 8


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
            (name, size) for name, size in self.lengths(place).items() if name.startswith(_DATA_FILES)
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
            self._hadoop = HadoopStorage(self._session)
        return self._hadoop


class HadoopFiles:
    """The Hadoop file systems that the SparkContext of ``session`` is configured for."""

    def __init__(self, session: SparkSession) -> None:
        context = session.sparkContext
        assert context._jvm is not None
        self.jvm: Any = context._jvm
        self.conf = context._jsc.hadoopConfiguration()
        self._path = self.jvm.org.apache.hadoop.fs.Path

    def path(self, text: str, name: str = "") -> Any:
        return self._path(posixpath.join(text, name))

    def system(self, text: str) -> Any:
        return self.path(text).getFileSystem(self.conf)


def _asking(
    method: Callable[Concatenate[HadoopStorage, str, P], T],
) -> Callable[Concatenate[HadoopStorage, str, P], T]:
    """Decorates a method of a place: it raises what methods of a `Storage` raise.

    Raises:
        FileNotFoundError: something is missing.
        DriverError: the file system cannot be asked.
    """

    def ask(self: HadoopStorage, place: str, /, *given: P.args, **named: P.kwargs) -> T:
        try:
            return method(self, place, *given, **named)
        except Py4JJavaError as error:
            causes = list(java_causes(error.java_exception))
            names = [str(each.getClass().getSimpleName()) for each in causes]
            message = next((str(said) for each in reversed(causes) if (said := each.getMessage())), "")
            if _GONE & set(names):
                raise FileNotFoundError(errno.ENOENT, one_line(message, 300)) from error
            final = bool(_FINAL & set(names))
            raise DriverError(_cannot(place, f"{names[-1]}: {message}"), recoverable=not final) from error
        except Exception as error:
            # If the JVM has ended, the connection to it may fail with an OSError. That is no file that is missing.
            raise DriverError(_cannot(place, str(error)), recoverable=True) from error

    return ask


class HadoopStorage(Storage):
    """A file system may be an object store: nothing here is renamed, and a file counts once it is closed."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._files = HadoopFiles(session)

    def uri(self, place: str) -> str:
        return place

    @_asking
    def remove(self, place: str) -> None:
        self._files.system(place).delete(self._files.path(place), True)

    def names(self, place: str) -> list[str]:
        try:
            return sorted(self.lengths(place))
        except FileNotFoundError:
            return []

    @_asking
    def lengths(self, place: str) -> dict[str, int]:
        return {name: int(one.getLen()) for name, one in self._statuses(place).items()}

    @_asking
    def data_files(self, place: str) -> list[DataFile]:
        def described(named: tuple[str, Any]) -> DataFile:
            name, status = named
            return DataFile(name, int(status.getLen()), self._rows(status))

        statuses = sorted(self._statuses(place).items(), key=lambda named: named[0])
        with ThreadPoolExecutor(_FOOTERS_AT_ONCE, thread_name_prefix="footers") as pool:
            return list(pool.map(described, [one for one in statuses if one[0].startswith(_DATA_FILES)]))

    def _rows(self, status: Any) -> int:
        hadoop = self._files.jvm.org.apache.parquet.hadoop
        file = hadoop.util.HadoopInputFile.fromStatus(status, self._files.conf)
        with closing(hadoop.ParquetFileReader.open(file)) as reader:
            return int(reader.getRecordCount())

    @_asking
    def read(self, place: str, name: str) -> bytes:
        with closing(self._files.system(place).open(self._files.path(place, name))) as stream:
            return bytes(stream.readAllBytes())

    @_asking
    def write(self, place: str, name: str, content: bytes) -> None:
        with closing(self._files.system(place).create(self._files.path(place, name), False)) as stream:
            stream.write(content)

    def damaged(self, place: str, names: Sequence[str], schema: str) -> tuple[str, str] | None:
        """Spark reads all columns; which file it failed at is in its message."""
        try:
            frame = self._session.read.options(**READ_OPTIONS).schema(schema).parquet(place)
            frame.write.format("noop").mode("overwrite").save()
        except Exception as error:
            text = str(error)
            found = [(text.index(name), name) for name in names if name in text]
            return (min(found)[1], one_line(describe(error).sentence, 200)) if found else None
        return None

    def _statuses(self, place: str) -> dict[str, Any]:
        """What Hadoop knows of everything in a directory, by name."""
        found = self._files.system(place).listStatus(self._files.path(place))
        return {str(status.getPath().getName()): status for status in found}


def _cannot(place: str, why: str) -> str:
    return one_line(f"The file system of the results, {place}, cannot be used: {why}", 400)
