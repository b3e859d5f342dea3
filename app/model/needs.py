"""What a job graph needs where its driver runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Final

from app.model.environment import EnvironmentSpec, Looked, is_before
from app.model.jobgraph import JobGraph, SinkSpec, SourceSpec
from app.model.sink_formats import OWN_SINKS

_NUMBERED_ROWS: Final = ("numpy", "pyarrow")
_NUMBERED_ROWS_SINCE: Final = "4.2"
REPARTITION_ENABLED: Final = "slotwise.state.repartition.enabled"
_REPARTITION_SINCE: Final = "4.2"


def lacking(graph: JobGraph, looked: Looked) -> list[str]:
    """A sentence for each thing that the job needs and ``looked`` has not."""
    return list(_lacking(graph, looked))


def with_what_is_possible(graph: JobGraph, looked: Looked) -> JobGraph:
    """``graph``, whose state is not to be redistributed if the PySpark cannot do that."""
    if graph.program is not None or not is_before(looked.spark_version, _REPARTITION_SINCE):
        return graph
    config = {**dict(graph.config), REPARTITION_ENABLED: "false"}
    return dataclasses.replace(graph, config=tuple(config.items()))


def _lacking(graph: JobGraph, looked: Looked) -> Iterator[str]:
    spec = graph.runtime.environment or EnvironmentSpec()
    how = "Install {} there."
    if spec.requirements:
        how = "Add {} to environment.requirements."
    elif spec.archive is not None:
        how = "Pack {} into the archive."
    asked = dict(graph.config).get(REPARTITION_ENABLED, "false").strip().lower()
    if asked == "true" and graph.program is None and is_before(looked.spark_version, _REPARTITION_SINCE):
        yield (
            f"config: {REPARTITION_ENABLED} cannot be true: PySpark {looked.spark_version} cannot redistribute state, "
            f"which {_REPARTITION_SINCE} and newer can."
        )
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
        elif isinstance(operation, SinkSpec) and operation.format in OWN_SINKS:
            modules = OWN_SINKS[operation.format].modules
        if missing := [each for each in modules if each not in looked.modules]:
            assert isinstance(operation, SourceSpec | SinkSpec)
            what = "source" if isinstance(operation, SourceSpec) else "sink"
            yield (
                f"environment: the {what} {vertex.name} ({operation.format}) needs {' and '.join(missing)}, which this "
                f"environment has not. {how.format('it' if len(missing) == 1 else 'them')}"
            )
