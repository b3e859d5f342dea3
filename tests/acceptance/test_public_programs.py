"""Programs as people publish them: rescaled in place at random, killed once, and their output that of a plain run."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance import program_results
from tests.acceptance.deployment import Deployment
from tests.acceptance.program_results import Rows
from tests.acceptance.programs import PROGRAMS as SCRIPTS
from tests.acceptance.programs import Place, Program, await_queries, submit
from tests.acceptance.published import compare, deployment

__all__ = ["deployment"]

pytestmark = [pytest.mark.timeout(1200), pytest.mark.long]

RESCALES = 3


class AccessLogs(Program):
    """Two of its queries fill tables in memory, which it shows by HTTP."""

    TABLES = ("counts", "missing")

    def is_at_end(self, place: Place) -> bool:
        """The tables have every line, too; what they have is kept for `rows`."""
        if not super().is_at_end(place):
            return False
        tables = {name: self._table(place, name) for name in self.TABLES}
        lines = [
            line for file in (place.input / "requests").iterdir() for line in file.read_text().splitlines()
        ]
        whole = (len(lines), sum(" 404 " in line for line in lines))
        if (sum(row["count"] for row in tables["counts"]), len(tables["missing"])) != whole:
            return False
        (place.own / "tables.json").write_text(json.dumps(tables), encoding="utf-8")
        return True

    def rows(self, place: Place) -> dict[str, Rows]:
        tables = json.loads((place.own / "tables.json").read_text(encoding="utf-8"))
        return {
            **super().rows(place),
            **{name: [tuple(row.items()) for row in rows] for name, rows in tables.items()},
        }

    def _table(self, place: Place, name: str) -> list[dict[str, Any]]:
        port = (place.output / "port").read_text()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/{name}", timeout=60) as answer:
                return json.load(answer)  # type: ignore[no-any-return]
        except OSError:
            return []


def customers(place: Place) -> Rows:
    with contextlib.closing(sqlite3.connect(place.output)) as file:
        return file.execute("SELECT * FROM customers ORDER BY id").fetchall()


def model(place: Place) -> Rows:
    saved = json.loads((place.own / "model.json").read_text(encoding="utf-8"))
    return list(zip(saved["counts"], map(tuple, saved["sums"]), strict=True))


def routed(place: Place) -> Rows:
    return [
        (folder, *row)
        for folder in ("readings", "dead")
        for row in program_results.file_sink(place.output / folder)
    ]


PROGRAMS = {
    "clickstream sessions": Program(
        "public/clickstream_sessions.py", "{clicks} {output} {checkpoint}", inputs=("clicks",)
    ),
    "card watch": Program(
        "public/card_watch.py",
        "{transactions-parquet} {output} {checkpoint}",
        inputs=("transactions-parquet",),
    ),
    "ad attribution": Program(
        "public/ad_attribution.py",
        "{impressions} {ad-clicks} {output} {checkpoint}",
        inputs=("impressions", "ad-clicks"),
        files=("public/ad_logger.py",),
    ),
    "medallion": Program(
        "public/medallion.py",
        "--landing {events} --lake {output} --checkpoints {checkpoint}",
        queries=("bronze", "silver", "gold"),
        reads={"silver": "bronze", "gold": "silver"},
        files=("public/lakehouse", "public/medallion.yaml"),
    ),
    "cdc to sqlite": Program(
        "public/cdc_to_sqlite.py", "{changes} {output} {checkpoint}", inputs=("changes",), read=customers
    ),
    "access logs": AccessLogs(
        "public/access_logs.py",
        "{requests} {output} {checkpoint}",
        inputs=("requests",),
        queries=("endpoints", "errors"),
        sinks=4,
    ),
    "visit classes": Program(
        "public/visit_classes.py", "{events} {output} {checkpoint}", files=("public/visit_training.csv",)
    ),
    "online centroids": Program(
        "public/online_centroids.py", "{events} {checkpoint} --per-trigger 6", read=model
    ),
    "dead letters": Program(
        "public/dead_letters.py",
        "{readings} --out {output} --checkpoint {checkpoint}",
        inputs=("readings",),
        read=routed,
    ),
    "unique sessions": Program(
        "public/unique_sessions.py",
        "-i {events} -w {output} --checkpoint={checkpoint}/sessions",
        queries=("sessions",),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_its_output_is_that_of_a_plain_run(deployment: Deployment, tmp_path: Path, name: str) -> None:
    program = PROGRAMS[name]
    alone, ours = (Place(tmp_path / "input", tmp_path / run) for run in ("plain", "slotwise"))
    both = (program, ours), (program, alone)
    outcome, _ = compare(deployment, name, *both, rescales=RESCALES, pause_s=2.0)
    assert outcome.in_place == RESCALES


def test_a_local_master_in_the_program_is_passed_over(deployment: Deployment, tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("one two", encoding="utf-8")
    submit(deployment, SCRIPTS / "public/local_master.py", [str(tmp_path)], "--name", "local master")
    await_queries(deployment, 1)
    deployment.stop()
