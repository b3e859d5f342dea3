"""The right answer, computed straight from the package's file by pandas, and its comparison with the sink.

Nothing of Slotwise or Spark takes part in the right answer. Every column is an integer or a text, so that
"exact" means equal, not close.
"""

from __future__ import annotations

import importlib
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.cli.demo.data import Flights

KEYS = ("carrier", "origin", "dest")
COLUMNS = (
    *KEYS,
    "flights",
    "arrived",
    "late",
    "delay_min",
    "worst_delay_min",
    "miles",
    "airline",
    "late_per_thousand",
)
TABLE = "routes"

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """A route whose row is wrong; None where there is no row."""

    route: str
    expected: Row | None
    found: Row | None


def expected_rows(flights: Flights) -> dict[str, Row]:
    """Route -> its row in the order of `COLUMNS`."""
    pandas: Any = importlib.import_module("pandas")
    table = pandas.read_csv(flights.archive, usecols=[*KEYS, "arr_delay", "distance"])
    table["late"] = table["arr_delay"] > 0
    grouped = table.groupby(list(KEYS))
    answer = grouped.agg(
        flights=("distance", "size"),
        arrived=("arr_delay", "count"),
        late=("late", "sum"),
        delay_min=("arr_delay", lambda delays: delays.sum(min_count=1)),
        worst_delay_min=("arr_delay", "max"),
        miles=("distance", "sum"),
    ).reset_index()
    names = pandas.read_csv(flights.airlines).set_index("carrier")["name"].to_dict()
    rows = {}
    for record in answer.to_dict("records"):
        arrived, late = int(record["arrived"]), int(record["late"])
        row = (
            *(str(record[key]) for key in KEYS),
            int(record["flights"]),
            arrived,
            late,
            _integer(pandas, record["delay_min"]),
            _integer(pandas, record["worst_delay_min"]),
            int(record["miles"]),
            names.get(record["carrier"]),
            late * 1000 // arrived if arrived else None,
        )
        rows[route_of(row)] = row
    return rows


def _integer(pandas: Any, value: float) -> int | None:
    if pandas.isna(value):
        return None
    if value != int(value):
        raise ValueError(f"{value} minutes is not a whole number")
    return int(value)


def found_rows(database: Path) -> list[Row]:
    """The rows of the sink's table, in the order of `COLUMNS`."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=30)) as connection:
        return list(connection.execute(f"SELECT {', '.join(COLUMNS)} FROM {TABLE}"))  # noqa: S608 - constants


def rows_in_sink(database: Path) -> int:
    """How many flights the sink has counted so far; 0 while there is no table yet."""
    if not database.exists():
        return 0
    try:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=5)) as connection:
            (total,) = connection.execute(f"SELECT sum(flights) FROM {TABLE}").fetchone()  # noqa: S608
    except sqlite3.OperationalError:
        return 0
    return int(total or 0)


def route_of(row: Row) -> str:
    return " ".join(str(part) for part in row[: len(KEYS)])


def differences(expected: dict[str, Row], found: list[Row]) -> list[Difference]:
    """Every route that is missing, too many, wrong in any column, or there twice."""
    wrong = []
    seen: dict[str, Row] = {}
    for row in found:
        route = route_of(row)
        if route in seen:
            wrong.append(Difference(f"{route} (twice)", seen[route], row))
        seen[route] = row
    for route in sorted(expected.keys() | seen.keys()):
        if expected.get(route) != seen.get(route):
            wrong.append(Difference(route, expected.get(route), seen.get(route)))
    return wrong
