"""Results on a Hadoop file system, through the JVM: the client and the credentials are those of the job's Spark."""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, Concatenate, ParamSpec, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from app.driver.batch.storage import DATA_FILES, READ_OPTIONS, DataFile, Storage
from app.driver.causes import java_causes
from app.driver.failures import DriverError, describe, one_line

T = TypeVar("T")
P = ParamSpec("P")

# What the file system answers when it is there and the file is not, or not whole.
_GONE = frozenset({"FileNotFoundException", "BlockMissingException", "ChecksumException"})
# No later attempt will find these mended by themselves.
_FINAL = frozenset({"UnsupportedFileSystemException", "ClassNotFoundException"})
# Each footer is a call or two to another host.
_FOOTERS_AT_ONCE = 8


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

    @property
    def default_scheme(self) -> str:
        """The scheme of paths that name no file system."""
        return str(self.jvm.org.apache.hadoop.fs.FileSystem.getDefaultUri(self.conf).getScheme())


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
            return list(pool.map(described, [one for one in statuses if one[0].startswith(DATA_FILES)]))

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
