"""Sinks of documents."""

from __future__ import annotations

from typing import Any

import pytest

from app.documents.graph import parse_document
from app.model.graphdoc import read_graph, to_document
from app.model.jobgraph import OutputMode, PythonSpec, SinkSpec
from app.model.sink_formats import OWN_SINKS
from tests.unit.model.documents import (
    COUNTS,
    FLIGHTS,
    STORE,
    changed,
    document,
    errors,
    sink_errors,
    vertex,
)

FORMATS_OF_SINKS = f"{', '.join(OWN_SINKS)} or the name of a format of Spark's, such as parquet"
RELATIVE = (
    " is relative: an absolute path is expected. (slotwise submit makes paths absolute, seen from the graph "
)


@pytest.mark.parametrize(
    ("sink", "error"),
    [
        ({}, f".format: is missing: {FORMATS_OF_SINKS} is expected."),
        (
            "noop",
            ": should be a mapping with format, path, outputMode, options, python, found the text 'noop'.",
        ),
        (
            {"format": "postgres"},
            f".format: should be {FORMATS_OF_SINKS}, found 'postgres'. Did you mean 'postgresql'?",
        ),
        ({"format": "a format"}, f".format: should be {FORMATS_OF_SINKS}, found 'a format'."),
        ({"format": "orc"}, ".path: is missing: format orc needs an absolute path."),
        ({"format": "text", "path": "out"}, ".path: 'out'" + RELATIVE),
        (
            {"format": "orc", "path": "/x", "options": {"partitionBy": "a"}},
            ".options.partitionBy: is not an option of sinks of format orc: Spark takes it by a call of its own",
        ),
        (
            {"format": "org.example.Sink", "options": {"CheckpointLocation": "/c"}},
            ".options.CheckpointLocation: is not an option of sinks of format org.example.Sink: the checkpoint of",
        ),
        (
            {"format": "Iceberg", "path": "/x", "options": {"table": "a.b"}},
            ".options.table: and path exclude each other: one of them says where a sink of format Iceberg writes.",
        ),
        ({"format": "parquet"}, ".path: is missing: format parquet needs an absolute path."),
        ({"format": "json", "path": "out/"}, ".path: 'out/'" + RELATIVE),
        (
            {"format": "noop", "outputMode": "overwrite"},
            ".outputMode: should be one of append, update, complete, found the text 'overwrite'.",
        ),
        ({"format": "noop", "path": "/x"}, ".path: is not a field of a sink of format noop."),
        (
            {"format": "noop", "options": {"a": "b"}},
            ".options.a: is not an option of sinks of format noop, which have none.",
        ),
        (
            {"format": "noop", "python": "m:f"},
            ".python: cannot be combined with format noop: give one of them.",
        ),
        (
            {"format": "noop", "outptMode": "append"},
            ".outptMode: is not a field of a sink. Did you mean 'outputMode'?",
        ),
        ({"format": "python"}, ".python: is missing: module:function is expected."),
        ({"python": "m"}, ".python: should be module:function, such as 'routes:with_airline', found 'm'."),
        ({"python": "m:f", "options": {"a": 1}}, ".options: are not allowed: a python sink has none."),
        (
            {"format": "sqlite", "options": {"table": "t"}},
            ".path: is missing: format sqlite needs an absolute path.",
        ),
        ({"format": "sqlite", "path": "/x.db"}, ".options.table: is missing: a sqlite sink needs it."),
        ({"format": "sqlite", "path": "/x.db", "options": {"table": " "}}, ".options.table: is missing"),
        (
            {"format": "sqlite", "path": "/x.db", "options": {"table": "main._slotwise_Batches"}},
            ".options.table: must not be _slotwise_batches, which records the batches.",
        ),
        (
            {"format": "parquet", "path": "/x", "options": {"partitionBy": "a"}},
            ".options.partitionBy: is not an option of sinks of format parquet: Spark takes it by a call of its own",
        ),
        (
            {"format": "sqlite", "path": "/x.db", "options": {"table": "t", "tabel": "t"}},
            ".options.tabel: is not an option of a sqlite sink. Did you mean 'table'? Allowed are table, mode, keys.",
        ),
        (
            {"format": "sqlite", "path": "http://x", "options": {"table": "t"}},
            ".path: should be an absolute path on a mounted file system",
        ),
        (
            {"format": "sqlite", "path": "/x.db", "options": {"table": "t", "mode": "insert"}},
            ".options.mode: should be append or upsert, found 'insert'.",
        ),
        (
            {"format": "sqlite", "path": "/x.db", "options": {"table": "t", "mode": "upsert"}},
            ".options.keys: is missing: upsert needs the key columns, separated by commas.",
        ),
        (
            {
                "format": "sqlite",
                "path": "/x.db",
                "options": {"table": "t", "mode": "upsert", "keys": "a,,b"},
            },
            ".options.keys: should be column names separated by commas, each once, found 'a,,b'.",
        ),
        (
            {
                "format": "sqlite",
                "path": "/x.db",
                "options": {"table": "t", "mode": "upsert", "keys": "a, a"},
            },
            ".options.keys: should be column names",
        ),
        (
            {"format": "sqlite", "path": "/x.db", "options": {"table": "t", "keys": "a"}},
            ".options.keys: is for mode upsert; the mode is append.",
        ),
        (
            {"format": "postgresql", "options": {"table": "t"}},
            ".options.url: is missing: a postgresql sink needs it.",
        ),
        (
            {"format": "postgresql", "path": "/x", "options": {"table": "t", "url": "u"}},
            ".path: is not a field of a sink of format postgresql.",
        ),
    ],
)
def test_sinks_that_are_wrong(sink: Any, error: str) -> None:
    found = sink_errors(sink, artifacts=["m.py"])
    assert len(found) == 1, found
    assert found[0].startswith("vertices[2].sink" + error)


@pytest.mark.parametrize(
    "sink",
    [
        {"format": "noop"},
        {"format": "noop", "outputMode": "complete"},
        {"format": "Parquet", "path": "/out", "outputMode": "append"},
        {"format": "csv", "path": "file:/out", "options": {"header": True}},
        {"format": "sqlite", "path": "/x.db", "options": {"table": "t"}},
        {
            "format": "sqlite",
            "path": "/x.db",
            "outputMode": "complete",
            "options": {"table": "t", "mode": "upsert", "keys": "a, b"},
        },
        {
            "format": "postgresql",
            "options": {"url": "postgresql://localhost/x", "table": "t", "mode": "append"},
        },
        {"python": "m:f"},
        {"format": "python", "python": "m:f", "outputMode": "update"},
        {"format": "ORC", "path": "/out", "options": {"compression": "ZSTD"}},
        {"format": "text", "path": "s3://bucket/out"},
        {"format": "csv", "path": "/out", "options": {"header": True, "sep": "||", "TimestampFormat": "y"}},
        {"format": "console", "outputMode": "complete", "options": {"numRows": 5}},
        {
            "format": "kafka",
            "outputMode": "update",
            "options": {"kafka.bootstrap.servers": "h:9092", "topic": "t", "kafka.acks": "all"},
        },
        {"format": "delta", "path": "/out", "outputMode": "complete"},
        {"format": "iceberg", "options": {"table": "catalog.db.t"}},
        {"format": "org.example.Sink", "options": {"anything": "1"}},
        # What only Spark knows is said by its analysis: modes, options, and where a table is.
        {"format": "orc", "path": "/x", "outputMode": "update", "options": {"compression": "zip"}},
        {"format": "kafka", "options": {"topics": "t"}},
        {"format": "delta"},
        {"format": "org.example.Sink", "path": "s3://bucket/out", "outputMode": "update"},
    ],
)
def test_sinks_that_are_right(sink: dict[str, Any]) -> None:
    assert sink_errors(sink, artifacts=["m.py"]) == []


def test_a_python_sink_as_it_is_kept() -> None:
    store = vertex("store", FLIGHTS, COUNTS, changed(STORE, sink={"python": "m:f"}), artifacts=["m.py"])
    assert store.operation == SinkSpec("python", None, OutputMode.APPEND, (), PythonSpec("m:f"))


def test_a_batch_sink_writes_once() -> None:
    source = changed(FLIGHTS, source={"format": "parquet", "path": "/in"})
    sink = changed(STORE, sink={"format": "noop", "outputMode": "update"})
    assert errors({**document(source, COUNTS, sink), "type": "BATCH"}) == [
        "vertices[2].sink.outputMode: update is for STREAMING jobs: a BATCH job writes its result once."
    ]


def test_a_sink_of_a_streaming_job_needs_a_stream() -> None:
    table = {"name": "airlines", "source": {"format": "csv", "path": "/a.csv", "static": True}}
    clean = {"name": "clean", "inputs": ["airlines"], "sql": "SELECT * FROM airlines"}
    sink = {"name": "copy", "inputs": ["clean"], "sink": {"format": "noop"}}
    assert errors(document(FLIGHTS, COUNTS, STORE, table, clean, sink)) == [
        "vertices[5].inputs[0]: 'clean' comes from static sources only: a sink of a STREAMING job needs a source that "
        "streams."
    ]
    parse_document(document(FLIGHTS, COUNTS, STORE))


def test_two_sinks_of_files_do_not_share_a_folder() -> None:
    def with_paths(first: str, second: str) -> list[str]:
        sinks = [
            {"name": f"s{i}", "inputs": ["flights"], "sink": {"format": "orc", "path": path}}
            for i, path in enumerate((first, second))
        ]
        return errors(document(FLIGHTS, *sinks))

    assert with_paths("/out/a", "/out/b") == []
    (error,) = with_paths("/out/a", "/out/b/../a")
    assert error.startswith(
        "vertices[2].sink.path: '/out/b/../a' is where vertices[1].sink writes: Spark's log"
    )


def test_a_stored_graph_of_an_earlier_version_is_read() -> None:
    value: dict[str, Any] = to_document(
        parse_document(document(FLIGHTS, COUNTS, STORE, {**STORE, "name": "other"}))
    )
    sink = {"format": "json", "path": "/out", "outputMode": "update", "options": {"batchColumn": "batch"}}
    for store in value["vertices"][2:]:
        store["sink"] = sink
    assert len(errors(value)) == 1
    assert to_document(read_graph(value)) == value
