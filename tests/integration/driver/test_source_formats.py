"""The sources of numbered rows and side tables on the real Spark, and in which words a wrong source is refused."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from app.driver.failures import DriverError
from app.driver.sources.opening import read_static
from app.driver.sources.rate import is_read
from app.model.jobgraph import JobVertex
from tests.integration.driver.source_support import Rig, csv_source, source, source_session

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with source_session() as session:
        yield session


@pytest.fixture
def rig(spark: SparkSession, tmp_path: Path) -> Rig:
    return Rig(spark, tmp_path)


def test_rate_is_numbered_steady_and_the_same_when_it_is_read_again(rig: Rig) -> None:
    vertex = source("rate", rowsPerSecond=50, rowCount=60)
    rig.plan(3)
    with rig.run(vertex) as query:
        rig.wait(query, lambda: rig.committed >= 0)
    last = rig.committed
    (rig.checkpoint / "commits" / str(last)).unlink()
    (rig.checkpoint / "commits" / f".{last}.crc").unlink(missing_ok=True)
    rig.plan(2)
    with rig.run(vertex) as query:
        rig.wait(query, lambda: is_read(rig.checkpoint) and len(rig.rows()) == 60)
    rows = rig.rows()
    assert [value for _, value in rows] == list(range(60))
    assert {(b[0] - a[0]).total_seconds() for a, b in pairwise(rows)} == {0.02}
    assert {batch.tasks for batch in rig.batches} == {2, 3}


def test_rate_gives_all_that_it_has_if_it_is_to_take_what_is_there(rig: Rig) -> None:
    with rig.run(source("rate", maxRowsPerTrigger=25, rowCount=60), availableNow=True) as query:
        rig.wait(query, lambda: not query.isActive)
    assert [len(batch.rows) for batch in rig.batches] == [25, 25, 10]
    assert [value for _, value in rig.rows()] == list(range(60))


def test_a_rate_source_that_is_read_twice_has_one_start_and_one_end(rig: Rig) -> None:
    rows = rig.open(source("rate", rowsPerSecond=100, rowCount=20))
    joined = rows.alias("a").join(rows.alias("b"), "value").selectExpr("a.timestamp = b.timestamp AS same")
    writer = joined.writeStream.option("checkpointLocation", str(rig.checkpoint))
    query = writer.format("memory").queryName("twice").start()
    try:
        rig.wait(query, lambda: is_read(rig.checkpoint))
        found = rig.spark.table("twice").groupBy("same").count().collect()
        assert [tuple(row) for row in found] == [(True, 20)]
    finally:
        query.stop()


def test_rate_micro_batch_is_sparks_and_has_the_parts_of_the_plan_at_its_start(rig: Rig) -> None:
    rig.plan(3)
    with rig.run(source("rate-micro-batch", rowsPerBatch=10)) as query:
        rig.wait(query, lambda: rig.committed >= 1)
    assert [(len(batch.rows), batch.tasks) for batch in rig.batches[:2]] == [(10, 3)] * 2


def test_static_tables_are_read_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,name\n1,x\n")
    assert read_static(spark, csv_source(tmp_path / "a.csv")).collect() == [(1, "x")]
    with pytest.raises(DriverError, match=r"^Source src: there is no directory or file .*/b\.csv\.$"):
        read_static(spark, csv_source(tmp_path / "b.csv"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DriverError, match=r"/empty has no parquet file from which the columns could be read"):
        read_static(spark, source("parquet", tmp_path / "empty"))


@pytest.mark.parametrize(
    ("vertex", "message"),
    [
        (source("csv", Path("/nowhere"), "id INT"), "there is no directory or file /nowhere"),
        (source("csv", Path("/"), "id INT,,"), "Spark cannot read it as csv: [PARSE_SYNTAX_ERROR]"),
        (source("csv", Path("/")), "Spark cannot read it as csv: Schema must be specified"),
        (source("rate-micro-batch"), "Spark cannot read it as rate-micro-batch: "),
        (source("rate-micro-batch", rowsPerBatch="many"), "Spark cannot read it as rate-micro-batch: "),
        (source("nonsense", Path("/x")), "Spark cannot read it as nonsense"),
        (source("kafka", subscribe="orders"), "Spark cannot read it as kafka: "),
    ],
)
def test_wrong_sources_are_refused_in_words(rig: Rig, vertex: JobVertex, message: str) -> None:
    with pytest.raises(DriverError) as raised:
        rig.open(vertex)
    assert message in str(raised.value)
    assert raised.value.vertex == "src" and "\n" not in str(raised.value)


def test_a_parquet_source_without_a_schema_has_that_of_its_files(
    rig: Rig, spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DriverError, match="has no parquet file from which the columns could be read"):
        rig.open(source("parquet", tmp_path / "empty"))
    spark.range(1).selectExpr("id", "'a' AS name").write.parquet(str(tmp_path / "in"))
    assert rig.open(source("parquet", tmp_path / "in")).columns == ["id", "name"]
