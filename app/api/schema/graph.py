"""The documents of job graphs and programs as JSON schemas. `app.model` checks more than they can say."""

from __future__ import annotations

from typing import Any

from app.model.formats import FORMATS
from app.model.jobgraph import MAX_PARALLELISM_LIMIT, Exchange, JobType, OutputMode, Partitioner
from app.model.sink_formats import SINKS

_PARALLELISM = {"type": "integer", "minimum": 1, "maximum": MAX_PARALLELISM_LIMIT}
_NAME = {"type": "string", "minLength": 1, "maxLength": 200}
_VALUES = {"type": "object", "additionalProperties": {"type": ["string", "integer", "number", "boolean"]}}


def _closed(required: list[str], properties: dict[str, Any], description: str) -> dict[str, Any]:
    return {
        "type": "object",
        "description": description,
        "required": required,
        "additionalProperties": False,
        "properties": properties,
    }


_INPUT = {
    "anyOf": [
        _NAME,
        _closed(
            ["vertex"],
            {
                "vertex": _NAME,
                "partitioner": {"enum": [value.value for value in Partitioner]},
                "keys": {"type": "array", "minItems": 1, "items": _NAME},
                "exchange": {"enum": [value.value for value in Exchange]},
            },
            "How the rows of an input are spread over the tasks.",
        ),
    ]
}
_SOURCE = _closed(
    ["format"],
    {
        "format": {
            "type": "string",
            "description": f"{', '.join(FORMATS)}, or another source of Spark's by its name.",
        },
        "path": {"type": "string"},
        "schema": {"type": "string", "description": "Column names and types, as in Spark's DDL."},
        "options": _VALUES,
        "static": {"type": "boolean", "description": "A side table, read whole."},
    },
    "Where rows come from.",
)
_SINK = _closed(
    ["format"],
    {
        "format": {
            "type": "string",
            "description": f"{', '.join(SINKS)}, or another sink of Spark's by its name.",
        },
        "path": {"type": "string"},
        "outputMode": {"enum": [value.value for value in OutputMode]},
        "options": _VALUES,
        "python": {"type": "string", "description": "module:function, for the format python."},
    },
    "Where rows go.",
)
_VERTEX = _closed(
    ["name"],
    {
        "name": _NAME,
        "source": _SOURCE,
        "sql": {"type": "string", "description": "A query that reads its inputs by their names."},
        "python": {"type": "string", "description": "module:function in one of the artifacts."},
        "sink": _SINK,
        "inputs": {"type": "array", "items": _INPUT},
        "parallelism": {**_PARALLELISM, "description": "The initial upper bound."},
        "lowerBound": {**_PARALLELISM, "description": "The initial lower bound."},
        "maxParallelism": {**_PARALLELISM, "description": "For a stateful vertex: its state partitions."},
        "stateful": {"type": "boolean"},
        "slotSharingGroup": _NAME,
    },
    "Exactly one of source, sql, python and sink.",
)
_ARTIFACTS = {
    "type": "array",
    "items": {"type": "string"},
    "description": "Names of the files sent along.",
}
_CONFIG = {**_VALUES, "description": "Settings of Spark (`spark.*`) and options of the scheduler."}
_RUNTIME = {
    "environment": _closed(
        [],
        {
            "python": {"type": "string", "description": "The path of a Python that has PySpark."},
            "archive": {
                "type": "string",
                "description": "A packed environment: a path, or one of the artifacts.",
            },
            "requirements": {"type": "array", "items": {"type": "string"}},
        },
        "The environment of the job: exactly one of these fields. Default: the environment of the server.",
    ),
    "packages": {
        "type": "array",
        "items": {"type": "string"},
        "description": "Packages of Spark: group:artifact:version.",
    },
}
GRAPH_SCHEMA = _closed(
    ["name", "type", "vertices"],
    {
        "name": _NAME,
        "type": {"enum": [value.value for value in JobType]},
        "artifacts": _ARTIFACTS,
        **_RUNTIME,
        "config": _CONFIG,
        "vertices": {"type": "array", "minItems": 2, "items": _VERTEX},
    },
    "A job graph document.",
)
GRAPH_EXAMPLE: dict[str, Any] = {
    "name": "counts-by-key",
    "type": "STREAMING",
    "vertices": [
        {"name": "numbers", "source": {"format": "rate", "options": {"rowsPerSecond": "100"}}},
        {
            "name": "counts",
            "inputs": ["numbers"],
            "sql": "SELECT value % 10 AS k, count(*) AS n FROM numbers GROUP BY value % 10",
            "parallelism": 4,
        },
        {"name": "store", "inputs": ["counts"], "sink": {"format": "noop", "outputMode": "update"}},
    ],
}
PROGRAM_SCHEMA = _closed(
    ["name", "script"],
    {
        "name": _NAME,
        "type": {"enum": [value.value for value in JobType], "default": JobType.STREAMING.value},
        "script": {
            "type": "string",
            "description": "The file of the program, which is one of the files sent along: an ordinary PySpark script.",
        },
        "args": {"type": "array", "items": {"type": "string"}, "description": "Its arguments."},
        "artifacts": _ARTIFACTS,
        **_RUNTIME,
        "from": {
            "type": "string",
            "description": "The directory of a checkpoint on the host of the server, or of one for each query: the job "
            "goes on from a copy of it.",
        },
        "config": _CONFIG,
        "bounds": {
            "type": "object",
            "description": "How parallel the vertices may be, by name; default: 1 to the state partitions, or 12.",
            "additionalProperties": _closed(
                [],
                {"lowerBound": _PARALLELISM, "upperBound": _PARALLELISM},
                "The initial bounds of a vertex.",
            ),
        },
    },
    "A program, whose vertices are read from its plan.",
)
