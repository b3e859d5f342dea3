"""Sources, sinks and Python functions."""

from __future__ import annotations

from typing import Any

import pytest

from app.model.jobgraph import SourceSpec
from tests.unit.model.documents import (
    COUNTS,
    FLIGHTS,
    STORE,
    changed,
    document,
    errors,
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
        ({"format": 1}, ".format: should be csv, rate or another format, found the number 1"),
        ({"format": "no such"}, ".format: should be the name of a format, found 'no such'."),
        ({"format": "csv", "schema": "a INT"}, ".path: is missing: format csv needs an absolute path."),
        ({**CSV, "path": "in/"}, ".path: 'in/'" + RELATIVE),
        ({**CSV, "path": "~/in"}, ".path: '~/in'" + RELATIVE),
        ({**CSV, "path": ""}, ".path: must not be empty: an absolute path is expected."),
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
        ({**CSV, "pth": "/x"}, ".pth: is not a field of a source. Did you mean 'path'?"),
        ({"format": "rate", "path": "/in"}, ".path: is not a field of format rate"),
        ({"format": "rate", "schema": "a INT"}, ".schema: is not a field of format rate"),
        (
            {"format": "rate", "static": True},
            ".static: is for the formats csv, json, parquet, orc, text, xml, avro only",
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
            {"format": "rate", "options": {"rowCount": "many"}},
            ".options.rowCount: should be a whole number of at least 0, found 'many'",
        ),
        (
            {"format": "rate", "options": {"numPartitions": 4}},
            ".options.numPartitions: is not an option of the source rate. Allowed are maxRowsPerTrigger",
        ),
        (
            {"format": "rate", "options": {"rampUpTime": "5s"}},
            ".options.rampUpTime: is not an option of the source",
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
        # What only Spark knows is said by its analysis: options, and whether a schema is needed.
        {"format": "csv", "path": "/in"},
        {"format": "json", "path": "/in", "options": {"maxFilesPerTrigger": 0.5, "mergeSchemas": True}},
        {"format": "rate-micro-batch"},
        {
            "format": "Kafka",
            "options": {"kafka.bootstrap.servers": "a:1", "kafka.ssl.protocol": "x", "subscribe": "t"},
        },
        {"format": "rate"},
        {"format": "rate", "options": {"rowsPerSecond": "100"}},
        {"format": "rate-micro-batch", "options": {"rowsPerBatch": 10, "numPartitions": 4}},
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
        "csv",
        "file:/in",
        "a INT",
        (("header", "true"), ("maxFilesPerTrigger", "5"), ("nullValue", "1.5")),
        False,
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
