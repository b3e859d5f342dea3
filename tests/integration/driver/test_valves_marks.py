"""Marks of a document's vertices come through Spark's analysis, whatever the vertex does, and become valves."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from app.documents.graph import parse_document
from app.driver.program.document import QueryBuilder
from app.driver.scala import plan_children
from app.driver.sources.opening import Splits
from app.driver.valves.insert import Label
from app.driver.valves.marks import read_vertices, with_valves
from app.driver.valves.query_valves import Valves
from app.driver.valves.spark import MARK, analysed, label_of
from app.driver.vertices import Functions
from app.model import statefulness
from app.model.analysis import Query, queries
from app.model.jobgraph import MAX_PARALLELISM_LIMIT, JobGraph
from tests.integration.driver.source_support import source_session
from tests.integration.driver.valve_support import until

pytestmark = pytest.mark.timeout(900)

SETTINGS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.CollapseRepartition",
    "spark.sql.streaming.unsupportedOperationCheck": "false",
}
"""Those of a driver's session that valves, and what vertices do, rest on."""

CHAIN = 130

CODE = """
from pyspark.sql import functions as F

def self_join(a):
    return a.alias("x").join(a.alias("y"), F.expr("x.value = y.value AND x.timestamp = y.timestamp")).select("x.value")

def through_sql(a):
    return a.sparkSession.sql("SELECT value FROM {rows} WHERE value >= 0", rows=a)

def moved(a):
    return a.repartition(3).coalesce(2).hint("broadcast").select("*").withColumnRenamed("value", "v")

def twice(a):
    return a.select("value").unionByName(a.select((-F.col("value")).alias("value")))

def grouped(a):
    return a.groupBy("value").applyInPandas(lambda rows: rows[["value"]], "value long")

def in_pandas(a):
    return a.select("value").mapInPandas(lambda batches: batches, "value long")

def observed(a):
    return a.observe("seen", F.count("*").alias("n")).dropna().sample(0.9)
"""


def sql(text: str, *inputs: Any, **fields: Any) -> dict[str, Any]:
    return {"inputs": list(inputs or ["a"]), "sql": text, **fields}


def python(name: str, *inputs: Any, **fields: Any) -> dict[str, Any]:
    return {"inputs": list(inputs or ["a"]), "python": f"marked:{name}", **fields}


FORMS: dict[str, dict[str, Any]] = {
    "projection": sql("SELECT value + 1 AS value FROM a"),
    "all columns": sql("SELECT * FROM a"),
    "CTE": sql("WITH x AS (SELECT value FROM a), y AS (SELECT * FROM x WHERE value > 3) SELECT * FROM y"),
    "CTE twice": sql("WITH x AS (SELECT value FROM a) SELECT * FROM x UNION ALL SELECT -value FROM x"),
    "nested": sql("SELECT * FROM (SELECT value AS v FROM (SELECT * FROM a) AS x) AS y WHERE v % 2 = 0"),
    "self-join": sql("SELECT x.value FROM a AS x JOIN a AS y ON x.value = y.value", stateful=True),
    "union": sql("SELECT * FROM a UNION ALL SELECT * FROM b", "a", "b"),
    "join": sql("SELECT a.value FROM a JOIN b ON a.value = b.value", "a", "b", stateful=True),
    "side table": sql("SELECT a.value, name FROM a LEFT JOIN c USING (value)", "a", "c"),
    "side table, sent": sql(
        "SELECT a.value FROM a JOIN c USING (value)", "a", {"vertex": "c", "partitioner": "BROADCAST"}
    ),
    "IN": sql("SELECT value FROM a WHERE value IN (SELECT value FROM c)", "a", "c"),
    "EXISTS": sql("SELECT value FROM a WHERE EXISTS (SELECT 1 FROM c WHERE c.value = a.value)", "a", "c"),
    "lateral view": sql("SELECT part FROM a LATERAL VIEW explode(array(value, -value)) t AS part"),
    "in order": sql("SELECT value FROM a ORDER BY value"),
    "row windows": sql("SELECT value, row_number() OVER (PARTITION BY value % 3 ORDER BY value) AS n FROM a"),
    "by a key": sql("SELECT value FROM a", {"vertex": "a", "partitioner": "HASH", "keys": ["value"]}),
    "spread": sql("SELECT value FROM a", {"vertex": "a", "partitioner": "REBALANCE"}),
    "by a key, counted": sql(
        "SELECT value % 3 AS k, count(*) AS n FROM a GROUP BY value % 3",
        {"vertex": "a", "partitioner": "HASH", "keys": ["value"]},
        stateful=True,
    ),
    "windows": sql("SELECT window(timestamp, '1 second').start AS at, count(*) AS n FROM a GROUP BY 1", stateful=True),
    "distinct": sql("SELECT DISTINCT value FROM a", stateful=True),
    "self-join of a function": python("self_join", stateful=True),
    "SQL of a function": python("through_sql"),
    "own repartitions": python("moved"),
    "twice": python("twice"),
    "groups": python("grouped"),
    "in pandas": python("in_pandas"),
    "observed": python("observed"),
}  # fmt: skip


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    directory = tmp_path_factory.mktemp("code")
    (directory / "marked.py").write_text(CODE, encoding="utf-8")
    sys.path.insert(0, str(directory))
    with source_session() as session:
        yield session
    sys.path.remove(str(directory))


def graph_of(form: dict[str, Any], side: Path) -> JobGraph:
    """``form`` between two sources and a side table, as far as it reads them, and a vertex behind it that changes
    nothing."""
    rows = {"format": "rate-micro-batch", "options": {"rowsPerBatch": "20", "numPartitions": "2"}}
    table = {"format": "csv", "path": str(side), "schema": "value BIGINT, name STRING", "static": True}
    read = {each["vertex"] if isinstance(each, dict) else each for each in form["inputs"]}
    sources = {"a": rows, "b": rows, "c": table}
    vertices = [
        *({"name": name, "source": source} for name, source in sources.items() if name in read),
        {"name": "v", **form},
        {"name": "behind", "inputs": ["v"], "sql": "SELECT * FROM v"},
        {"name": "out", "inputs": ["behind"], "sink": {"format": "noop", "outputMode": "update"}},
    ]
    return parse_document(
        {"name": "m", "type": "STREAMING", "artifacts": ["marked.py"], "vertices": vertices}
    )


def expected(query: Query) -> set[tuple[str, bool]]:
    """Name and whether it stands below the vertex, of each valve."""
    below = {v.name for v in query.flow if len(query.streaming_inputs(v)) == 1 and not v.stateful}
    return {(v.name, False) for v in query.flow if not v.is_sink} | {(name, True) for name in below}


def labels(frame: DataFrame, query: Query) -> list[tuple[str, bool]]:
    """The valves of ``frame``, in whose plan no mark is left."""
    jvm: Any = frame.sparkSession._jvm
    names = {v.id: v.name for v in query.flow}
    found, waiting = [], [analysed(frame)]
    while waiting:
        node = waiting.pop()
        assert not label_of(jvm, node, MARK)
        if text := label_of(jvm, node):
            label = Label.of(text)
            found.append((names[label.vertex_id], label.before is not None))
        waiting += plan_children(node)
    return found


def built(which: str, spark: SparkSession, directory: Path) -> tuple[Query, DataFrame]:
    """The query of a form, and its marked frame, in a session of its own."""
    (directory / "side.csv").write_text("1,one\n2,two\n", encoding="utf-8")
    graph = graph_of(FORMS[which], directory / "side.csv")
    (query,) = queries(graph)
    session = spark.newSession()
    for name, value in SETTINGS.items():
        session.conf.set(name, value)
    splits = Splits({}, {v.id: 2 for v in query.flow}, directory)
    frame = QueryBuilder(query, splits, Functions(directory, ())).build(session)
    return as_analysed(graph, frame), frame


def as_analysed(graph: JobGraph, frame: DataFrame) -> Query:
    """The query of ``graph``, with what Spark says of its state."""
    found = read_vertices(frame, "update")
    (query,) = queries(
        statefulness.analysed(graph, {graph.by_name[name].id for name, one in found.items() if one.state})
    )
    return query


@pytest.mark.parametrize("which", FORMS)
def test_each_vertex_has_its_valves(which: str, spark: SparkSession, tmp_path: Path) -> None:
    query, frame = built(which, spark, tmp_path)
    # A frame is started more than once, at other numbers.
    for number in (1, 3, MAX_PARALLELISM_LIMIT):
        started = with_valves(frame, query.flow, {v.id: number for v in query.flow})
        assert set(labels(started, query)) == expected(query)


OFTEN = ("CTE twice", "self-join of a function", "by a key, counted")
BY_NAME = [pytest.param(name, marks=() if name in OFTEN else pytest.mark.long) for name in FORMS]


@pytest.mark.parametrize("which", BY_NAME)
def test_a_batch_runs_at_the_number_of_each_vertex(which: str, spark: SparkSession, tmp_path: Path) -> None:
    query, frame = built(which, spark, tmp_path)
    parallelism = {v.id: 1 + place % 3 for place, v in enumerate(query.flow)}
    frame = with_valves(frame, query.flow, parallelism)
    mode = "append" if "join" in which else "update"
    started = frame.writeStream.format("noop").outputMode(mode).start()
    try:
        until(lambda: started.lastProgress, started)
        valves = Valves(started, query)
        assert valves.in_force(valves.planned()) == parallelism
    finally:
        started.stop()


@pytest.mark.long
def test_a_long_chain_of_vertices_is_not_too_deep(spark: SparkSession, tmp_path: Path) -> None:
    vertices: list[dict[str, Any]] = [{"name": "v0", "source": {"format": "rate-micro-batch"}}]
    while len(vertices) < CHAIN:
        before, name = vertices[-1]["name"], f"v{len(vertices)}"
        text = f"SELECT value + 1 AS value FROM {before} WHERE value > 0"
        vertices.append({"name": name, "inputs": [before], "sql": text})
    vertices[0]["source"]["options"] = {"rowsPerBatch": "1"}
    vertices.append({"name": "out", "inputs": [vertices[-1]["name"]], "sink": {"format": "noop"}})
    graph = parse_document({"name": "chain", "type": "STREAMING", "vertices": vertices})
    (query,) = queries(graph)
    splits = Splits({}, {v.id: 1 for v in query.flow}, tmp_path)
    frame = QueryBuilder(query, splits, Functions(tmp_path, ())).build(spark.newSession())
    query = as_analysed(graph, frame)
    frame = with_valves(frame, query.flow, {v.id: 1 for v in query.flow})
    assert set(labels(frame, query)) == expected(query)
