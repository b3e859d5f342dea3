"""The demo's parts that need no server: the daily files, and a comparison that finds each difference."""

from __future__ import annotations

import shutil
import sqlite3
import tomllib
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import app
from app.cli import submit
from app.cli.demo import command, data
from app.cli.demo.data import Row, differences, found_rows, rows_in_sink
from app.cli.demo.scenario import QUIET_LOOKS, STALLED_LOOKS, EndOfRows
from app.cli.errors import CliError, UsageError

HEADER = "year,month,day,carrier\r\n"
LINES = ["2013,1,1,UA\r\n", "2013,1,1,AA\r\n", "2013,12,31,UA\r\n"]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package folder with three flights on two days."""
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "airlines.csv").write_text("carrier,name\nUA,United\n")
    monkeypatch.setattr(data, "package_data", lambda: folder)
    return folder


def write_archive(folder: Path, lines: list[str]) -> None:
    with zipfile.ZipFile(folder / "flights.csv.zip", "w") as archive:
        archive.writestr("flights.csv", HEADER + "".join(lines))


def test_each_day_becomes_a_file_with_its_lines_unchanged(package: Path, tmp_path: Path) -> None:
    write_archive(package, LINES)
    flights = data.write_daily_files(tmp_path)
    assert (flights.days, flights.rows) == (2, 3)
    files = {path.name: path.read_bytes().decode() for path in (tmp_path / "days").iterdir()}
    assert files == {
        "flights-2013-01-01.csv": HEADER + LINES[0] + LINES[1],
        "flights-2013-12-31.csv": HEADER + LINES[2],
    }


def test_a_day_that_comes_twice_does_not_replace_its_first_half(package: Path, tmp_path: Path) -> None:
    write_archive(package, [LINES[0], LINES[2], LINES[1]])
    with pytest.raises(FileExistsError):
        data.write_daily_files(tmp_path)


def test_the_days_come_whole_in_their_order_and_stop_when_told(tmp_path: Path) -> None:
    days, target = tmp_path / "days", tmp_path / "in"
    days.mkdir()
    for name in "cab":
        (days / name).write_text(name)
    with data.Replay(days, target, seconds=3_000):
        pass
    moved, left = ([path.read_text() for path in sorted(folder.iterdir())] for folder in (target, days))
    assert moved + left == ["a", "b", "c"] and len(moved) <= 1


def row(route: str, flights: int = 1) -> Row:
    return (*route.split(), flights, 1, 0, -5, -5, 100, "An Airline", 0)


def test_equal_rows_are_exact_in_any_order() -> None:
    expected = {route: row(route) for route in ("UA EWR IAH", "AA JFK MIA")}
    assert differences(expected, [row("AA JFK MIA"), row("UA EWR IAH")]) == []


@pytest.mark.parametrize(
    ("found", "routes"),
    [
        ([row("UA EWR IAH")], ["AA JFK MIA"]),
        ([row("UA EWR IAH"), row("AA JFK MIA", flights=2)], ["AA JFK MIA"]),
        ([row("UA EWR IAH"), row("AA JFK MIA"), row("ZZ JFK MIA")], ["ZZ JFK MIA"]),
        ([row("UA EWR IAH"), row("AA JFK MIA"), row("AA JFK MIA")], ["AA JFK MIA (twice)"]),
        ([], ["AA JFK MIA", "UA EWR IAH"]),
    ],
    ids=["missing", "wrong", "too many", "twice", "nothing"],
)
def test_every_kind_of_difference_is_found(found: list[Row], routes: list[str]) -> None:
    expected = {route: row(route) for route in ("UA EWR IAH", "AA JFK MIA")}
    assert [difference["route"] for difference in differences(expected, found)] == routes


def test_the_sink_is_counted_and_read(tmp_path: Path) -> None:
    database = tmp_path / "routes.db"
    assert rows_in_sink(database) == 0
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE other (x)")
        assert rows_in_sink(database) == 0
        connection.execute(f"CREATE TABLE {data.TABLE} ({', '.join(data.COLUMNS)})")
        connection.execute(
            f"INSERT INTO {data.TABLE} VALUES ({', '.join('?' * len(data.COLUMNS))})",
            row("UA EWR IAH", 7),
        )
        connection.commit()
    assert rows_in_sink(database) == 7
    assert found_rows(database) == [row("UA EWR IAH", 7)]


@pytest.mark.parametrize(
    ("seen", "reached"),
    [
        # A slow batch, or a night between two days of the replay, is not the end.
        ([60] * STALLED_LOOKS + [70] * STALLED_LOOKS, False),
        ([60] * (STALLED_LOOKS + 1), True),
        ([100] * QUIET_LOOKS, False),
        ([100] * (QUIET_LOOKS + 1), True),
        # Rows that come twice are waited for too, so that the comparison sees them.
        ([100] * QUIET_LOOKS + [110] * QUIET_LOOKS, False),
    ],
)
def test_the_end_is_when_all_rows_are_there_or_none_come_for_long(seen: list[int], reached: bool) -> None:
    end = EndOfRows(rows_total=100)
    assert [end.is_reached(rows) for rows in seen] == [False] * (len(seen) - 1) + [reached]


def report(**changes: Any) -> dict[str, Any]:
    return {
        "exact": True,
        "flights": 3,
        "flightsInSink": 3,
        "routes": 2,
        "routesInSink": 2,
        "differences": [],
        "rescales": [],
        **changes,
    }


@pytest.mark.parametrize(
    ("changes", "status", "last"),
    [
        ({}, 0, "exact"),
        (
            {"exact": False, "differences": [{"route": "UA EWR IAH", "expected": (1,), "found": None}]},
            1,
            "NOT exact",
        ),
    ],
)
def test_the_last_line_and_the_status_say_whether_it_was_exact(
    slotwise: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any],
    status: int,
    last: str,
) -> None:
    monkeypatch.setattr(command, "run", lambda *_: report(**changes))
    outcome = slotwise("demo", "--data-dir", str(tmp_path / "new"))
    assert outcome.status == status
    assert outcome.out.splitlines()[-1] == last
    if status:
        assert "UA EWR IAH: expected (1,), found None" in outcome.out


def test_a_directory_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is not an empty directory"):
        command._folder(tmp_path)


def test_a_wheel_has_the_job_of_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(app.__file__).parent.parent
    wheel = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    for place in wheel["only-include"]:
        if place != "app":
            shutil.copytree(root / place, tmp_path / wheel["sources"].get(place, place))
    monkeypatch.setattr(app, "__file__", str(tmp_path / "app" / "__init__.py"))
    folder = command.example_folder()
    assert folder == tmp_path / "app" / "_examples" / "flights"
    document = submit.read_graph(folder / "flights.yaml")
    assert list(submit.check_graph(folder / "flights.yaml", document)) == ["routes.py"]
    shutil.rmtree(folder)
    with pytest.raises(CliError, match="install Slotwise again"):
        command.example_folder()


def test_the_first_job_of_the_page_is_one_that_a_server_takes(tmp_path: Path) -> None:
    page = (Path(app.__file__).parent.parent / "docs" / "install.md").read_text()
    graph = tmp_path / "counts.yaml"
    graph.write_text(page.partition("<<'END'\n")[2].partition("END\n")[0])
    document = submit.read_graph(graph)
    assert submit.check_graph(graph, document) == {}
    assert document["name"] == "counts"
    assert document["vertices"][2]["sink"]["path"] == str(tmp_path / "counts.db")
