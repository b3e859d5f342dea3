"""What a document says of its vertices, against the plans that Spark analyses: refused before anything runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
import yaml
from pyspark.sql import SparkSession

from app.documents.graph import parse_document
from app.driver.failures import DriverError
from app.driver.vertices import Functions
from app.model.analysis import queries
from tests.integration.driver.checked import Checked, check, python, sql
from tests.integration.driver.source_support import source_session
from tests.numbers import HAS_RATE

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with source_session() as session:
        yield session


@pytest.fixture
def checked(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checked:
    monkeypatch.setattr(sys, "path", list(sys.path))
    return Checked(spark, tmp_path)


COUNTING = """
import pandas as pd
from pyspark.sql.streaming import StatefulProcessor

class Counting(StatefulProcessor):
    def init(self, handle): pass
    def handleInputRows(self, key, rows, timers): yield pd.DataFrame({'n': [1]})
    def close(self): pass

def f(a):
    return a.groupBy('value').transformWithStateInPandas(Counting(), 'n long', 'append', 'none')
"""


STATEFUL = [
    ("a.groupBy(a.value % 3).count()", ["a"], "update"),
    (
        "a.withWatermark('timestamp', '1 second').groupBy(F.window('timestamp', '1 second')).count()",
        ["a"],
        "append",
    ),
    (
        "a.withWatermark('timestamp', '1 second').groupBy(F.session_window('timestamp', '1 second')).count()",
        ["a"],
        "append",
    ),
    ("a.agg(F.max('value'))", ["a"], "complete"),
    ("a.dropDuplicates(['value'])", ["a"], "append"),
    (
        "a.withWatermark('timestamp', '1 second').dropDuplicatesWithinWatermark(['value'])",
        ["a"],
        "append",
    ),
    ("a.distinct()", ["a"], "append"),
    ("a.limit(3)", ["a"], "append"),
    ("a.select('value').subtract(c.select('value'))", ["a", "c"], "append"),
    ("a.join(a.select('value'), 'value')", ["a"], "append"),
    ("a.join(b, 'value')", ["a", "b"], "append"),
    (
        "a.groupBy('value').applyInPandasWithState("
        "lambda key, rows, state: rows, 'value long', 'value long', 'append', 'NoTimeout')",
        ["a"],
        "append",
    ),
]


@pytest.mark.parametrize(("body", "inputs", "mode"), STATEFUL)
@pytest.mark.parametrize("said", [None, False])
def test_spark_says_that_a_function_keeps_state(
    checked: Checked, body: str, inputs: list[str], mode: str, said: bool | None
) -> None:
    vertex, code = python(body, inputs=inputs)
    told = {} if said is None else {"stateful": said}
    assert checked(vertex | told, code=code, mode=mode) == {"v"}


def test_spark_says_that_transform_with_state_keeps_state(checked: Checked) -> None:
    assert checked({"name": "v", "inputs": ["a"], "python": "f"}, code=COUNTING) == {"v"}


def test_a_missing_protobuf_is_named(checked: Checked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql.streaming.proto.StateMessage_pb2", None)
    vertex = {"name": "v", "inputs": ["a"], "python": "f", "stateful": True}
    sentence = checked.refusal(vertex, code=COUNTING)
    assert sentence.startswith("Vertex v: transformWithState needs the Python package protobuf")
    assert "slotwise doctor" in sentence


def test_each_vertex_is_told_of_for_itself(checked: Checked) -> None:
    code = "def f(a):\n    return a.dropDuplicates(['value'])\n\ndef g(v):\n    return v.where('value > 3')\n"
    vertex = {"name": "v", "inputs": ["a"], "python": "f"}
    between = {"name": "between", "inputs": ["v"], "python": "g"}
    total = sql("SELECT count(*) AS n FROM between") | {"name": "total", "inputs": ["between"]}
    for of_v in ({}, {"stateful": False}):
        own = dict(vertex), dict(between), dict(total)
        found = checked(own[0] | of_v, *own[1:], code=code, to="total", mode="update")
        assert found == {"v", "total"}


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("SELECT value % 3 AS k, count(*) AS n FROM a GROUP BY ALL", "update"),
        ("SELECT DISTINCT value FROM a", "update"),
        ("SELECT value FROM a UNION SELECT value FROM b", "update"),
        ("SELECT value FROM a EXCEPT SELECT value FROM c", "append"),
        ("SELECT value FROM a LIMIT 3", "append"),
        ("SELECT x.value FROM a AS x JOIN b AS y ON x.value = y.value", "append"),
        ("WITH x AS (SELECT value FROM a) SELECT x.value FROM x JOIN x AS y ON x.value = y.value", "append"),
        ("FROM a |> AGGREGATE count(*) AS n GROUP BY value", "update"),
    ],
)
def test_spark_says_that_a_text_keeps_state(checked: Checked, text: str, mode: str) -> None:
    assert checked(sql(text), mode=mode) == {"v"}


STATELESS = [
    ("a.where(a.value > 3).withColumn('x', a.value + 1)", ["a"]),
    ("a.join(c, 'value', 'left')", ["a", "c"]),
    ("a.join(c.groupBy('value').count(), 'value')", ["a", "c"]),
    ("a.join(c.distinct().limit(3), 'value', 'left_anti')", ["a", "c"]),
    ("a.union(b)", ["a", "b"]),
    ("a.withWatermark('timestamp', '1 second')", ["a"]),
    ("a.groupBy('value').applyInPandas(lambda rows: rows, a.schema)", ["a"]),
    ("a.groupBy('value').applyInArrow(lambda rows: rows, a.schema)", ["a"]),
    (
        "a.join(c.groupBy('value').cogroup(c.groupBy('value'))"
        ".applyInPandas(lambda x, y: x, c.schema), 'value')",
        ["a", "c"],
    ),
    ("a._joinAsOf(c, a.value, c.value)", ["a", "c"]),
    ("a.mapInPandas(lambda rows: rows, a.schema)", ["a"]),
    ("a.withColumn('names', F.lit(','.join(row.name for row in c.collect())))", ["a", "c"]),
]


@pytest.mark.parametrize(("body", "inputs"), STATELESS)
@pytest.mark.parametrize("said", [None, True])
def test_spark_says_that_a_function_keeps_no_state(
    checked: Checked, body: str, inputs: list[str], said: bool | None
) -> None:
    vertex, code = python(body, inputs=inputs)
    told = {} if said is None else {"stateful": said}
    assert checked(vertex | told, code=code) == set()


@pytest.mark.parametrize(
    "text",
    [
        "SELECT a.value FROM a WHERE value IN (SELECT max(value) FROM c)",
        "SELECT value, (SELECT count(DISTINCT name) FROM c) AS names FROM a",
        "SELECT a.value, n FROM a LEFT JOIN (SELECT value, count(*) AS n FROM c GROUP BY value) USING (value)",
        "SELECT value FROM a UNION ALL SELECT value FROM b",
        "SELECT /*+ BROADCAST(c) */ a.value FROM a, c WHERE a.value = c.value",
        "SELECT a.value, n FROM a, LATERAL (SELECT count(*) AS n FROM c WHERE c.value = a.value)",
        "SELECT value, x FROM a LATERAL VIEW explode(array(1, 2)) AS x",
    ],
)
def test_spark_says_that_a_text_keeps_no_state(checked: Checked, text: str) -> None:
    assert checked(sql(text)) == set()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT 'x FROM a", "Syntax error at or near"),
        ("SELECT (value FROM a", "Syntax error at or near"),
        ("SELECT value FROM a; SELECT 1", "Syntax error at or near 'SELECT'"),
        ("SELECT value, FROM a WHERE", "Syntax error"),
        ("SELECT vaule FROM a", "vaule"),
        ("SELECT * FROM b.a", "cannot be found"),
        ("DROP TABLE a", "should be one query that only reads"),
        ("INSERT INTO x SELECT value FROM a", "should be one query that only reads"),
        ("FROM a INSERT INTO x SELECT value", "should be one query that only reads"),
        ("FROM a -- ;\nINSERT INTO x SELECT value", "should be one query that only reads"),
        (
            "WITH y AS (SELECT value FROM a) INSERT INTO x SELECT value FROM y",
            "should be one query that only reads",
        ),
        ("SET spark.sql.shuffle.partitions = 1", "should be one query that only reads"),
        ("EXPLAIN SELECT * FROM a", "should be one query that only reads"),
        ("BEGIN SELECT * FROM a; END", "should be one query that only reads"),
        ("SELECT 1 AS one", "Vertex v does nothing with its input a"),
    ],
)
def test_a_text_that_is_no_query_over_its_inputs_is_refused_in_words(
    checked: Checked, text: str, said: str
) -> None:
    assert said in checked.refusal(sql(text) | {"inputs": ["a"]})


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM a;",
        "SELECT * FROM a; -- done; all",
        "SELECT * FROM a /* x; */ ;; /* y */",
        "select * from A ; ",
        "-- all\nFROM a /* rows */",
        "TABLE `a`",
    ],
)
def test_a_text_may_be_written_in_any_way(checked: Checked, text: str) -> None:
    assert checked(sql(text) | {"inputs": ["a"]}) == set()


def test_with_complete_each_micro_batch_is_the_whole_result(checked: Checked) -> None:
    total = {"name": "v", "inputs": ["a"], "sql": "SELECT value % 3 AS k, count(*) AS n FROM a GROUP BY ALL"}
    code = "def f(v):\n    return v.orderBy('n').limit(2)\n"
    top = {"name": "top", "inputs": ["v"], "python": "f"}
    checked(total, dict(top), code=code, to="top", mode="complete")
    with pytest.raises(DriverError, match="Sorting is not supported") as caught:
        checked(total, dict(top), code=code, to="top", mode="update")
    assert caught.value.vertex == "top"


@pytest.mark.parametrize(
    "body", ["a.orderBy('value')", "a.withColumn('place', F.row_number().over(Window.orderBy('value')))"]
)
def test_what_is_of_each_micro_batch_is_said_to_be_for_a_sink(checked: Checked, body: str) -> None:
    vertex, code = python(body)
    sentence = checked.refusal(vertex, code=code)
    assert "not supported" in sentence
    assert sentence.endswith(
        "(`sink: {python: module:function}`), which gets each as Spark's foreachBatch does."
    )


@pytest.mark.parametrize(
    ("body", "inputs", "said"),
    [
        ("7", ["a"], "should return a DataFrame, but returned a int"),
        ("a.select('missing')", ["a"], "missing"),
        (
            "c.join(a, 'value', 'left')",
            ["a", "c"],
            "LeftOuter join with a streaming DataFrame/Dataset on the right",
        ),
        (
            "a.join(c, 'value', 'right')",
            ["a", "c"],
            "RightOuter join with a streaming DataFrame/Dataset on the left",
        ),
        (
            "a.join(c, 'value', 'full')",
            ["a", "c"],
            "FullOuter joins with streaming DataFrames/Datasets on the left",
        ),
        (
            "c.join(a, 'value', 'left_semi')",
            ["a", "c"],
            "LeftSemi join with a streaming DataFrame",
        ),
        (
            "a.select('value').union(c.select('value'))",
            ["a", "c"],
            "Union between streaming and batch DataFrames",
        ),
        (
            "a.select('value').intersect(c.select('value'))",
            ["a", "c"],
            "Intersect of streaming DataFrames/Datasets is not supported",
        ),
        ("a.offset(3)", ["a"], "Offset is not supported on streaming"),
        (
            "a.groupBy('value').cogroup(b.groupBy('value')).applyInPandas(lambda x, y: x, a.schema)",
            ["a", "b"],
            "Spark has no state for groups of two inputs (FlatMapCoGroupsInPandas in its plan)",
        ),
        (
            "c.groupBy('value').cogroup(a.groupBy('value')).applyInPandas(lambda x, y: x, c.schema)",
            ["a", "c"],
            "Spark has no state for groups of two inputs (FlatMapCoGroupsInPandas in its plan)",
        ),
        (
            "a.groupBy('value').cogroup(b.groupBy('value')).applyInArrow(lambda x, y: x, a.schema)",
            ["a", "b"],
            "Spark has no state for groups of two inputs (FlatMapCoGroupsInArrow in its plan)",
        ),
        pytest.param(
            "c._joinAsOf(a, c.value, a.value)",
            ["a", "c"],
            "ASOF join with a streaming DataFrame/Dataset on the right is not supported",
            marks=pytest.mark.skipif(
                pyspark.__version__ < "4.3", reason="Spark says it with the first batch"
            ),
        ),
        (
            "a.sparkSession.sql('SELECT * FROM {a} WHERE value IN (SELECT max(value) FROM {a})', a=a)",
            ["a"],
            "Streaming query is not allowed in subquery expressions",
        ),
    ],
)
def test_what_no_stream_can_do_is_refused(checked: Checked, body: str, inputs: list[str], said: str) -> None:
    vertex, code = python(body, inputs=inputs)
    assert said in checked.refusal(vertex, code=code)


@pytest.mark.parametrize(
    ("body", "inputs", "ignored"),
    [
        ("a.sparkSession.range(3)", ["a"], "a"),
        ("a.sparkSession.createDataFrame([], a.schema)", ["a"], "a"),
        ("b", ["a", "b"], "a"),
        ("c", ["a", "c"], "a"),
        ("a.sparkSession.readStream.format('rate').load()", ["a"], "a"),
    ],
)
def test_a_function_that_ignores_a_stream_is_refused(
    checked: Checked, body: str, inputs: list[str], ignored: str
) -> None:
    vertex, code = python(body, inputs=inputs)
    sentence = checked.refusal(vertex, code=code)
    assert sentence.startswith(f"Vertex v does nothing with its input {ignored}:")


def test_a_function_that_reads_another_stream_is_refused(checked: Checked) -> None:
    vertex, code = python(
        "a.select('value').union(a.sparkSession.readStream.format('rate').load().select('value'))"
    )
    assert "reads a stream that is none of its inputs" in checked.refusal(vertex, code=code)


def test_a_vertex_of_static_inputs_that_makes_a_stream_is_refused(checked: Checked) -> None:
    code = "def g(c):\n    return c.sparkSession.readStream.format('rate').load()\n"
    side = {"name": "side", "inputs": ["c"], "python": "g"}
    joined = {"name": "v", "inputs": ["a", "side"], "sql": "SELECT a.value FROM a JOIN side USING (value)"}
    assert "its result is a stream" in checked.refusal(side, joined, code=code)


@pytest.mark.parametrize(
    "body", ["a.where(F.lit(a.count() > 3))", "a.sparkSession.createDataFrame(a.collect())"]
)
def test_a_function_that_looks_at_the_rows_of_a_stream_is_told_what_it_is_for(
    checked: Checked, body: str
) -> None:
    vertex, code = python(body)
    sentence = checked.refusal(vertex, code=code)
    assert "Queries with streaming sources must be executed" in sentence
    assert "belongs into a Python sink" in sentence


@pytest.mark.parametrize("stateful", [True, False])
def test_a_hash_edge_by_what_is_no_column_is_refused(checked: Checked, stateful: bool) -> None:
    body = "a.groupBy('value').count()" if stateful else "a"
    vertex, code = python(body, inputs=[{"vertex": "a", "partitioner": "HASH", "keys": ["velue"]}])
    sentence = checked.refusal(vertex, code=code, mode="update")
    assert sentence == (
        "Vertex v takes its input a by the key velue, which is no column of it. The columns are timestamp, value."
    )
    fine, code = python(body, inputs=[{"vertex": "a", "partitioner": "HASH", "keys": ["VALUE"]}])
    checked(fine, code=code, mode="update")


@pytest.mark.skipif(not HAS_RATE, reason="the examples read the source rate")
@pytest.mark.parametrize("example", ["counts", "windows", "orders"])
def test_the_examples_are_what_spark_can_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, example: str
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    folder = Path(__file__).resolve().parents[3] / "examples"
    document = yaml.safe_load((folder / f"{example}.yaml").read_text(encoding="utf-8"))
    for vertex in document["vertices"]:
        if "path" in vertex.get("source", {}):
            vertex["source"]["path"] = str(folder / vertex["source"]["path"])
    graph = parse_document(document)
    functions = Functions(folder, graph.artifacts)
    functions.install()
    for query in queries(graph):
        check(spark, tmp_path, query, functions)
