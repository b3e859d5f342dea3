"""Slotwise's own sinks: databases, Python functions, files of BATCH jobs. docs/sinks.md has their guarantees."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.driver.sinks.base import BatchRef, MayCommit, Sink, Written
from app.driver.sinks.files import FileSink
from app.driver.sinks.functions import NoopSink, open_python
from app.model.jobgraph import JobVertex, SinkSpec
from app.model.sink_formats import OWN_SINKS

if TYPE_CHECKING:
    from app.driver.sinks.database import DatabaseSink

__all__ = ["BatchRef", "MayCommit", "Sink", "Written", "open_sink"]


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
            kind: type[DatabaseSink] = import_module(f"{__name__}.{database}").SINK
            return kind.of(vertex, spec, work_dir)
        case _:
            return FileSink.of(vertex, spec)
