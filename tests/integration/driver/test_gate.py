"""What stands before Spark's own sinks: each batch passes it, from the first one on, and errors stay what they are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from app.driver.failures import BoundaryStop, describe
from app.driver.gate import self_test, start_behind
from tests.integration.driver.sink_support import spark_session
from tests.integration.driver.valve_support import until

ROWS = 50
SINKS = ("parquet", "console", "noop", "memory", "foreachBatch")
SECOND_API = ("console", "noop", "memory")


class Passed:
    """Notes what it is told, and stops the query before batch ``last``."""

    def __init__(self, last: int | None = None) -> None:
        self.told: list[tuple[str, int]] = []
        self._last = last

    def open(self, execution: Any) -> None:
        assert execution.lastExecution() is None

    def begin(self, batch_id: int) -> None:
        if batch_id == self._last:
            raise BoundaryStop
        self.told.append(("begin", batch_id))

    def commit(self) -> None:
        self.told.append(("commit", self.told[-1][1]))

    def end(self, batch_id: int) -> None:
        self.told.append(("end", batch_id))


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with spark_session() as session:
        yield session


def rows(spark: SparkSession) -> DataFrame:
    return spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).load().select("value")


def writer(frame: DataFrame, sink: str, place: Path, function: Callable[..., Any] = print) -> Any:
    made = frame.writeStream.option("checkpointLocation", str(place / "checkpoint"))
    if sink == "foreachBatch":
        return made.foreachBatch(function)
    return made.format(sink).option("path", str(place / "out")).queryName(f"{sink}_{place.name[-20:]}")


@pytest.mark.parametrize("sink", SINKS)
def test_each_batch_passes_from_the_first_on(
    spark: SparkSession, sink: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    passed = Passed(last=4)
    query = begin(passed, spark, writer(rows(spark), sink, tmp_path).start)
    with pytest.raises(StreamingQueryException, match=BoundaryStop.MARK):
        query.awaitTermination(60)
    words = ("begin", "commit", "end") if sink in SECOND_API else ("begin", "end")
    assert passed.told == [(word, batch) for batch in range(4) for word in words]
    assert query.lastProgress is not None
    assert "slotwise" not in query.lastProgress["sink"]["description"]
    assert "Proxy" not in query.lastProgress["sink"]["description"]


def test_a_batch_that_is_stopped_stays_planned(spark: SparkSession, tmp_path: Path) -> None:
    """No task of it runs, and at the next start it runs with its number."""
    for last in (3, 6):
        query = begin(Passed(last), spark, writer(rows(spark), "parquet", tmp_path).start)
        with pytest.raises(StreamingQueryException):
            query.awaitTermination(60)
        logs = tmp_path / "checkpoint"
        newest = [
            max(int(each.name) for each in (logs / name).iterdir() if each.name.isdigit())
            for name in ("offsets", "commits")
        ]
        assert newest == [last, last - 1]
        values = [row["value"] for row in spark.read.parquet(str(tmp_path / "out")).collect()]
        assert sorted(values) == list(range(ROWS * last))


def begin(passed: Passed, spark: SparkSession, start: Any) -> Any:
    """The query that ``start`` starts, which keeps what it passes alive, as a run of ours does."""
    query: Any = start_behind(passed, spark, start)
    query.passed = passed
    return query


def raised(query: Any) -> tuple[str, str]:
    """The class of the error that ended ``query``, and the first line of its text without numbers of tasks."""
    with pytest.raises(StreamingQueryException):
        query.awaitTermination(60)
    error = query._jsq.exception().get().getCause()
    return error.getClass().getName(), re.sub(r"\d+", "", str(error.getMessage()).splitlines()[0])


@pytest.mark.parametrize("sink", ["parquet", "noop"])
def test_an_error_of_a_batch_stays_what_it_is(spark: SparkSession, sink: str, tmp_path: Path) -> None:
    @f.udf("long")
    def refused(value):  # type: ignore[no-untyped-def]
        raise ValueError("never")

    frame = rows(spark).select(refused("value").alias("value"))
    plain = raised(writer(frame, sink, tmp_path / "plain").start())
    assert raised(begin(Passed(), spark, writer(frame, sink, tmp_path / "behind").start)) == plain


def test_an_error_of_a_batch_function_stays_what_it_is(spark: SparkSession, tmp_path: Path) -> None:
    def refused(frame: DataFrame, batch_id: int) -> None:
        raise ValueError("never")

    plain = raised(writer(rows(spark), "foreachBatch", tmp_path / "plain", refused).start())
    writes = writer(rows(spark), "foreachBatch", tmp_path / "behind", refused)
    assert raised(begin(Passed(), spark, writes.start)) == plain


def test_division_by_zero_is_an_error_of_the_jobs_code(spark: SparkSession, tmp_path: Path) -> None:
    frame = rows(spark).select((f.col("value") / (f.col("value") - f.col("value"))).alias("value"))
    query = begin(Passed(), spark, writer(frame, "noop", tmp_path).start)
    with pytest.raises(StreamingQueryException) as raised:
        query.awaitTermination(60)
    failure = describe(raised.value)
    assert (failure.user_error, failure.recoverable) == ("DIVIDE_BY_ZERO", True)


@pytest.mark.parametrize("sink", ["parquet", "noop"])
def test_a_query_that_is_stopped_in_a_batch_has_no_error(
    spark: SparkSession, sink: str, tmp_path: Path
) -> None:
    slow = rows(spark).where("java_method('java.lang.Thread', 'sleep', 100L) IS NULL")
    passed = Passed()
    query = begin(passed, spark, writer(slow, sink, tmp_path).start)
    until(lambda: passed.told, query)
    query.stop()
    assert query.exception() is None


def test_a_sink_that_cannot_be_made_says_so_itself(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(Exception, match=r"ParentNotDirectory|is a file|not a directory"):
        query = begin(Passed(), spark, writer(rows(spark), "parquet", tmp_path).start)
        query.awaitTermination(60)


def test_this_spark_has_what_is_needed(spark: SparkSession) -> None:
    self_test()
