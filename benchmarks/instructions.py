"""How many instructions a request takes: of this checkout, and of another one.

    python benchmarks/instructions.py [--before CHECKOUT] [--clients 1] [--runs 3] [--seconds 12]

Needs valgrind. Its tool callgrind counts every instruction of the server, of all its threads, while each client sends
requests one after another. CPU time of two starts of one checkout differs by 15 %; this count by 2 %, whatever else
runs on the machine. A figure is the median over ``--runs`` starts of each, with the lowest and the highest.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks._waiting_jobs import Program, program
from benchmarks.control_plane import jobs_with_history, loads, spread

_CONTROL = "callgrind_control"


def counted(running: Program, requests: list[list[str]], clients: int, seconds: float, counts: Path) -> float:
    """Thousands of instructions for each answer."""
    pid = str(running.server.process.pid)
    running.load(requests, clients=clients, seconds=1, warm_up_s=0.3)
    subprocess.run([_CONTROL, "-i", "on", pid], check=True, capture_output=True)
    # The first requests pay for the translation of the code to be counted.
    running.load(requests, clients=clients, seconds=2, warm_up_s=0)
    subprocess.run([_CONTROL, "-z", pid], check=True, capture_output=True)
    figures = running.load(requests, clients=clients, seconds=seconds, warm_up_s=0)
    before = set(counts.iterdir())
    subprocess.run([_CONTROL, "-d", pid], check=True, capture_output=True)
    subprocess.run([_CONTROL, "-i", "off", pid], check=True, capture_output=True)
    (written,) = set(counts.iterdir()) - before
    with written.open() as lines:
        total = next(int(line.split()[1]) for line in lines if line.startswith("summary:"))
    return total / sum(figures["all_statuses"].values()) / 1000


def of_one_start(checkout: Path, clients: int, seconds: float) -> dict[str, float]:
    """By the name of a request."""
    with tempfile.TemporaryDirectory(prefix="slotwise-instructions-") as directory:
        tool = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--quiet"]
        command = [*tool, f"--callgrind-out-file={directory}/of", str(checkout / ".venv/bin/python")]
        with program(command, checkout) as running:
            load = loads(jobs_with_history(running))
            return {
                name: counted(running, requests(clients)[0], clients, seconds, Path(directory))
                for name, requests in load.items()
            }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", type=Path)
    parser.add_argument("--clients", type=int, default=1)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=12)
    given = parser.parse_args()
    checkouts = {"now": Path(__file__).resolve().parents[1]}
    if given.before is not None:
        checkouts["before"] = given.before.resolve()
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for _ in range(given.runs):
        for which, checkout in checkouts.items():
            for name, thousands in of_one_start(checkout, given.clients, given.seconds).items():
                found[name][which].append(thousands)
    table = Table("request", *(f"thousands of instructions, {which}" for which in checkouts), "now / before")
    for name, of in found.items():
        medians = {which: sorted(each)[len(each) // 2] for which, each in of.items()}
        ratio = f"{medians['now'] / medians['before']:.3f}" if "before" in medians else ""
        table.add_row(name, *(spread(of[which], 0) for which in checkouts), ratio)
    Console().print(table)


if __name__ == "__main__":
    main()
