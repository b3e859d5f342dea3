"""Opens the sinks of Slotwise's own; two of them need no module of their own: Python functions, and noop."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from app.driver.failures import DriverError
from app.driver.needs import require
from app.driver.sinks.base import BatchRef, MayCommit, Sink, Written, run_without_output
from app.driver.sinks.files import FileSink
from app.model.jobgraph import JobVertex, SinkSpec
from app.model.sink_formats import OWN_SINKS

if TYPE_CHECKING:
    from app.driver.sinks.database import DatabaseSink


def open_sink(vertex: JobVertex, *, work_dir: Path, functions: Callable[[str], Callable[..., Any]]) -> Sink:
    """The sink of ``vertex``. ``functions`` resolves ``module:function``; ``work_dir`` is for rows on their way.

    Raises:
        DriverError: the sink cannot be as it is described. Nothing was touched yet.
    """
    spec = vertex.operation
    assert isinstance(spec, SinkSpec), f"vertex {vertex.name} is not a sink"
    match spec.format:
        case "python":
            return open_python(vertex, spec, functions)
        case "noop":
            return NoopSink()
        case database if database in OWN_SINKS:
            # Only now: its libraries need not be where no job has such a sink.
            require(vertex, f"a {database} sink", OWN_SINKS[database].modules)
            kind: type[DatabaseSink] = import_module(f"app.driver.sinks.{database}").SINK
            return kind.of(vertex, spec, work_dir)
        case _:
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


def open_python(
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
