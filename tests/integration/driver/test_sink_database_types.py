"""Database sinks on the real Spark: every type and every name of a column comes back as it was."""

from __future__ import annotations

import datetime as dt
import math
import struct
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from app.driver.sinks.base import Written
from tests.integration.driver.database_support import Store, numbers, store_of, upsert
from tests.integration.driver.sink_support import allowed, ref, spark_session


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with spark_session() as session:
        yield session


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return store_of(request, tmp_path)


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
