"""What sources and sinks of a graph document need of the environment that its drivers run in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from app.model.environment import Looked, is_before
from app.model.jobgraph import JobGraph, SinkSpec, SourceSpec

_NUMBERED_ROWS: Final = ("numpy", "pyarrow")
_NUMBERED_ROWS_SINCE: Final = "4.2"
_SINKS: Final = {"sqlite": ("pyarrow",), "postgresql": ("psycopg", "pyarrow")}


def lacking(graph: JobGraph, looked: Looked) -> list[str]:
    """A sentence for each thing that the job needs and ``looked`` has not."""
    return list(_lacking(graph, looked))


def _lacking(graph: JobGraph, looked: Looked) -> Iterator[str]:
    for vertex in graph.vertices:
        operation = vertex.operation
        modules: tuple[str, ...] = ()
        if isinstance(operation, SourceSpec) and operation.format == "rate":
            modules = _NUMBERED_ROWS
            if is_before(looked.spark_version, _NUMBERED_ROWS_SINCE):
                yield (
                    f"environment: the source {vertex.name} ({operation.format}) needs PySpark {_NUMBERED_ROWS_SINCE} "
                    f"or newer, and this environment has PySpark {looked.spark_version}."
                )
        elif isinstance(operation, SinkSpec):
            modules = _SINKS.get(operation.format, ())
        if missing := [each for each in modules if each not in looked.modules]:
            assert isinstance(operation, SourceSpec | SinkSpec)
            what = "source" if isinstance(operation, SourceSpec) else "sink"
            yield (
                f"environment: the {what} {vertex.name} ({operation.format}) needs {' and '.join(missing)}, which this "
                f"environment has not. Install {'it' if len(missing) == 1 else 'them'} there."
            )
