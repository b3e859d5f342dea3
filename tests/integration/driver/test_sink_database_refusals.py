"""Database sinks on the real Spark: what they refuse, in which words, and what is only a matter of time."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from app.driver.failures import DriverError
from app.driver.sinks.base import Written
from app.model.sink_formats import BATCH_TABLE
from tests.integration.driver.database_support import Store, numbers, store_of, upsert
from tests.integration.driver.sink_support import allowed, opened, ref, spark_session, vertex


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with spark_session() as session:
        yield session


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return store_of(request, tmp_path)


def refusal(run: Callable[[], object]) -> DriverError:
    with pytest.raises(DriverError) as caught:
        run()
    assert caught.value.vertex == "store"
    assert "\n" not in str(caught.value)
    return caught.value


def test_two_rows_of_a_key_in_one_batch_are_refused(spark: SparkSession, store: Store) -> None:
    sink = upsert(store)
    sink.write(numbers(spark, 0, 5), ref(0), allowed)
    twice = numbers(spark, 5, 10).union(numbers(spark, 9, 10))
    error = refusal(lambda: sink.write(twice, ref(1), allowed))
    assert "two rows of the same key in one batch: the columns id must tell" in str(error)
    assert not error.recoverable
    assert store.run("SELECT count(*) FROM results") == [(5,)]


def test_a_null_in_a_key_is_refused(spark: SparkSession, store: Store) -> None:
    frame = numbers(spark, 0, 5).selectExpr("nullif(id, 3) AS id", "name")
    error = refusal(lambda: upsert(store).write(frame, ref(0), allowed))
    assert "one of the key columns id is null" in str(error)
    assert not error.recoverable


def test_a_table_with_other_columns_is_refused_and_more_columns_are_not(
    spark: SparkSession, store: Store
) -> None:
    store.run("CREATE TABLE results (id BIGINT, title TEXT)")
    error = refusal(lambda: store.sink().write(numbers(spark, 0, 5), ref(0), allowed))
    assert "the table results, which has no column name" in str(error)
    assert "columns are id, title, those of the rows id, name" in str(error)
    assert not error.recoverable
    assert store.sink().write(numbers(spark, 0, 5).select("id"), ref(0), allowed) == Written(5)


@pytest.mark.parametrize(
    "index", ["", "CREATE INDEX plain ON results (id)", "CREATE UNIQUE INDEX other ON results (name)"]
)
def test_a_table_without_the_key_is_refused_before_the_first_batch(store: Store, index: str) -> None:
    store.run("CREATE TABLE results (id BIGINT, name TEXT)")
    if index:
        store.run(index)
    error = refusal(lambda: upsert(store))
    assert "no primary key and no unique index on id" in str(error)


def test_a_table_with_a_unique_index_on_the_key_will_do(spark: SparkSession, store: Store) -> None:
    store.run("CREATE TABLE results (id BIGINT, name TEXT)")
    store.run("CREATE UNIQUE INDEX the_key ON results (id)")
    sink = upsert(store)
    for batch in range(2):
        sink.write(numbers(spark, 0, 5), ref(batch), allowed)
    assert store.run("SELECT count(*) FROM results") == [(5,)]


def test_a_key_that_the_rows_do_not_have_is_refused(spark: SparkSession, store: Store) -> None:
    error = refusal(lambda: upsert(store, keys="id,day").write(numbers(spark, 0, 5), ref(0), allowed))
    assert "the rows have no column day: their columns are id, name" in str(error)


def test_sqlite_that_somebody_else_holds_is_a_matter_of_time(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    sink: Any = opened(tmp_path, vertex("sqlite", path, table="results"))
    sink.busy_timeout_s = 0.01
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        error = refusal(lambda: sink.write(numbers(spark, 0, 5), ref(0), allowed))
        assert "database is locked" in str(error)
        assert error.recoverable
        other.execute("ROLLBACK")
    assert sink.write(numbers(spark, 0, 5), ref(0), allowed) == Written(5)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    path.write_text("something else altogether, long enough to be looked at" * 20)
    error = refusal(lambda: opened(tmp_path, vertex("sqlite", path, table="results")))
    assert "file is not a database" in str(error)
    assert not error.recoverable


def test_postgresql_that_was_restarted_between_batches_is_connected_to_again(
    spark: SparkSession, postgres_server: Any, postgresql_url: str, tmp_path: Path
) -> None:
    sink = opened(tmp_path, vertex("postgresql", url=postgresql_url, table="results"))
    sink.write(numbers(spark, 0, 5), ref(0), allowed)
    postgres_server.kill()
    try:
        error = refusal(lambda: sink.write(numbers(spark, 5, 10), ref(1), allowed))
        assert error.recoverable
        assert "5432" not in str(error)
        assert f"127.0.0.1:{postgres_server.port}/" in str(error)
    finally:
        postgres_server.launch()
    assert sink.write(numbers(spark, 5, 10), ref(1), allowed) == Written(5)
    postgres_server.kill()
    postgres_server.launch()
    assert sink.write(numbers(spark, 10, 15), ref(2), allowed) == Written(5)
    with psycopg.connect(postgresql_url) as db:
        assert db.execute("SELECT count(*) FROM results").fetchone() == (15,)


def test_postgresql_tables_may_be_in_a_schema(
    spark: SparkSession, postgresql_url: str, tmp_path: Path
) -> None:
    with psycopg.connect(postgresql_url) as db:
        db.execute("CREATE SCHEMA reports")
    sink = opened(tmp_path, vertex("postgresql", url=postgresql_url, table="reports.results"))
    sink.write(numbers(spark, 0, 5), ref(0), allowed)
    with psycopg.connect(postgresql_url) as db:
        assert db.execute("SELECT count(*) FROM reports.results").fetchone() == (5,)
        assert db.execute(f"SELECT count(*) FROM reports.{BATCH_TABLE}").fetchone() == (1,)


def test_a_password_is_in_no_sentence(postgres_server: Any, tmp_path: Path) -> None:
    for url in (
        f"postgresql://somebody:s3cret@127.0.0.1:{postgres_server.port}/absent",
        "postgresql://somebody:s3cret@127.0.0.1:1/absent",
        "postgresql://somebody:s3cret%zz@127.0.0.1/absent",
    ):
        error = refusal(lambda url=url: opened(tmp_path, vertex("postgresql", url=url, table="results")))
        shown = f"{error}{error.__cause__}{error.__context__ if not error.__suppress_context__ else ''}"
        assert "s3cret" not in shown
        assert error.recoverable == (":1/" in url)
