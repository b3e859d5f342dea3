"""The formats of the sources on the real Spark: what each gives, and in which words a wrong one is refused."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from app.driver.failures import DriverError
from app.driver.sources import open_stream, read_static
from app.model.jobgraph import JobVertex
from tests.integration.driver.source_support import QUERY, Rig, csv_source, source, source_session

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with source_session() as session:
        yield session


@pytest.fixture
def rig(spark: SparkSession, tmp_path: Path) -> Rig:
    return Rig(spark, tmp_path)


def test_json_parquet_and_text_give_what_sparks_own_readers_give(
    rig: Rig, spark: SparkSession, tmp_path: Path
) -> None:
    columns = [
        "id BIGINT",
        "cast(id AS STRING) AS name",
        "id / 4 AS part",
        "id % 2 = 0 AS even",
        "timestamp_millis(id * 1000) AS at",
        "date_add(DATE '2013-01-01', cast(id AS INT)) AS day",
        "cast(id AS DECIMAL(10, 2)) AS money",
    ]
    table = spark.range(200).selectExpr("cast(id AS BIGINT) AS id").selectExpr("id", *columns[1:])
    schema = ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in table.schema.fields)
    for file_format in ("json", "parquet", "csv", "text"):
        folder = tmp_path / file_format
        written = table.selectExpr("name") if file_format == "text" else table
        written.coalesce(3).write.format(file_format).save(str(folder))
        asked = None if file_format in ("parquet", "text") else schema
        own = Rig(spark, tmp_path / f"rig-{file_format}")
        own.plan(3)
        # Spark writes instants into CSV and JSON with their offset.
        with own.run(source(file_format, folder, asked)) as query:
            own.wait(query, lambda own=own: own.committed >= 0)  # type: ignore[misc]
        reader = spark.read.format(file_format)
        expected = (reader.schema(asked) if asked else reader).load(str(folder))
        assert sorted(own.rows()) == sorted(tuple(row) for row in expected.collect()), file_format
        assert own.batches[0].tasks == 3


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
        rig.wait(query, lambda: rig.control.exhausted("v", QUERY))
    rows = rig.rows()
    assert [value for _, value in rows] == list(range(60))
    assert {(b[0] - a[0]).total_seconds() for a, b in pairwise(rows)} == {0.02}
    assert {batch.tasks for batch in rig.batches} == {2, 3}


def test_rate_micro_batch(rig: Rig) -> None:
    vertex = source(
        "rate-micro-batch", rowsPerBatch=10, startTimestamp=5000, advanceMillisPerBatch=2000, rowCount=25
    )
    with rig.run(vertex) as query:
        rig.wait(query, lambda: rig.control.exhausted("v", QUERY))
    assert [len(batch.rows) for batch in rig.batches] == [10, 10, 5]
    times = [datetime.fromtimestamp(5 + 2 * (value // 10), UTC).replace(tzinfo=None) for value in range(25)]
    local = [row[0].astimezone(UTC).replace(tzinfo=None) for row in rig.rows()]
    assert (local, [row[1] for row in rig.rows()]) == (times, list(range(25)))


def test_another_format_is_sparks_own(rig: Rig, spark: SparkSession, tmp_path: Path) -> None:
    spark.range(5).write.orc(str(tmp_path / "in"))
    with rig.run(source("orc", tmp_path / "in", "id BIGINT")) as query:
        rig.wait(query, lambda: rig.committed >= 0)
    assert sorted(rig.rows()) == [(i,) for i in range(5)]
    assert rig.batches[0].version is None


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
        (source("csv", None, "id INT"), "a csv source needs a path: a directory or a file"),
        (source("csv", Path("/"), None), "a csv source needs a schema, for example"),
        (source("csv", Path("/"), "id INT,,"), "the schema is not a Spark DDL text"),
        (
            source("csv", Path("/"), "id ARRAY<INT>"),
            "column id: a csv source cannot read values of type array<int>",
        ),
        (
            source("json", Path("/"), "m MAP<STRING, INT>"),
            "column m: a json source cannot read values of type map",
        ),
        (source("text", Path("/"), "a STRING, b STRING"), "a text source has one column of type STRING"),
        (
            source("json", Path("/"), "id INT", header="true"),
            "Option header is not an option of a streaming json source",
        ),
        (
            source("rate", None, None, rowsPerSecond="0"),
            "Option rowsPerSecond should be a number above 0, found '0'",
        ),
        (source("rate", Path("/x")), "the source rate takes no path"),
        (source("nonsense", Path("/x")), "Spark cannot read it as nonsense"),
    ],
)
def test_wrong_sources_are_refused_in_words(rig: Rig, vertex: JobVertex, message: str) -> None:
    with pytest.raises(DriverError) as raised:
        open_stream(rig.spark, vertex, rig.control, QUERY, rig.checkpoint)
    assert message in str(raised.value)
    assert raised.value.vertex == "src" and "\n" not in str(raised.value)
