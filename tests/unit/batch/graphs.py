"""Batch graphs in few words, for the tests of regions."""

from __future__ import annotations

from app.model import ids
from app.model.jobgraph import (
    Exchange,
    JobGraph,
    JobType,
    JobVertex,
    SinkSpec,
    SourceSpec,
    SqlSpec,
    VertexInput,
)

NAME = "batch"


def key(name: str) -> str:
    return ids.vertex_id(NAME, name)


def graph(text: str) -> JobGraph:
    """``"a; b -a; c -a =b"``: a, then b that reads a PIPELINED, then c that reads a PIPELINED and b BLOCKING."""
    vertices = []
    consumed = {word[1:] for part in text.split(";") for word in part.split()[1:]}
    for part in text.split(";"):
        name, *inputs = part.split()
        operation: SourceSpec | SqlSpec | SinkSpec = SqlSpec("SELECT 1")
        if not inputs:
            operation = SourceSpec("parquet", path="/data")
        elif name not in consumed:
            operation = SinkSpec("noop")
        exchanges = {"-": Exchange.PIPELINED, "=": Exchange.BLOCKING}
        vertices.append(
            JobVertex(
                id=key(name),
                name=name,
                operation=operation,
                inputs=tuple(
                    VertexInput(key(one[1:]), one[1:], exchange=exchanges[one[0]]) for one in inputs
                ),
                parallelism=4,
                lower_bound=1,
                max_parallelism=128,
                slot_sharing_group="default",
                slot_sharing_group_id=ids.slot_sharing_group_id(NAME, "default"),
            )
        )
    return JobGraph(NAME, JobType.BATCH, tuple(vertices))


def names(graph: JobGraph, vertex_ids: tuple[str, ...]) -> str:
    return " ".join(graph.by_id[one].name for one in vertex_ids)
