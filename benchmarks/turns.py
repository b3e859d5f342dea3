"""The requests of `control_plane.py` at two servers side by side: this checkout and another one.

    python benchmarks/turns.py --before CHECKOUT [--starts 5] [--turns 3] [--seconds 1.5] [--json]

Both servers have 32 jobs that wait for slots, and get the same load in turns of ``--seconds``, first the one and then
the other. So a machine that is slow for a while is so for both. They are started anew ``--starts`` times, since two
starts of one checkout differ by up to 15 % for as long as they live. Of a start counts the median of what a turn of
this checkout is to the turn beside it of the other: answers per second, and the CPU time of the server for an answer,
which is the one to trust where other programs run. A figure is the median over the starts, with the lowest and the
highest.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks._waiting_jobs import Program, program
from benchmarks.control_plane import CLIENTS, cpu_us, jobs_with_history, loads, spread

Load = Callable[[int], tuple[list[list[str]], list[str]]]
Turn = tuple[float, float]
"""Answers per second, and microseconds of CPU time for each; or what both are to those of another checkout."""


def turn(running: Program, load: Load, clients: int, seconds: float) -> Turn:
    requests, _ = load(clients)
    figures = running.load(requests, clients=clients, seconds=seconds, warm_up_s=0.3)
    return figures["answers"] / figures["seconds"], cpu_us(figures)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", type=Path, required=True)
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found: dict[tuple[str, int], list[Turn]] = defaultdict(list)
    for _ in range(given.starts):
        for cell, ratios in of_one_start(given.before.resolve(), given.turns, given.seconds).items():
            found[cell].append(ratios)
    if given.json:
        print(json.dumps([(*cell, ratios) for cell, ratios in found.items()]))
        return
    table = Table("request", "clients", "answers per second, now / before", "CPU time, now / before")
    for (name, clients), ratios in found.items():
        table.add_row(name, str(clients), *(spread([each[at] for each in ratios], 3) for at in (0, 1)))
    Console().print(table)


def of_one_start(before_checkout: Path, turns: int, seconds: float) -> dict[tuple[str, int], Turn]:
    """By request and number of clients: what this checkout is to the other one, in the median of the turns."""
    found: dict[tuple[str, int], list[Turn]] = defaultdict(list)
    with program(checkout=before_checkout) as before, program() as now:
        pair = [(server, loads(jobs_with_history(server))) for server in (before, now)]
        for number in range(turns):
            for name in pair[0][1]:
                for clients in CLIENTS:
                    order = (0, 1) if number % 2 == 0 else (1, 0)
                    took = {at: turn(pair[at][0], pair[at][1][name], clients, seconds) for at in order}
                    found[name, clients].append((took[1][0] / took[0][0], took[1][1] / took[0][1]))
    return {
        cell: (statistics.median(per_s for per_s, _ in each), statistics.median(cpu for _, cpu in each))
        for cell, each in found.items()
    }


if __name__ == "__main__":
    main()
