"""How long until an event is with every client that follows? A real server, no drivers, no Spark.

    python benchmarks/events.py [--clients 500] [--changes 100] [--json FILE]

Each client has a connection with `GET /events`; all of them are in a process of their own, which only reads. One PUT
after another changes the bounds of a job. Measured from the moment at which a PUT is sent until the last client has the
last event of it, and from its answer on: then it is durable. Clients and server share the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks._servers import wait_for
from benchmarks._waiting_jobs import Program, program, put

_PAUSE_S = 0.05
_PATIENCE_S = 30.0


class Arrivals:
    """When each event has reached the last of ``clients``, by the clock that all processes of the machine share."""

    def __init__(self, clients: int) -> None:
        self._clients = clients
        self._counts: dict[int, int] = {}
        self.at_s: dict[int, float] = {}
        self.is_known = asyncio.Condition()

    def note(self, number: int) -> bool:
        """Whether it was the last client."""
        self._counts[number] = self._counts.get(number, 0) + 1
        if self._counts[number] < self._clients:
            return False
        self.at_s[number] = time.monotonic()
        return True


async def _follow(port: int, arrivals: Arrivals, joined: asyncio.Semaphore) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    has_joined = False
    while line := await reader.readline():
        if not line.startswith(b"id: "):
            continue
        if not has_joined:
            # The first one only says from where on.
            has_joined = True
            joined.release()
        elif arrivals.note(int(line[4:])):
            async with arrivals.is_known:
                arrivals.is_known.notify_all()


async def _clients(port: int, count: int, pipe: Connection) -> None:
    arrivals, joined = Arrivals(count), asyncio.Semaphore(0)
    following = [asyncio.create_task(_follow(port, arrivals, joined)) for _ in range(count)]
    for _ in range(count):
        await joined.acquire()
    pipe.send("all follow")
    while (number := await asyncio.to_thread(pipe.recv)) is not None:
        async with asyncio.timeout(_PATIENCE_S), arrivals.is_known:
            await arrivals.is_known.wait_for(lambda wanted=number: wanted in arrivals.at_s)
        pipe.send(arrivals.at_s[number])
    for task in following:
        task.cancel()


def _run_clients(port: int, count: int, pipe: Connection) -> None:
    asyncio.run(_clients(port, count, pipe))


def _newest(running: Program, after: int) -> int:
    """The number of the last event that is stored."""
    answer = running.server.http.get("/events", params={"follow": "false", "after": after})
    numbers = [line[4:] for line in answer.text.splitlines() if line.startswith("id: ")]
    return int(numbers[-1]) if numbers else after


def measure(running: Program, clients: int, changes: int) -> dict[str, list[float]]:
    """Milliseconds until all have the last event of a change: since the PUT was sent, and since it was answered."""
    running.submit(1, clients=1)
    (job_id,) = running.job_ids()
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=_run_clients, args=(running.port, clients, theirs)
    )
    process.start()
    figures: dict[str, list[float]] = {"sent_ms": [], "answered_ms": [], "put_ms": []}
    try:
        wait_for("the clients", lambda: ours.poll(0))
        ours.recv()
        newest = _newest(running, 0)
        for change in range(changes):
            method, path, body = put(job_id, 9 + change % 100).split(" ", 2)
            sent_s = time.monotonic()
            answer = running.server.http.request(method, path, content=body)
            answered_s = time.monotonic()
            answer.raise_for_status()
            newest = _newest(running, newest)
            ours.send(newest)
            arrived_s = ours.recv()
            figures["put_ms"].append((answered_s - sent_s) * 1000)
            figures["sent_ms"].append((arrived_s - sent_s) * 1000)
            figures["answered_ms"].append((arrived_s - answered_s) * 1000)
            time.sleep(_PAUSE_S)
        ours.send(None)
        process.join(_PATIENCE_S)
    finally:
        if process.is_alive():
            process.kill()
    return figures


def row(name: str, values: Sequence[float]) -> list[str]:
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return [name, *(f"{value:.1f}" for value in (cuts[49], cuts[98], max(values)))]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, default=500)
    parser.add_argument("--changes", type=int, default=100)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with program() as running:
        before_s = running.cpu_s()
        figures = measure(running, arguments.clients, arguments.changes)
        cpu_ms = (running.cpu_s() - before_s) * 1000 / arguments.changes
    table = Table(
        "ms", "p50", "p99", "most", title=f"{arguments.clients} clients, {arguments.changes} changes"
    )
    for name, words in (
        ("sent_ms", "from the PUT until all have its events"),
        ("answered_ms", "from its answer until all have them"),
        ("put_ms", "the PUT alone"),
    ):
        table.add_row(*row(words, figures[name]))
    Console().print(table)
    Console().print(f"CPU of the server for each change: {cpu_ms:.1f} ms")
    if arguments.json:
        arguments.json.write_text(json.dumps({**figures, "cpu_ms": cpu_ms}))


if __name__ == "__main__":
    main()
