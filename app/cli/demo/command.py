"""The demo from its preparation to its verdict, and the cleaning up after it."""

from __future__ import annotations

import contextlib
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

import app
from app.cli import rescales
from app.cli.client import Client
from app.cli.demo import data
from app.cli.demo.data import Flights, Replay, write_daily_files
from app.cli.demo.display import Display, LiveDisplay, PlainDisplay
from app.cli.demo.scenario import Scenario
from app.cli.demo.server import DemoServer
from app.cli.errors import CliError, UsageError
from app.cli.options import JsonOption, path_of
from app.cli.output import is_terminal, print_json, say, warn
from app.cli.submit import read_artifacts, read_graph, send, wait_until_running

SLOTS = 6
DIFFERENCES_SHOWN = 20


def demo(
    data_dir: Annotated[
        Path | None,
        typer.Option(metavar="PATH", parser=path_of, help="An empty directory to work in; it is kept."),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the temporary directory.")] = False,
    seconds: Annotated[
        int, typer.Option(min=20, max=3600, help="How long the replay of the year takes.")
    ] = 110,
    as_json: JsonOption = False,
) -> None:
    """Replay a year of flights through a job that is rescaled and killed; check that its output is exact."""
    folder = _folder(data_dir)
    removable = data_dir is None and not keep
    display: Display = LiveDisplay() if is_terminal() and not as_json else PlainDisplay(to_stderr=as_json)
    started = time.monotonic()
    try:
        with _interrupt_on_sigterm():
            report = run(folder, seconds, display)
    except (CliError, KeyboardInterrupt):
        display.close()
        warn(f"What the demo wrote is kept in {folder}; the server's log is {folder / 'server.log'}.")
        raise
    finally:
        display.close()
    report["seconds"] = round(time.monotonic() - started, 1)
    exact = bool(report["exact"])
    if removable and exact:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        report["dataDir"] = str(folder)
    if as_json:
        print_json(report)
    else:
        show(report)
    if not exact:
        raise typer.Exit(1)


def _folder(data_dir: Path | None) -> Path:
    if data_dir is None:
        return Path(tempfile.mkdtemp(prefix="slotwise-demo-"))
    folder = data_dir.expanduser().absolute()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is not an empty directory; give another one with --data-dir.")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def _interrupt_on_sigterm() -> Iterator[None]:
    """SIGTERM ends the demo as Ctrl-C does: with its cleaning up."""

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def run(folder: Path, seconds: int, display: Display) -> dict[str, Any]:
    """The whole demo in ``folder``; its report. Leaves no process behind, whatever happens."""
    display.step(f"write the flights as daily CSV files into {folder / 'days'}")
    flights = write_daily_files(folder)
    display.note(f"{flights.rows:,} flights on {flights.days} days")
    server = DemoServer(folder, SLOTS)
    client: Client | None = None
    job_id: str | None = None
    try:
        display.step(f"start a server with {SLOTS} slots")
        client = server.start()
        display.note(f"it listens on {server.url}, data in {folder / 'server'}")
        display.step("submit the job: flights -> routes (stateful) -> named (Python) -> store")
        job_id = submit_flights(client, folder, flights)
        display.note(f"job {job_id}")
        wait_until_running(client, job_id, display.note)
        display.note("RUNNING")
        scenario = Scenario(client, job_id, folder / "routes.db", flights.rows, display)
        display.step(f"let a day come every {1000 * seconds / flights.days:.0f} ms")
        with Replay(flights.days_dir, flights.input_dir, seconds):
            scenario.run()
        display.step("compare the sink with the answer that pandas computes from the file")
        history = rescales.history(client, job_id, limit=100)
        report = verdict(flights, folder / "routes.db")
        report.update(jobid=job_id, steps=scenario.done, rescales=history)
        return report
    finally:
        # A second Ctrl-C must not leave half of the processes behind.
        with _ignored(signal.SIGINT), _ignored(signal.SIGTERM):
            for problem in server.close(client, job_id):
                warn(problem)


@contextlib.contextmanager
def _ignored(number: signal.Signals) -> Iterator[None]:
    previous = signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(number, previous)


def example_folder() -> Path:
    """The flights example: beside the modules of an installed wheel, or in the root of a checkout.

    Raises:
        CliError: it is in neither place.
    """
    package = Path(app.__file__).absolute().parent
    for folder in (package / "_examples" / "flights", package.parent / "examples" / "flights"):
        if (folder / "flights.yaml").is_file():
            return folder
    raise CliError("The job of the demo is missing from this installation: install Slotwise again.")


def submit_flights(client: Client, folder: Path, flights: Flights) -> str:
    """Submit examples/flights with its paths in ``folder``."""
    example = example_folder()
    document = read_graph(example / "flights.yaml")
    for vertex in document["vertices"]:
        if vertex["name"] == "flights":
            vertex["source"]["path"] = str(flights.input_dir)
            # After a pause there are many days at once.
            vertex["source"]["options"]["maxFilesPerTrigger"] = "20"
        elif vertex["name"] == "airlines":
            vertex["source"]["path"] = str(flights.airlines)
        elif vertex["name"] == "store":
            vertex["sink"]["path"] = str(folder / "routes.db")
    return send(client, document, read_artifacts(document["artifacts"], example))


def verdict(flights: Flights, sink: Path) -> dict[str, Any]:
    """Whether the sink holds exactly the right answer, and what differs."""
    expected = data.expected_rows(flights)
    found = data.found_rows(sink)
    wrong = data.differences(expected, found)
    return {
        "exact": not wrong,
        "flights": flights.rows,
        "flightsInSink": sum(int(row[3]) for row in found),
        "routes": len(expected),
        "routesInSink": len(found),
        "differences": wrong,
    }


def show(report: dict[str, Any]) -> None:
    """The rescale history as a table, what differs, and the last word: exact, or NOT exact."""
    say()
    say("The rescale history, oldest first:")
    rescales.show_history(list(reversed(report["rescales"])))
    say()
    counted = f"{report['flightsInSink']:,} of {report['flights']:,} flights"
    say(f"{counted} on {report['routesInSink']} of {report['routes']} routes are in the sink")
    if "dataDir" in report:
        say(f"kept in {report['dataDir']}")
    say(f"the demo took {report['seconds']} s")
    if report["exact"]:
        say("exact")
        return
    for item in report["differences"][:DIFFERENCES_SHOWN]:
        say(f"  {item['route']}: expected {item['expected']}, found {item['found']}")
    if len(report["differences"]) > DIFFERENCES_SHOWN:
        say(f"  and {len(report['differences']) - DIFFERENCES_SHOWN} more")
    say("NOT exact")
