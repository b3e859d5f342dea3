"""Database sinks on the real Spark, SQLite and PostgreSQL: a batch is one transaction, written once."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import DataFrame, SparkSession

from app.driver.failures import DriverError, Fenced
from app.driver.sinks import Sink, Written, database
from app.driver.sinks.database import BATCH_TABLE
from app.model.jobgraph import JobVertex, OutputMode
from tests.integration.driver.sink_support import (
    QUERY,
    Crash,
    allowed,
    counting,
    crash,
    opened,
    ref,
    spark_session,
    vertex,
)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with spark_session() as session:
        yield session


@dataclass
class Store:
    """A database, its sinks, and what is in it."""

    kind: str
    where: str
    work_dir: Path

    def vertex(
        self, *, table: str = "results", mode: OutputMode = OutputMode.APPEND, **options: str
    ) -> JobVertex:
        if self.kind == "sqlite":
            return vertex("sqlite", self.where, mode=mode, table=table, **options)
        return vertex("postgresql", mode=mode, url=self.where, table=table, **options)

    def sink(self, **options: Any) -> Sink:
        return opened(self.work_dir, self.vertex(**options))

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        if self.kind == "sqlite":
            with closing(sqlite3.connect(self.where)) as db:
                rows = db.execute(statement).fetchall()
                db.commit()
                return rows
        with psycopg.connect(self.where) as db:
            cursor = db.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def staged_files(self) -> list[Path]:
        return [path for path in (self.work_dir / "staging").rglob("*.parquet") if path.is_file()]


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    where = (
        str(tmp_path / "results.db")
        if request.param == "sqlite"
        else request.getfixturevalue("postgresql_url")
    )
    return Store(request.param, where, tmp_path / "work")


def numbers(spark: SparkSession, first: int, end: int, tasks: int = 3, name: str = "row ") -> DataFrame:
    return spark.range(first, end, 1, tasks).selectExpr("id", f"concat('{name}', id) AS name")


def upsert(store: Store, keys: str = "id", output: OutputMode = OutputMode.UPDATE) -> Sink:
    return store.sink(mode="upsert", keys=keys, output=output)


def test_append_is_one_action_with_a_task_per_partition_and_one_transaction_per_batch(
    spark: SparkSession, store: Store
) -> None:
    sink = store.sink()
    for batch, tasks in enumerate((1, 3, 5)):
        frame = numbers(spark, batch * 100, batch * 100 + 100, tasks)
        with counting(frame) as ran:
            assert sink.write(frame, ref(batch), allowed) == Written(100)
        assert (ran.jobs, ran.tasks) == (1, (tasks,))
    assert store.run("SELECT id, name FROM results ORDER BY id") == [(i, f"row {i}") for i in range(300)]
    recorded = store.run(f"SELECT query_id, batch_id, epoch, rows FROM {BATCH_TABLE} ORDER BY batch_id")
    assert recorded == [(QUERY, batch, 1, 100) for batch in range(3)]
    assert store.staged_files() == []


def test_upsert_keeps_the_newest_row_of_a_key(spark: SparkSession, store: Store) -> None:
    sink = upsert(store)
    sink.write(numbers(spark, 0, 10), ref(0), allowed)
    assert sink.write(numbers(spark, 5, 15, name="new "), ref(1), allowed) == Written(10)
    expected = [(i, f"{'row' if i < 5 else 'new'} {i}") for i in range(15)]
    assert store.run("SELECT id, name FROM results ORDER BY id") == expected


def test_upsert_of_rows_that_are_all_key_keeps_one_of_each(spark: SparkSession, store: Store) -> None:
    sink = upsert(store, keys="id,name")
    for batch in range(2):
        sink.write(numbers(spark, batch, batch + 2), ref(batch), allowed)
    assert store.run("SELECT id FROM results ORDER BY id") == [(0,), (1,), (2,)]
    with pytest.raises(DriverError, match="two rows of the same key"):
        sink.write(numbers(spark, 0, 2).union(numbers(spark, 0, 2)), ref(2), allowed)


def test_complete_replaces_the_whole_table(spark: SparkSession, store: Store) -> None:
    sink = store.sink(output=OutputMode.COMPLETE)
    sink.write(numbers(spark, 0, 10), ref(0), allowed)
    sink.write(numbers(spark, 8, 12), ref(1), allowed)
    assert store.run("SELECT id FROM results ORDER BY id") == [(8,), (9,), (10,), (11,)]
    sink.write(numbers(spark, 0, 10).where("id < 0"), ref(2), allowed)
    assert store.run("SELECT id FROM results") == []


def test_complete_with_keys_replaces_the_table_too(spark: SparkSession, store: Store) -> None:
    sink = upsert(store, output=OutputMode.COMPLETE)
    sink.write(numbers(spark, 0, 3), ref(0), allowed)
    sink.write(numbers(spark, 2, 4), ref(1), allowed)
    assert store.run("SELECT id FROM results ORDER BY id") == [(2,), (3,)]


def test_an_empty_batch_is_recorded(spark: SparkSession, store: Store) -> None:
    frame = numbers(spark, 0, 10).where("id < 0")
    assert store.sink().write(frame, ref(0), allowed) == Written(0)
    assert store.sink().write(frame, ref(0), allowed) == Written(0, repeated=True)


def _die_before_the_action(patched: pytest.MonkeyPatch, run: Callable[[Callable[[], None]], Any]) -> None:
    patched.setattr(database, "write_parts", lambda *_: crash())
    run(allowed)


def _die_before_the_transaction(
    patched: pytest.MonkeyPatch, run: Callable[[Callable[[], None]], Any]
) -> None:
    # The row counts are read between the action and the transaction.
    patched.setattr(database, "_row_count", lambda _: crash())
    run(allowed)


def _die_before_the_commit(_: pytest.MonkeyPatch, run: Callable[[Callable[[], None]], Any]) -> None:
    run(crash)


def _die_after_the_commit(_: pytest.MonkeyPatch, run: Callable[[Callable[[], None]], Any]) -> None:
    run(allowed)
    crash()


@pytest.mark.parametrize("upserts", [False, True], ids=["append", "upsert"])
@pytest.mark.parametrize(
    ("die", "is_there"),
    [
        (_die_before_the_action, False),
        (_die_before_the_transaction, False),
        (_die_before_the_commit, False),
        (_die_after_the_commit, True),
    ],
)
def test_a_batch_that_is_run_again_after_a_crash_is_written_once(
    spark: SparkSession,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    die: Callable[..., None],
    is_there: bool,
    upserts: bool,
) -> None:
    def start() -> Sink:
        return upsert(store) if upserts else store.sink()

    sink = start()
    sink.write(numbers(spark, 0, 50), ref(0), allowed)
    with monkeypatch.context() as patched, pytest.raises(Crash):
        die(patched, lambda may_commit: sink.write(numbers(spark, 50, 100), ref(1), may_commit))
    assert store.run("SELECT count(*) FROM results") == [(100 if is_there else 50,)]

    frame = numbers(spark, 50, 100)
    with counting(frame) as ran:
        written = start().write(frame, ref(1, epoch=2), allowed)
    # Its action runs in either case: the state of the batch is committed by it.
    assert (ran.jobs, ran.tasks) == (1, (3,))
    assert written == Written(50, repeated=is_there)
    assert store.run("SELECT id FROM results ORDER BY id") == [(i,) for i in range(100)]
    # The newer epoch is on record, whoever wrote the rows.
    assert store.run(f"SELECT max(epoch) FROM {BATCH_TABLE}") == [(2,)]


@pytest.mark.parametrize("batch", [0, 1], ids=["the same batch", "the next batch"])
def test_an_older_epoch_than_the_recorded_one_is_refused(
    spark: SparkSession, store: Store, batch: int
) -> None:
    stale, newer = store.sink(), store.sink()
    newer.write(numbers(spark, 0, 10), ref(0, epoch=2), allowed)
    with pytest.raises(Fenced):
        stale.write(numbers(spark, 10, 20), ref(batch, epoch=1), allowed)
    assert store.run("SELECT count(*) FROM results") == [(10,)]


def test_a_newer_epoch_that_writes_between_the_action_and_the_transaction_is_seen(
    spark: SparkSession, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale, newer = store.sink(), store.sink()
    write_parts = database.write_parts

    def overtaken(*arguments: Any) -> Any:
        monkeypatch.setattr(database, "write_parts", write_parts)
        newer.write(numbers(spark, 0, 10), ref(0, epoch=2), allowed)
        return write_parts(*arguments)

    monkeypatch.setattr(database, "write_parts", overtaken)
    with pytest.raises(Fenced):
        stale.write(numbers(spark, 0, 10), ref(0, epoch=1), allowed)
    assert store.run("SELECT count(*) FROM results") == [(10,)]


def test_a_second_writer_of_the_same_epoch_writes_nothing(
    spark: SparkSession, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = store.sink(), store.sink()
    write_parts = database.write_parts

    def overtaken(*arguments: Any) -> Any:
        monkeypatch.setattr(database, "write_parts", write_parts)
        second.write(numbers(spark, 0, 10), ref(0), allowed)
        return write_parts(*arguments)

    monkeypatch.setattr(database, "write_parts", overtaken)
    assert first.write(numbers(spark, 0, 10), ref(0), allowed) == Written(10, repeated=True)
    assert store.run("SELECT count(*) FROM results") == [(10,)]


def test_who_is_fenced_writes_nothing(spark: SparkSession, store: Store) -> None:
    sink = store.sink()
    sink.write(numbers(spark, 0, 10), ref(0), allowed)

    def fenced() -> None:
        raise Fenced

    with pytest.raises(Fenced):
        sink.write(numbers(spark, 10, 20), ref(1), fenced)
    assert store.run("SELECT count(*) FROM results") == [(10,)]
    assert store.run(f"SELECT max(batch_id) FROM {BATCH_TABLE}") == [(0,)]
    assert sink.write(numbers(spark, 10, 20), ref(1), allowed) == Written(10)


def test_only_the_newest_batches_stay_on_record(
    spark: SparkSession, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"app.driver.sinks.{store.kind}"
    monkeypatch.setattr(f"{module}.KEPT_BATCHES", 2)
    sink = store.sink()
    for batch in range(4):
        sink.write(numbers(spark, batch, batch + 1, 1), ref(batch), allowed)
    assert store.run(f"SELECT batch_id FROM {BATCH_TABLE} ORDER BY batch_id") == [(2,), (3,)]
    # One that is off the record is still known to be written.
    assert sink.write(numbers(spark, 0, 1, 1), ref(0), allowed) == Written(None, repeated=True)


def test_more_rows_than_are_loaded_at_once(spark: SparkSession, store: Store) -> None:
    assert upsert(store).write(numbers(spark, 0, 25_001), ref(0), allowed) == Written(25_001)
    total = 25_000 * 25_001 // 2
    assert store.run("SELECT count(*), sum(id), count(DISTINCT name) FROM results") == [
        (25_001, total, 25_001)
    ]


# -- types

VALUES = """
SELECT * FROM VALUES
  (1, true, 1Y, -2S, 3, 4L, FLOAT(0.1), 0.1D, 12345678901234567890.123456789BD, 'a\\tb\\n\\\\.\\nc\\r"''\\\\',
   X'00FF5C', DATE'2013-01-02', TIMESTAMP'2013-07-01 05:00:00.000001Z', TIMESTAMP_NTZ'2013-07-01 05:00:00.5',
   array(1, null), map('k', TIMESTAMP'2013-07-01 05:00:00.000001Z'), named_struct('x', 1.5D, 'y', null),
   INTERVAL '1 02:03:04.5' DAY TO SECOND),
  (2, false, -128Y, 32767S, -2147483648, 9223372036854775807L, FLOAT('NaN'), DOUBLE('NaN'),
   0.000000001BD, '', X'', DATE'0001-01-01', TIMESTAMP'1500-01-01 00:00:00Z',
   TIMESTAMP_NTZ'9999-12-31 23:59:59.999999', array(), map(), named_struct('x', DOUBLE('NaN'), 'y', 'é'),
   INTERVAL '0 00:00:00' DAY TO SECOND),
  (3, true, 0Y, 0S, 0, 0L, FLOAT('Infinity'), DOUBLE('-Infinity'), -1.0BD, '\\\\N', X'00', DATE'1970-01-01',
   TIMESTAMP'1969-12-31 23:59:59.999999Z', TIMESTAMP_NTZ'1582-10-10 00:00:00', array(2), map('', TIMESTAMP'9999-12-31 00:00:00Z'),
   named_struct('x', 0D, 'y', ''), INTERVAL '-1 00:00:00' DAY TO SECOND),
  (4, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null)
AS t(id, flag, tiny, small, whole, big, single, dbl, dec, txt, bin, day, at, wall, list, dict, obj, span)
"""  # noqa: E501


def expected_rows(kind: str) -> list[tuple[Any, ...]]:
    import datetime as dt
    import struct
    from decimal import Decimal

    utc = dt.UTC
    (single,) = struct.unpack("f", struct.pack("f", 0.1))
    text = "a\tb\n\\.\nc\r\"'\\"
    lite = kind == "sqlite"

    def day(*parts: int) -> Any:
        return dt.date(*parts).isoformat() if lite else dt.date(*parts)

    def at(*parts: int) -> Any:
        value = dt.datetime(*parts, tzinfo=utc)  # type: ignore[misc, arg-type]
        return value.strftime("%Y-%m-%d %H:%M:%S.%fZ") if lite else value

    def wall(*parts: int) -> Any:
        value = dt.datetime(*parts)  # type: ignore[arg-type]
        return value.strftime("%Y-%m-%d %H:%M:%S.%f") if lite else value

    def dec(digits: str) -> Any:
        return digits if lite else Decimal(digits)

    def nan() -> Any:
        return "NaN" if lite else math.nan

    def js(as_text: str, value: Any) -> Any:
        return as_text if lite else value

    spans = [f"INTERVAL '{value}' DAY TO SECOND" for value in ("1 02:03:04.5", "0 00:00:00", "-1 00:00:00")]
    return [
        (1, True, 1, -2, 3, 4, single if lite else pytest.approx(0.1), 0.1, dec("12345678901234567890.123456789"),
         text, b"\x00\xff\x5c", day(2013, 1, 2), at(2013, 7, 1, 5, 0, 0, 1), wall(2013, 7, 1, 5, 0, 0, 500000),
         js("[1,null]", [1, None]),
         js('{"k":"2013-07-01T05:00:00.000001Z"}', {"k": "2013-07-01T05:00:00.000001Z"}),
         js('{"x":1.5,"y":null}', {"x": 1.5, "y": None}), spans[0]),
        (2, False, -128, 32767, -(2**31), 2**63 - 1, nan(), nan(), dec("0.000000001"), "", b"", day(1, 1, 1),
         at(1500, 1, 1), wall(9999, 12, 31, 23, 59, 59, 999999), js("[]", []), js("{}", {}),
         js('{"x":"NaN","y":"é"}', {"x": "NaN", "y": "é"}), spans[1]),
        (3, True, 0, 0, 0, 0, math.inf, -math.inf, dec("-1.000000000"), "\\N", b"\x00", day(1970, 1, 1),
         at(1969, 12, 31, 23, 59, 59, 999999), wall(1582, 10, 10), js("[2]", [2]),
         js('{"":"9999-12-31T00:00:00.000000Z"}', {"": "9999-12-31T00:00:00.000000Z"}),
         js('{"x":0.0,"y":""}', {"x": 0.0, "y": ""}), spans[2]),
        (4, *[None] * 17),
    ]  # fmt: skip


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_every_type_comes_back_exactly(spark: SparkSession, store: Store, zone: str) -> None:
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        assert upsert(store).write(spark.sql(VALUES), ref(0), allowed) == Written(4)
    finally:
        spark.conf.unset("spark.sql.session.timeZone")
    found = store.run("SELECT * FROM results ORDER BY id")
    for row, expected in zip(found, expected_rows(store.kind), strict=True):
        for column, (value, wanted) in enumerate(zip(row, expected, strict=True)):
            same = math.isnan(value) if wanted != wanted else value == wanted
            assert same, f"column {column} of row {row[0]}: {value!r} instead of {wanted!r}"


def test_names_that_need_quotes_are_columns_as_well(spark: SparkSession, store: Store) -> None:
    frame = numbers(spark, 0, 2).selectExpr('id AS `the "key"`', "name AS `a.b %s`")
    upsert(store, keys='the "key"').write(frame, ref(0), allowed)
    assert store.run('SELECT count("the ""key"""), count("a.b %s") FROM results') == [(2, 2)]


# -- refusals


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
    object.__setattr__(sink.database, "busy_timeout_s", 0.01)
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
