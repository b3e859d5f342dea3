"""The requests of `control_plane.py` at two servers side by side: this checkout and another one.

    python benchmarks/turns.py --before CHECKOUT [--turns 9] [--seconds 1.5] [--json]

Both servers live throughout, with 32 jobs that wait for slots, and get the same load in turns of ``--seconds``, first
the one and then the other. So a machine that is slow for a while is so for both. A figure is the median of what one
turn of this checkout is to the turn beside it of the other: answers per second, and the CPU time of the server for an
answer, which is the one to trust where other programs run.
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
from benchmarks.control_plane import CLIENTS, cpu_us, jobs_with_history, loads

Load = Callable[[int], tuple[list[list[str]], list[str]]]
Turn = tuple[float, float]
"""Answers per second, and microseconds of CPU time for each."""


def turn(running: Program, load: Load, clients: int, seconds: float) -> Turn:
    requests, _ = load(clients)
    figures = running.load(requests, clients=clients, seconds=seconds, warm_up_s=0.3)
    return figures["answers"] / figures["seconds"], cpu_us(figures)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", type=Path, required=True)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found: dict[tuple[str, int], list[tuple[Turn, Turn]]] = defaultdict(list)
    with program(checkout=given.before.resolve()) as before, program() as now:
        pair = [(server, loads(jobs_with_history(server))) for server in (before, now)]
        names = list(pair[0][1])
        for number in range(given.turns):
            for name in names:
                for clients in CLIENTS:
                    order = (0, 1) if number % 2 == 0 else (1, 0)
                    took = {at: turn(pair[at][0], pair[at][1][name], clients, given.seconds) for at in order}
                    found[name, clients].append((took[0], took[1]))
    rows = []
    for (name, clients), turns in found.items():
        per_s, cpu = (statistics.median(b[at] / a[at] for a, b in turns) for at in (0, 1))
        rows.append((name, clients, len(turns), per_s, cpu))
    if given.json:
        print(json.dumps(rows))
        return
    table = Table("request", "clients", "turns", "answers per second, now / before", "CPU time, now / before")
    for name, clients, count, per_s, cpu in rows:
        table.add_row(name, str(clients), str(count), f"{per_s:.3f}", f"{cpu:.3f}")
    Console().print(table)


if __name__ == "__main__":
    main()
