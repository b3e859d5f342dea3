"""Valves under every way to write a stream, and what they leave as it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from app.driver.valves.insert import insert_valves
from app.driver.valves.shape import read_query
from app.driver.valves.spark import execution_of, replace_frame, writer_facts, writer_frame
from tests.integration.driver.sink_support import spark_session
from tests.integration.driver.valve_support import running


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with spark_session() as session:
        yield session


def rows(spark: SparkSession) -> DataFrame:
    reader = spark.readStream.format("rate-micro-batch").option("startTimestamp", 1_000_000)
    return reader.option("rowsPerBatch", 50).option("numPartitions", 4).load()


def test_foreach_batch(spark: SparkSession, tmp_path: Path) -> None:
    """The program looks at each batch twice: its stages are run twice, and are those of one vertex."""
    seen: dict[int, tuple[int, int]] = {}

    def write(frame: DataFrame, batch_id: int) -> None:
        kept = frame.persist()
        seen[batch_id] = (kept.count(), kept.rdd.getNumPartitions())
        kept.unpersist()

    counts = rows(spark).groupBy((f.col("value") % 7).alias("key")).count()
    writer = counts.writeStream.foreachBatch(write).outputMode("complete")
    with running(writer.option("checkpointLocation", str(tmp_path / "checkpoint"))) as query:
        assert query.names == ["rate-micro-batch", "aggregate", "foreachBatch"]
        for _ in range(3):
            ran = query.at_random()
            assert ran.tasks == ran.numbers
            assert seen[ran.batch_id] == (7, ran.numbers["foreachBatch"])


class Rows:
    def __init__(self, folder: str) -> None:
        self.folder = folder

    def open(self, partition: int, epoch: int) -> bool:
        self.found: list[str] = []
        self.name = f"{self.folder}/{epoch}-{partition}"
        return True

    def process(self, row: Any) -> None:
        self.found.append(str(row["value"]))

    def close(self, error: Exception | None) -> None:
        Path(self.name).write_text("\n".join(self.found), encoding="utf-8")


def test_foreach(spark: SparkSession, tmp_path: Path) -> None:
    with running(rows(spark).writeStream.foreach(Rows(str(tmp_path)))) as query:
        assert query.names == ["rate-micro-batch", "foreach"]
        for _ in range(3):
            ran = query.at_random()
            assert ran.tasks == ran.numbers
            found = list(tmp_path.glob(f"{ran.batch_id}-*"))
            assert len(found) == ran.numbers["foreach"]
            assert len("\n".join(each.read_text() for each in found).split()) == 50


def test_to_table(spark: SparkSession, tmp_path: Path) -> None:
    spark.sql(f"CREATE TABLE counted (value BIGINT) USING parquet LOCATION '{tmp_path / 'table'}'")
    writer = (
        rows(spark).select("value").writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    )
    try:
        with running(writer, "counted") as query:
            assert query.names == ["rate-micro-batch", "counted"]
            for _ in range(2):
                ran = query.at_random()
                assert ran.tasks == ran.numbers
            query.started.stop()
        values = [row["value"] for row in spark.table("counted").collect()]
        assert len(values) == len(set(values)) >= 50 * ran.batch_id
    finally:
        spark.sql("DROP TABLE counted")


def test_two_queries_of_one_frame(spark: SparkSession) -> None:
    """Each has numbers of its own, and the frame itself is as it was."""
    frame = rows(spark).where("value >= 0")
    before = frame._jdf.queryExecution().analyzed().toString()
    first = frame.writeStream.format("noop").queryName("first")
    second = frame.writeStream.format("noop").queryName("second")
    with running(first) as one, running(second) as two:
        assert one.at({"rate-micro-batch": 3, "first": 1}).tasks == {"rate-micro-batch": 3, "first": 1}
        assert two.at({"rate-micro-batch": 2, "second": 4}).tasks == {"rate-micro-batch": 2, "second": 4}
        assert one.at({"rate-micro-batch": 3, "first": 1}).tasks == {"rate-micro-batch": 3, "first": 1}
    assert frame._jdf.queryExecution().analyzed().toString() == before


def test_a_valve_leaves_what_a_file_source_reads(spark: SparkSession, tmp_path: Path) -> None:
    """Columns that nobody needs are not read, and filters reach the files."""
    source = str(tmp_path / "in")
    spark.range(100).selectExpr("id", "id * 2 AS twice", "id * 3 AS thrice").write.parquet(source)
    stream = spark.readStream.schema("id BIGINT, twice BIGINT, thrice BIGINT").parquet(source)
    frame = stream.where("twice > 100").select("id")

    def scan(valves: bool) -> list[str]:
        writer = frame.writeStream.format("noop").trigger(availableNow=True)
        if valves:
            vertices = read_query(frame, writer_facts(writer), (), 4)
            ids = {"in": "in", "noop": "noop"}
            replace_frame(writer, insert_valves(writer_frame(writer), vertices, ids, {"in": 2, "noop": 3}))
        query = writer.start()
        query.awaitTermination(60)
        plan = execution_of(query).lastExecution().executedPlan().toString()
        return [part for part in plan.split(", ") if part.startswith(("PushedFilters", "ReadSchema"))] + [
            line[line.index("FileScan") : line.index("]") + 1].split("#")[0]
            for line in plan.splitlines()
            if "FileScan" in line
        ]

    assert len(scan(valves=False)) >= 2
    assert scan(valves=True) == scan(valves=False)
    assert "thrice" not in str(scan(valves=True))


def test_facts_of_a_writer(spark: SparkSession) -> None:
    writer = rows(spark).writeStream.format("Parquet").option("Path", "/data/out").queryName("q")
    facts = writer_facts(writer.trigger(processingTime="2 seconds").outputMode("update"))
    assert (facts.format, facts.path, facts.query_name, facts.foreach) == ("Parquet", "/data/out", "q", "")
    assert (facts.trigger, facts.output_mode) == ("processing-time", "update")
    assert writer_facts(rows(spark).writeStream.trigger(availableNow=True)).trigger == "available-now"
    assert writer_facts(rows(spark).writeStream.trigger(once=True)).trigger == "once"
    assert writer_facts(rows(spark).writeStream.trigger(continuous="1 second")).trigger == "continuous"
    each = writer_facts(rows(spark).writeStream.foreachBatch(lambda frame, batch: None))
    assert (each.format, each.foreach) == (None, "foreachBatch")
    assert writer_facts(rows(spark).writeStream, "db.t").table == "db.t"
