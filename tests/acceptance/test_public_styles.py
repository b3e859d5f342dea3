"""Programs as people publish them, none of which Slotwise was written for: rescaled at random, killed once, their
output that of a plain run."""

from __future__ import annotations

import json
import socket
import sqlite3
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.acceptance import program_results
from tests.acceptance.deployment import Deployment
from tests.acceptance.program_results import Rows
from tests.acceptance.programs import Place, Program, printed
from tests.acceptance.published import compare, deployment
from tests.acceptance.test_programs import results
from tests.outputs import files_of

__all__ = ["deployment"]

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

RESCALES = 4
TOKEN = "of-the-catalog"


# -- what programs have written


def manifests(place: Place) -> Rows:
    """The rows of the parts that manifests name."""
    named = [json.loads(file.read_text("utf-8")) for file in place.output.glob("*.manifest")]
    lines = [
        line for parts in named for part in parts for line in (place.output / part).read_text().splitlines()
    ]
    return sorted(tuple(map(str, json.loads(line).values())) for line in lines)


def has_last_records(place: Place) -> bool:
    return {"-1", "-2"} <= {key for key, *_ in manifests(place)}


def table(statement: str) -> Callable[[Place], Rows]:
    def read(place: Place) -> Rows:
        with closing(sqlite3.connect(place.own / "database")) as database:
            return database.execute(statement).fetchall()

    return read


def labels(place: Place) -> Rows:
    current = place.output / (place.output / "CURRENT").read_text()
    rows = [row for file in files_of(current) for row in pq.ParquetFile(file).read().to_pylist()]
    return sorted((row["node"], row["root"]) for row in rows)


def with_folders(place: Place) -> Rows:
    """The rows of "bronze" with the names of their folders, and those of "gold"."""
    found: Rows = []
    for file in files_of(place.output / "bronze"):
        folders = file.parent.relative_to(place.output).parts
        found += [(*folders, *map(str, row.values())) for row in pq.ParquetFile(file).read().to_pylist()]
    return sorted(found) + [("gold", *row) for row in program_results.file_sink(place.output / "gold")]


def legs_and_cube(place: Place) -> Rows:
    read = program_results.file_sink
    return [(name, *row) for name in ("legs", "cube") for row in read(place.output / name)]


# -- the programs

FOLDERS = "{events} {output} {checkpoint}"
NAMED = "--events {events} --output {output} --checkpoint {checkpoint}"
BOTH = ("orders", "payments")
PUBLIC = {
    "data sources": Program(
        "public/manifest_sink.py",
        "--orders {orders} --payments {payments} --target {output} --checkpoint {checkpoint}",
        inputs=BOTH,
        read=manifests,
        at_end=has_last_records,
    ),
    "sql files": Program(
        "public/sql_runner.py",
        "-c sql_runner.yaml -f sql_clean.sql --file sql_figures.sql -d orders={orders} "
        "-d payments={payments} --define output={output} --define checkpoint={checkpoint}",
        inputs=BOTH,
        queries=("per_minute", "paid_orders"),
        files=tuple(f"public/{name}" for name in ("sql_runner.yaml", "sql_clean.sql", "sql_figures.sql")),
        at_end=lambda place: (
            program_results.is_at_end(place.checkpoint / "per_minute", [place.input / "orders"])
            and program_results.is_at_end(
                place.checkpoint / "paid_orders", [place.input / name for name in BOTH]
            )
        ),
    ),
    "scores": Program("public/score_visits.py", FOLDERS, files=("public/scoring_model.py",)),
    "history": Program(
        "public/visit_history.py",
        "{events} --db {own}/database --dim {own}/dim --checkpoint {checkpoint}",
        read=table("SELECT * FROM dim_visit UNION ALL SELECT *, 0 FROM fact ORDER BY 1, 3, 2"),
    ),
    "rounds": Program(
        "public/rounds.py",
        "{input} {output} {checkpoint}",
        inputs=BOTH,
        queries=("bronze_orders", "bronze_payments", "silver"),
        ends=True,
    ),
    "monitored": Program("public/monitored.py", NAMED + " --statsd {statsd}"),
    "rides": Program(
        "public/rides.py",
        FOLDERS,
        inputs=("rides",),
        files=("public/geometry.py",),
        queries=("legs", "by_driver", "cube"),
        sinks=4,
        read=legs_and_cube,
    ),
    "components": Program("public/components.py", FOLDERS, read=labels),
    "notebook": Program(
        "public/clickstream_notebook.py",
        FOLDERS,
        queries=("bronze", "gold"),
        sinks=3,
        read=with_folders,
    ),
    "http": Program(
        "public/enrich_by_http.py",
        "{events} {own}/database --checkpoint {checkpoint} --rate 9",
        inputs=("events-csv",),
        files=("public/catalog_client.py",),
        read=table("SELECT * FROM totals ORDER BY category, k"),
        env={"CATALOG_TOKEN": TOKEN, "APP_NAME": "enrich by HTTP"},
    ),
}


# -- what is around them


@contextmanager
def catalog() -> Iterator[str]:
    """The URL of a service that knows pages, and fails the first time that it is asked for one."""
    asked: Counter[str] = Counter()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked[self.path] += 1
            page = int(self.path.rsplit("-", 1)[1])
            status = 503 if asked[self.path] == 1 else 200
            status = status if self.headers["Authorization"] == f"Bearer {TOKEN}" else 401
            body = json.dumps({"category": f"category-{page % 3}"}).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
    assert all(number > 1 for number in asked.values()) and len(asked) == 10


class Gauges:
    """What has come by StatsD: by batch, the values of each name."""

    def __init__(self) -> None:
        self.values: dict[int, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._receive, daemon=True).start()

    def _receive(self) -> None:
        while True:
            name, rest = self._socket.recv(4096).decode().split(":", 1)
            value, _, batch = rest.split("|")
            if value != "None":
                self.values[int(batch.rsplit(":", 1)[1])][name].add(int(value))

    def check(self, files: Path) -> None:
        """Each batch was observed once, however often it was run, and altogether they are the input."""
        rows = {batch: found["spark.quality.rows"] for batch, found in self.values.items()}
        assert all(rows[batch] == found["spark.input"] for batch, found in self.values.items()), self.values
        assert all(len(each) == 1 for each in rows.values()), rows
        lines = sum(len(file.read_text("utf-8").splitlines()) for file in files.iterdir())
        # What a driver that was killed had no time to send is missing.
        assert lines / 2 < sum(min(each) for each in rows.values()) <= lines


@pytest.mark.parametrize("name", PUBLIC)
def test_its_output_is_that_of_a_plain_run(deployment: Deployment, tmp_path: Path, name: str) -> None:
    if name == "http":
        with catalog() as url:
            program = PUBLIC[name]
            run(deployment, tmp_path, name, replace(program, env={**program.env, "CATALOG_URL": url}))
    elif name == "monitored":
        ours, alone = Gauges(), Gauges()
        run(deployment, tmp_path, name, PUBLIC[name], {"slotwise": ours.address, "plain": alone.address})
        for gauges in (ours, alone):
            gauges.check(tmp_path / "input/events")
    else:
        run(deployment, tmp_path, name, PUBLIC[name])


def run(
    deployment: Deployment, directory: Path, name: str, program: Program, statsd: dict[str, str] | None = None
) -> None:
    """Run it in both ways on one input."""

    def run_in(run: str) -> tuple[Program, Place]:
        place = Place(directory / "input", directory / run)
        own = {"{own}": place.own, "{input}": place.input, "{statsd}": (statsd or {}).get(run, "")}
        arguments = program.arguments
        for mark, value in own.items():
            arguments = arguments.replace(mark, str(value))
        return replace(program, arguments=arguments), place

    outcome, text = compare(deployment, name, run_in("slotwise"), run_in("plain"), rescales=RESCALES)
    assert outcome.in_place >= RESCALES if program.ends else outcome.in_place == RESCALES
    if program.ends:
        assert results(printed(deployment)) == results(text) != []
