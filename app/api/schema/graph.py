"""The documents of job graphs and programs as JSON schemas. `app.model` checks more than they can say."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from app.model.formats import FILE_FORMATS
from app.model.jobgraph import MAX_PARALLELISM_LIMIT, Exchange, JobType, OutputMode, Partitioner
from app.model.sink_formats import OWN_SINKS

_PARALLELISM = {"type": "integer", "minimum": 1, "maximum": MAX_PARALLELISM_LIMIT}
_NAME = {"type": "string", "minLength": 1, "maxLength": 200}
_VALUES = {"type": "object", "additionalProperties": {"type": ["string", "integer", "number", "boolean"]}}


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def _texts(description: str) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string"}, "description": description}


def _one_of(names: type[StrEnum]) -> dict[str, Any]:
    return {"enum": [name.value for name in names]}


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
                "partitioner": _one_of(Partitioner),
                "keys": {"type": "array", "minItems": 1, "items": _NAME},
                "exchange": _one_of(Exchange),
            },
            "How the rows of an input are spread over the tasks.",
        ),
    ]
}
_SOURCE = _closed(
    ["format"],
    {
        "format": _text(f"rate, {', '.join(FILE_FORMATS)}, kafka, or another source of Spark's by its name."),
        "path": {"type": "string"},
        "schema": _text("Column names and types, as in Spark's DDL."),
        "options": _VALUES,
        "static": {"type": "boolean", "description": "A side table, read whole."},
    },
    "Where rows come from.",
)
_SINK = _closed(
    ["format"],
    {
        "format": _text(f"{', '.join(OWN_SINKS)}, or a sink of Spark's by its name, such as parquet."),
        "path": {"type": "string"},
        "outputMode": _one_of(OutputMode),
        "options": _VALUES,
        "python": _text("module:function, for the format python."),
    },
    "Where rows go.",
)
_VERTEX = _closed(
    ["name"],
    {
        "name": _NAME,
        "source": _SOURCE,
        "sql": _text("A query that reads its inputs by their names."),
        "python": _text("module:function in one of the artifacts."),
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
_ARTIFACTS = _texts("Names of the files sent along.")
_CONFIG = {**_VALUES, "description": "Settings of Spark (`spark.*`) and options of the scheduler."}
_FROM = _text(
    "The directory of a checkpoint on the host of the server, or of one for each query: the job goes on from a copy."
)
_RUNTIME = {
    "environment": _closed(
        [],
        {
            "python": _text("The path of a Python that has PySpark."),
            "archive": _text("A packed environment: a path, or one of the artifacts."),
            "requirements": {"type": "array", "items": {"type": "string"}},
        },
        "The environment of the job: exactly one of these fields. Default: the environment of the server.",
    ),
    "packages": _texts("Packages of Spark: group:artifact:version."),
    "environmentVariables": {
        **_VALUES,
        "description": "Environment variables of the program, and of the Python workers of its tasks.",
    },
}
GRAPH_SCHEMA = _closed(
    ["name", "type", "vertices"],
    {
        "name": _NAME,
        "type": _one_of(JobType),
        "artifacts": _ARTIFACTS,
        **_RUNTIME,
        "from": _FROM,
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
        "type": {**_one_of(JobType), "default": JobType.STREAMING.value},
        "script": _text(
            "The file of the program, which is one of the files sent along: an ordinary PySpark script."
        ),
        "args": _texts("Its arguments."),
        "artifacts": _ARTIFACTS,
        **_RUNTIME,
        "from": _FROM,
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
