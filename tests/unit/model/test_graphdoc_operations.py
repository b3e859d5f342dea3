"""Sources, sinks and Python functions."""

from __future__ import annotations

from typing import Any

import pytest

from app.model.graphdoc import parse_document
from app.model.jobgraph import OutputMode, PythonSpec, SinkSpec, SourceSpec
from tests.unit.model.documents import (
    COUNTS,
    FLIGHTS,
    STORE,
    changed,
    document,
    errors,
    sink_errors,
    source_errors,
    vertex,
)

CSV = {"format": "csv", "path": "/in", "schema": "a INT"}
RELATIVE = (
    " is relative: an absolute path is expected. (slotwise submit makes paths absolute, seen from the graph "
)


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ({}, ".format: is missing: csv, rate or another format is expected."),
        ("csv", ": should be a mapping with format, path, schema, options, static, found the text 'csv'."),
        ({"format": 1}, ".format: should be a format, found the number 1"),
        ({"format": "no such"}, ".format: should be the name of a format, found 'no such'."),
        ({"format": "csv", "schema": "a INT"}, ".path: is missing: format csv needs an absolute path."),
        ({**CSV, "path": "in/"}, ".path: 'in/'" + RELATIVE),
        ({**CSV, "path": "~/in"}, ".path: '~/in'" + RELATIVE),
        ({**CSV, "path": ""}, ".path: must not be empty: an absolute path is expected."),
        ({"format": "csv", "path": "/in"}, ".schema: is missing: a streaming csv source needs one"),
        ({"format": "json", "path": "/in"}, ".schema: is missing: a streaming json source needs one"),
        ({**CSV, "schema": 1}, ".schema: should be a schema such as"),
        ({**CSV, "static": "yes"}, ".static: should be true or false, found the text 'yes'."),
        ({**CSV, "options": []}, ".options: should be a mapping of options, found a list."),
        (
            {**CSV, "options": {"sep": None}},
            ".options.sep: should be a text, a number or a boolean, found null.",
        ),
        (
            {**CSV, "options": {"sep": ["a"]}},
            ".options.sep: should be a text, a number or a boolean, found a list.",
        ),
        ({**CSV, "options": {" sep": ","}}, ".options[' sep']: should have a name that is a text"),
        (
            {**CSV, "options": {"rowspersecond": 5}},
            ".options.rowspersecond: is not an option of a csv source: files are read as they come: limit a batch "
            "with maxFilesPerTrigger or maxBytesPerTrigger",
        ),
        (
            {**CSV, "options": {"filesPerSecond": 5}},
            ".options.filesPerSecond: is not an option of a csv source: ",
        ),
        (
            {**CSV, "options": {"finite": True}},
            ".options.finite: is not an option of a csv source: set slotwise.batch.trigger to available-now in the ",
        ),
        (
            {**CSV, "options": {"maxRowsPerTrigger": 5}},
            ".options.maxRowsPerTrigger: is not an option of a csv source: take maxFilesPerTrigger or maxBytesPer",
        ),
        (
            {**CSV, "options": {"maxBytesPerTrigger": "1k"}},
            ".options.maxBytesPerTrigger: should be a whole number",
        ),
        (
            {**CSV, "options": {"maxFilesPerTrigger": 0.5}},
            ".options.maxFilesPerTrigger: should be a whole number above 0",
        ),
        ({**CSV, "pth": "/x"}, ".pth: is not a field of a source. Did you mean 'path'?"),
        (
            {"format": "orc", "path": "/in", "options": {"mergeSchemas": True}},
            ".options.mergeSchemas: is not an option of a orc source. Did you mean 'mergeSchema'?",
        ),
        ({"format": "rate", "path": "/in"}, ".path: is not a field of format rate"),
        ({"format": "rate", "schema": "a INT"}, ".schema: is not a field of format rate"),
        (
            {"format": "rate", "static": True},
            ".static: is for the formats csv, json, parquet, orc, text only",
        ),
        (
            {"format": "rate", "options": {"rowsPerSecond": -1}},
            ".options.rowsPerSecond: should be a number above 0, at most 1e+12",
        ),
        (
            {"format": "rate", "options": {"rowsPerSecond": "1e300"}},
            ".options.rowsPerSecond: should be a number above 0, at most 1e+12",
        ),
        (
            {"format": "rate-micro-batch", "options": {"rowsPerBatch": "many"}},
            ".options.rowsPerBatch: should be a whole number above 0",
        ),
        (
            {"format": "rate-micro-batch", "options": {"numPartitions": 4}},
            ".options.numPartitions: is not an option of the source rate-micro-batch. Allowed are advanceMillis",
        ),
        (
            {"format": "rate", "options": {"rampUpTime": "5s"}},
            ".options.rampUpTime: is not an option of the source",
        ),
        (
            {**CSV, "options": {"nulValue": "NA"}},
            ".options.nulValue: is not an option of a csv source. Did you mean 'nullValue'?",
        ),
        (
            {"format": "kafka", "options": {"subscripe": "orders"}},
            ".options.subscripe: is not an option of a kafka source. Did you mean 'subscribe'?",
        ),
        ({"format": "my-source", "static": True}, ".static: is for the formats"),
        ({"format": "my-source", "path": "x"}, ".path: 'x'" + RELATIVE),
    ],
)
def test_sources_that_are_wrong(source: Any, error: str) -> None:
    found = source_errors(source)
    assert len(found) == 1, found
    assert found[0].startswith("vertices[0].source" + error)


@pytest.mark.parametrize(
    "source",
    [
        CSV,
        {"format": "CSV", "path": "/in", "schema": "a INT"},
        {"format": "parquet", "path": "/in"},
        {"format": "text", "path": "file:///in"},
        {**CSV, "options": {"header": True, "maxFilesPerTrigger": 4, "delimiter": ";;", "spark.own": "x"}},
        {**CSV, "path": "s3://bucket/in", "options": {"fs.s3a.access.key": "k"}},
        {"format": "orc", "path": "/in"},
        {
            "format": "Kafka",
            "options": {"kafka.bootstrap.servers": "a:1", "kafka.ssl.protocol": "x", "subscribe": "t"},
        },
        {"format": "rate"},
        {"format": "rate", "options": {"rowsPerSecond": "100"}},
        {"format": "rate-micro-batch", "options": {"rowsPerBatch": 10}},
        {"format": "my.package.Source", "options": {"servers": "a:1,b:2", "rowsPerSecond": "adaptive"}},
        {"format": "kafka", "path": "s3://bucket/x", "schema": "a INT"},
    ],
)
def test_sources_that_are_right(source: dict[str, Any]) -> None:
    assert source_errors(source) == []


def test_a_source_as_it_is_kept() -> None:
    source = {
        **CSV,
        "format": "CSV",
        "path": "file:/in",
        "options": {"header": True, "maxFilesPerTrigger": 5, "nullValue": 1.5},
    }
    flights = vertex("flights", changed(FLIGHTS, source=source), COUNTS, STORE)
    assert flights.operation == SourceSpec(
        "csv", "/in", "a INT", (("header", "true"), ("maxFilesPerTrigger", "5"), ("nullValue", "1.5")), False
    )


def test_a_static_source_needs_no_schema_and_is_read_whole() -> None:
    table = {"name": "airlines", "source": {"format": "csv", "path": "s3://bucket/a.csv", "static": True}}
    joined = changed(
        COUNTS, inputs=["flights", "airlines"], sql="SELECT * FROM flights JOIN airlines USING (k)"
    )
    assert errors(document(FLIGHTS, table, joined, STORE)) == []


def test_batch_jobs_read_what_ends() -> None:
    store = changed(STORE, sink={"format": "parquet", "path": "/out"})
    for source, expected in [
        ({"format": "csv", "path": "hdfs://x/in"}, []),
        (
            {"format": "rate"},
            [
                "vertices[0].source.format: rate never ends: a BATCH job takes sources that end, such as files."
            ],
        ),
    ]:
        value = {**document(changed(FLIGHTS, source=source), COUNTS, store), "type": "BATCH"}
        assert errors(value) == expected


@pytest.mark.parametrize(
    ("sink", "error"),
    [
        ({}, ".format: is missing: one of parquet, json, csv, sqlite, postgresql, noop, python is expected."),
        (
            "noop",
            ": should be a mapping with format, path, outputMode, options, python, found the text 'noop'.",
        ),
        (
            {"format": "postgres"},
            ".format: should be one of parquet, json, csv, sqlite, postgresql, noop, python, found 'postgres'. "
            "Did you mean 'postgresql'?",
        ),
        ({"format": "parquet"}, ".path: is missing: format parquet needs an absolute path."),
        ({"format": "json", "path": "out/"}, ".path: 'out/'" + RELATIVE),
        (
            {"format": "csv", "path": "s3://b/out"},
            ".path: should be an absolute path on a mounted file system",
        ),
        (
            {"format": "parquet", "path": "/out", "outputMode": "complete"},
            ".outputMode: complete is not possible with files",
        ),
        (
            {"format": "noop", "outputMode": "overwrite"},
            ".outputMode: should be one of append, update, complete, found the text 'overwrite'.",
        ),
        ({"format": "noop", "path": "/x"}, ".path: is not a field of a sink of format noop."),
        ({"format": "noop", "options": {"a": "b"}}, ".options: are not allowed: a noop sink has none."),
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
            ".options.partitionBy: is not an option of a parquet sink. Allowed are batchColumn, compression.",
        ),
        (
            {"format": "parquet", "path": "/x", "options": {"compression": "lzo"}},
            ".options.compression: should be one of snappy, zstd, gzip, lz4_raw, none, found 'lzo'.",
        ),
        (
            {"format": "csv", "path": "/x", "options": {"header": "yes"}},
            ".options.header: should be true or false",
        ),
        ({"format": "csv", "path": "/x", "options": {"sep": "||"}}, ".options.sep: should be one character"),
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
    ],
)
def test_sinks_that_are_right(sink: dict[str, Any]) -> None:
    assert sink_errors(sink, artifacts=["m.py"]) == []


def test_a_python_sink_as_it_is_kept() -> None:
    store = vertex("store", FLIGHTS, COUNTS, changed(STORE, sink={"python": "m:f"}), artifacts=["m.py"])
    assert store.operation == SinkSpec("python", None, OutputMode.APPEND, (), PythonSpec("m:f"))


def test_complete_needs_something_stateful_before_it() -> None:
    sink = changed(STORE, sink={"format": "noop", "outputMode": "complete"})
    plain = changed(COUNTS, sql="SELECT * FROM flights")
    assert errors(document(FLIGHTS, plain, sink)) == [
        "vertices[2].sink.outputMode: complete writes the whole result of an aggregate, and no vertex before this sink "
        "is stateful; take append."
    ]
    between = {"name": "named", "inputs": ["counts"], "sql": "SELECT * FROM counts"}
    assert errors(document(FLIGHTS, COUNTS, between, changed(sink, inputs=["named"]))) == []


def test_a_batch_sink_writes_once() -> None:
    source = changed(FLIGHTS, source={"format": "parquet", "path": "/in"})
    sink = changed(STORE, sink={"format": "noop", "outputMode": "update"})
    assert errors({**document(source, COUNTS, sink), "type": "BATCH"}) == [
        "vertices[2].sink.outputMode: update is for STREAMING jobs: a BATCH job writes its result once."
    ]


@pytest.mark.parametrize(
    "entry", ["m", "m:", ":f", "m.f", "m:f()", "m:a.b", "m-x:f", "a..b:f", "1m:f", "m :f", "m:f\n"]
)
def test_entries_that_are_wrong(entry: str) -> None:
    python = {"name": "counts", "inputs": ["flights"], "python": entry}
    found = errors(document(FLIGHTS, python, STORE, artifacts=["m.py"]))
    assert found == [
        f"vertices[1].python: should be module:function, such as 'routes:with_airline', found {entry!r}."
    ]


@pytest.mark.parametrize(
    ("entry", "artifacts", "right"),
    [
        ("routes:f", ["routes.py"], True),
        ("routes:f", ["other.zip"], True),
        ("a.b:f", ["other.whl"], True),
        ("routes:f", [], False),
        ("routes:f", ["route.py", "routes.txt"], False),
        ("a.b:f", ["a.py", "b.py"], False),
    ],
)
def test_the_module_is_in_the_artifacts(entry: str, artifacts: list[str], right: bool) -> None:
    python = {"name": "counts", "inputs": ["flights"], "python": entry}
    sink = changed(STORE, sink={"python": entry})
    found = errors(document(FLIGHTS, python, sink, artifacts=artifacts))
    assert [error.split(": ")[0] for error in found] == (
        [] if right else ["vertices[1].python", "vertices[2].sink.python"]
    )
    if not right:
        module = entry.partition(":")[0]
        assert f"the module {module} is in none of the artifacts: list " in found[0]
    if "route.py" in artifacts:
        assert found[0].endswith("Did you mean 'route.py'?")


def test_a_sink_of_a_streaming_job_needs_a_stream() -> None:
    table = {"name": "airlines", "source": {"format": "csv", "path": "/a.csv", "static": True}}
    clean = {"name": "clean", "inputs": ["airlines"], "sql": "SELECT * FROM airlines"}
    sink = {"name": "copy", "inputs": ["clean"], "sink": {"format": "noop"}}
    assert errors(document(FLIGHTS, COUNTS, STORE, table, clean, sink)) == [
        "vertices[5].inputs[0]: 'clean' comes from static sources only: a sink of a STREAMING job needs a source that "
        "streams."
    ]
    parse_document(document(FLIGHTS, COUNTS, STORE))
