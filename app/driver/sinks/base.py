"""The base of all sinks: the batch that a sink gets, its answer, and its errors. And the sinks that need no more."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from app.driver.failures import TRANSIENT_ERRNOS, DriverError
from app.model.jobgraph import JobVertex, SinkSpec
from app.model.sink_formats import OWN_SINKS

if TYPE_CHECKING:
    from app.driver.sinks.database import DatabaseSink

MayCommit = Callable[[], None]
"""Raises `Fenced` when a newer driver owns the job. A sink calls it immediately before its commit point."""


@dataclass(frozen=True, slots=True)
class BatchRef:
    """A micro-batch. One that is re-run has the same ``query_id`` and ``batch_id``; ``epoch`` is the owner's."""

    query_id: str
    batch_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Written:
    """``rows`` of the batch, None where the sink does not know.

    ``repeated``: the batch had been written before, nothing was written again, and ``rows`` are those of then.
    """

    rows: int | None
    repeated: bool = False


class Sink(ABC):
    """Where the rows of one query go. Its options were checked when the job was submitted."""

    def prepare(self) -> None:
        """Check, once per start of the query, that the target can be written; make what is missing.

        Raises:
            DriverError: it cannot.
        """
        return

    def check(self, frame: DataFrame) -> None:
        """Whether rows with the columns of ``frame``, a stream that is never run, can be written.

        Raises:
            DriverError: the options of the sink do not fit the columns.
        """
        return

    @abstractmethod
    def write(self, frame: DataFrame, batch: BatchRef, may_commit: MayCommit) -> Written:
        """Write ``frame`` by exactly one Spark action over all its partitions, repeated batch or not.

        Raises:
            DriverError: the target refuses the rows, or cannot be reached.
            Fenced: a newer driver owns the job; nothing of the batch was written.
        """


def os_error(error: OSError, doing: str, vertex: str) -> DriverError:
    """``error`` as a sentence: '<doing>: <reason>.' A full disk may be a roomy one at the next attempt."""
    reason = error.strerror or type(error).__name__
    return DriverError(f"{doing}: {reason}.", vertex=vertex, recoverable=error.errno in TRANSIENT_ERRNOS)


def run_without_output(frame: DataFrame) -> None:
    """The one action, without using its rows: running all partitions commits the state."""
    frame.write.format("noop").mode("overwrite").save()


def open_sink(vertex: JobVertex, *, work_dir: Path, functions: Callable[[str], Callable[..., Any]]) -> Sink:
    """The sink of ``vertex``. ``functions`` resolves ``module:function``; ``work_dir`` is for rows on their way.

    Raises:
        DriverError: the sink cannot be as it is described. Nothing was touched yet.
    """
    spec = vertex.operation
    assert isinstance(spec, SinkSpec), f"vertex {vertex.name} is not a sink"
    match spec.format:
        case "python":
            return _open_python(vertex, spec, functions)
        case "noop":
            return NoopSink()
        case database if database in OWN_SINKS:
            # Only now: its libraries need not be where no job has such a sink.
            kind: type[DatabaseSink] = import_module(f"app.driver.sinks.{database}").SINK
            return kind.of(vertex, spec, work_dir)
        case _:
            from app.driver.sinks.files import FileSink

            return FileSink.of(vertex, spec)


@dataclass(frozen=True)
class PythonSink(Sink):
    """``function(frame, batch_id)``, or ``function(frame, batch_id, query_id)`` where it has that parameter.

    It is called at least once per batch; writing a batch only once is the function's own matter.
    """

    function: Callable[..., Any]
    takes_query: bool

    def write(self, frame: DataFrame, batch: BatchRef, may_commit: MayCommit) -> Written:
        # The commit point is somewhere in the function, so this is as late as it can be.
        may_commit()
        if self.takes_query:
            self.function(frame, batch.batch_id, query_id=batch.query_id)
        else:
            self.function(frame, batch.batch_id)
        return Written(None)


class NoopSink(Sink):
    """Runs the job and keeps nothing; in streams this sink is Spark's own."""

    def write(self, frame: DataFrame, batch: BatchRef, may_commit: MayCommit) -> Written:
        run_without_output(frame)
        return Written(None)


def _open_python(
    vertex: JobVertex, spec: SinkSpec, functions: Callable[[str], Callable[..., Any]]
) -> PythonSink:
    """The Python sink of ``vertex``.

    Raises:
        DriverError: there is no such function, or it cannot be called with a frame and a batch id.
    """
    assert spec.python is not None
    function = functions(spec.python.entry)
    try:
        parameters = inspect.signature(function).parameters
        takes_query = "query_id" in parameters
        inspect.signature(function).bind(None, 0, **({"query_id": ""} if takes_query else {}))
    except (TypeError, ValueError):
        raise DriverError(
            f"The function {spec.python.entry} of the sink {vertex.name} must take (frame, batch_id) or "
            f"(frame, batch_id, query_id).",
            vertex=vertex.name,
        ) from None
    return PythonSink(function, takes_query)
