"""The files of this host that a job graph names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from app.model.jobgraph import JobGraph, SinkSpec, SourceSpec

# file:/x, file:///x, file://localhost/x, sqlite:///x, jdbc:sqlite:/x
_SCHEME: Final = re.compile(r"(?:jdbc:)?(?:file|sqlite|duckdb):(?://(?:localhost)?+(?=/))?+", re.IGNORECASE)


def local_paths(graph: JobGraph) -> Iterator[tuple[str, str]]:
    """The name of each vertex that reads or writes a file, and the absolute path of it: its ``path``, and each option
    that is one."""
    for vertex in graph.vertices:
        if not isinstance(vertex.operation, SourceSpec | SinkSpec):
            continue
        for text in (vertex.operation.path or "", *(value for _, value in vertex.operation.options)):
            path = _SCHEME.sub("", text.strip(), count=1) if _SCHEME.match(text.strip()) else text.strip()
            if path.startswith("/"):
                # Before a second slash Python and Hadoop would see the name of a host.
                yield vertex.name, re.sub("^/+", "/", path)


def refusal_of(vertex: str, path: str) -> str:
    """Why that vertex may not have ``path``."""
    return (
        f"Vertex {vertex}: the path {path} is in a directory of the server, which jobs may not read or write."
    )
