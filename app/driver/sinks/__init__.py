"""Sinks: what a query does with the rows of a micro-batch. One module per kind.

docs/sinks.md says what each promises.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from app.driver.failures import DriverError
from app.driver.sinks.base import BatchRef, MayCommit, Options, Sink, Written
from app.driver.sinks.database import open_database
from app.driver.sinks.files import open_files
from app.driver.sinks.functions import NoopSink, open_python
from app.model.jobgraph import JobVertex, SinkSpec

__all__ = ["BatchRef", "MayCommit", "Sink", "Written", "open_sink"]


def open_sink(vertex: JobVertex, *, work_dir: Path, functions: Callable[[str], Callable[..., Any]]) -> Sink:
    """The sink of ``vertex``. ``functions`` resolves ``module:function``; ``work_dir`` is for rows on their way.

    Raises:
        DriverError: the sink cannot be as it is described. Nothing was touched yet.
    """
    spec = vertex.operation
    assert isinstance(spec, SinkSpec), f"vertex {vertex.name} is not a sink"
    match spec.format:
        case "parquet" | "json" | "csv":
            return open_files(vertex, spec)
        case "sqlite" | "postgresql":
            return open_database(vertex, spec, work_dir)
        case "python":
            return open_python(vertex, spec, functions)
        case "noop":
            Options.of(vertex, spec, ())
            return NoopSink()
        case other:
            raise DriverError(
                f"The sink {vertex.name} has the format {other}, which must be one of parquet, json, csv, sqlite, "
                f"postgresql, python, noop.",
                vertex=vertex.name,
            )
