"""The sink that is a Python function, and that of BATCH jobs which keeps nothing."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from app.driver.failures import DriverError
from app.driver.sinks.base import BatchRef, MayCommit, Sink, Written, run_without_output
from app.model.jobgraph import JobVertex, SinkSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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
