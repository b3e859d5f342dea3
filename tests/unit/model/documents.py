"""Job graph documents for the tests of the model, and what is wrong with them."""

from __future__ import annotations

from typing import Any

from app.documents.graph import parse_document
from app.model.grapherrors import GraphErrors
from app.model.jobgraph import JobVertex

FLIGHTS: dict[str, Any] = {"name": "flights", "source": {"format": "rate"}}
COUNTS: dict[str, Any] = {
    "name": "counts",
    "inputs": ["flights"],
    "sql": "SELECT value % 10 AS k, count(*) AS n FROM flights GROUP BY value % 10",
}
STORE: dict[str, Any] = {
    "name": "store",
    "inputs": ["counts"],
    "sink": {"format": "noop", "outputMode": "update"},
}


def document(*vertices: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A document with these vertices; source, aggregate and sink if none are given."""
    chosen = vertices or (FLIGHTS, COUNTS, STORE)
    return {"name": "job", "type": "STREAMING", "vertices": list(chosen), **fields}


def errors(value: object) -> list[str]:
    """What `parse_document` says about ``value``; empty if it takes it."""
    try:
        parse_document(value)
    except GraphErrors as error:
        return error.errors
    return []


def changed(vertex: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """``vertex`` with other fields; one that is None is left out."""
    return {name: value for name, value in {**vertex, **fields}.items() if value is not None}


def vertex(name: str, *vertices: dict[str, Any], **fields: Any) -> JobVertex:
    """One vertex of the graph that `document` with these arguments describes."""
    return parse_document(document(*vertices, **fields)).by_name[name]


def source_errors(source: object, **fields: Any) -> list[str]:
    """The errors of a job that reads ``source``."""
    return errors(
        document(
            {"name": "flights", "source": source},
            changed(STORE, inputs=["flights"], sink={"format": "noop"}),
            **fields,
        )
    )


def sink_errors(sink: object, **fields: Any) -> list[str]:
    """The errors of a job that counts and writes to ``sink``."""
    return errors(document(FLIGHTS, COUNTS, changed(STORE, sink=sink), **fields))
