"""The control plane under load: HTTP requests, many jobs, and steps of the core. A real server, no drivers, no Spark.

    python benchmarks/control_plane.py [--quick] [--json FILE] [--only requests jobs steps]

(a) Requests over HTTP with 1, 8 and 32 keep-alive clients, from a process of its own (`_http_load.py`). The server is
`slotwise serve` on SQLite with synchronous=FULL: a PUT is answered when it is on the disk. Each PUT changes the bounds;
in "PUT, many jobs" each client has a job of its own, in "PUT, one job" all of them write the same one. The jobs wait
for more slots than there are, so that no driver is started. Figures are medians over the rounds, with the lowest and
the highest. "CPU/req" is the server's CPU time for a request: with other programs on the machine, the one to trust.

(b) With many jobs: memory of the server per job, time to submit them (32 clients), to list them, and to restart.

(c) Steps per second of the core (`core_steps.py`).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks import core_steps, store_commits
from benchmarks._waiting_jobs import Program, gets, program, put, puts

CLIENTS = (1, 8, 32)
HISTORY = 20
# Given with the task of this benchmark; measured on another machine, not by this script.
FLINK = {
    "GET": {"per_s": (4_700, 17_000), "p99_ms": (25, 70)},
    "PUT": {"per_s": (700, 1_000), "refused": (0.83, 0.93)},
}


@dataclass(frozen=True)
class Round:
    """One round of requests. ``changed``: versions of the requirements that are there now and were not before."""

    per_s: float
    p50_ms: float
    p99_ms: float
    cpu_us: float
    accepted_per_s: float
    refused: int
    changed: int


def loads(job_ids: list[str]) -> dict[str, Callable[[int], tuple[list[list[str]], list[str]]]]:
    """By name: for a number of clients, their requests and the jobs whose requirements they change."""
    one = job_ids[:1]
    return {
        "GET requirements": lambda _: (gets(job_ids, "resource-requirements"), []),
        f"GET history ({HISTORY})": lambda _: (gets(job_ids, f"rescales/history?limit={HISTORY}"), []),
        "PUT, many jobs": lambda clients: (puts(job_ids, clients), job_ids[:clients]),
        "PUT, one job": lambda clients: (puts(one, clients), one),
    }


def jobs_with_history(running: Program) -> list[str]:
    """The ids of new jobs that wait, each with some changes of bounds."""
    running.submit(max(CLIENTS))
    job_ids = running.job_ids()
    for job_id in job_ids:
        for upper in range(9, 10 + HISTORY):
            method, path, body = put(job_id, upper).split(" ", 2)
            running.server.http.request(method, path, content=body).raise_for_status()
    return job_ids


def measure_requests(
    running: Program, rounds: int, seconds: float, tell: Callable[[str], None]
) -> dict[str, Any]:
    job_ids = jobs_with_history(running)
    records = running.server.get(f"/jobs/{job_ids[0]}/rescales/history?limit={HISTORY}")
    if len(records) != HISTORY:
        raise RuntimeError(f"{len(records)} records instead of {HISTORY}")
    found: dict[str, Any] = {}
    for name, requests_of in loads(job_ids).items():
        for clients in CLIENTS:
            requests, changes = requests_of(clients)
            done = []
            for number in range(rounds):
                tell(f"{name}, {clients} clients, round {number + 1}")
                before = running.versions(changes)
                figures = running.load(requests, clients=clients, seconds=seconds, warm_up_s=0.3)
                changed = running.versions(changes) - before
                check(figures, changed, clients if clients == len(changes) else None, puts=bool(changes))
                done.append(round_of(figures, changed))
            found.setdefault(name, {})[clients] = done
    return found


def cpu_us(figures: dict[str, Any]) -> float:
    """CPU time of the server for an answer, in microseconds."""
    return float(figures["server_cpu_s"] / sum(figures["all_statuses"].values()) * 1e6)


def check(figures: dict[str, Any], changed: int, of_own_job: int | None, *, puts: bool) -> None:
    """What was answered is there: a PUT that was accepted has made a version of the requirements.

    A PUT of what is in force already changes nothing. With ``of_own_job`` clients, each of which writes a job of its
    own, only the first PUT of each client may be such a one: the round before may have ended with it.
    """
    accepted = figures["all_statuses"].get("200", 0)
    if puts and (changed > accepted or (of_own_job is not None and changed < accepted - of_own_job)):
        raise RuntimeError(f"{changed} new versions, but the answers were {figures['all_statuses']}")


def round_of(figures: dict[str, Any], changed: int) -> Round:
    everything = sum(figures["all_statuses"].values())
    accepted = figures["statuses"].get("200", 0)
    return Round(
        per_s=figures["answers"] / figures["seconds"],
        p50_ms=figures["p50_ms"],
        p99_ms=figures["p99_ms"],
        cpu_us=cpu_us(figures),
        accepted_per_s=accepted / figures["seconds"],
        refused=everything - figures["all_statuses"].get("200", 0),
        changed=changed,
    )


def measure_jobs(counts: list[int], tell: Callable[[str], None]) -> list[dict[str, float]]:
    found = []
    with program() as running:
        there, empty_bytes = 0, running.rss_bytes()
        empty = {"stop_s": running.stop(), "start_s": running.start()}
        for count in counts:
            tell(f"submit {count:,} jobs")
            submit_s = running.submit(count - there)
            added, there = count - there, count
            grown_bytes = running.rss_bytes()
            tell(f"list {count:,} jobs")
            took = []
            for _ in range(5):
                began = time.perf_counter()
                shown = len(running.server.get("/jobs/overview")["jobs"])
                took.append(time.perf_counter() - began)
                assert shown == count, f"{shown} jobs are listed, not {count}"
            tell(f"PUT with {count:,} jobs")
            one = running.job_ids()[:1]
            puts_there = running.load(puts(one, 1), clients=1, seconds=2.0, warm_up_s=0.3)
            tell(f"restart with {count:,} jobs")
            stop_s, start_s = running.stop(), running.start()
            assert len(running.job_ids()) == count
            found.append(
                {
                    "jobs": count,
                    "kib_per_job": (grown_bytes - empty_bytes) / count / 1024,
                    "kib_per_job_after_restart": (running.rss_bytes() - empty_bytes) / count / 1024,
                    "submit_per_s": added / submit_s,
                    "overview_ms": statistics.median(took) * 1000,
                    "put_p50_ms": puts_there["p50_ms"],
                    "put_cpu_us": cpu_us(puts_there),
                    "stop_s": stop_s,
                    "start_s": start_s,
                }
            )
    return [empty, *found]


def measure_steps(repetitions: int, seconds: float, tell: Callable[[str], None]) -> dict[str, list[float]]:
    found = {}
    for loop in core_steps.LOOPS:
        tell(f"steps: {loop.name}")
        found[loop.name] = [core_steps.measure(loop, seconds) for _ in range(repetitions)]
    return found


def spread(values: list[float], digits: int = 0) -> str:
    return f"{statistics.median(values):,.{digits}f} ({min(values):,.{digits}f}-{max(values):,.{digits}f})"


def ratio(value: float, reference: tuple[float, float]) -> str:
    """``value`` in units of the reference's best and of its worst figure."""
    return f"{value / reference[1]:.1f}-{value / reference[0]:.1f}x"


def request_table(found: dict[str, Any]) -> Table:
    table = Table(title="(a) requests over HTTP: median (lowest-highest)")
    for column in (
        "request",
        "clients",
        "req/s",
        "p50 ms",
        "p99 ms",
        "CPU/req µs",
        "accepted PUT/s",
        "refused",
        "/ Flink",
    ):
        table.add_column(column, justify="left" if column == "request" else "right")
    for name, by_clients in found.items():
        is_put = name.startswith("PUT")
        for clients, rounds in by_clients.items():
            accepted = [one.accepted_per_s for one in rounds]
            per_s = statistics.median(accepted if is_put else [one.per_s for one in rounds])
            table.add_row(
                name,
                str(clients),
                spread([one.per_s for one in rounds]),
                spread([one.p50_ms for one in rounds], 1),
                spread([one.p99_ms for one in rounds], 1),
                f"{statistics.median(one.cpu_us for one in rounds):,.0f}",
                spread(accepted) if is_put else "",
                str(sum(one.refused for one in rounds)) if is_put else "",
                ratio(per_s, FLINK["PUT" if is_put else "GET"]["per_s"]),
            )
        table.add_section()
    flink = "Flink 2.3 JobManager (NOT this machine; PUT not durable without HA)"
    table.add_row(f"{flink}: GET", "", "4,700-17,000", "", "25-70", "", "", "", "")
    table.add_row(f"{flink}: PUT", "", "", "", "", "", "700-1,000", "83-93 %", "")
    return table


def job_table(found: list[dict[str, float]]) -> Table:
    empty, *found = found
    table = Table(
        title=f"(b) many jobs; without any: stop {empty['stop_s']:.1f} s, start {empty['start_s']:.1f} s"
    )
    for column in (
        "jobs",
        "KiB/job",
        "after restart",
        "submitted/s",
        "overview ms",
        "PUT p50 ms",
        "PUT CPU µs",
        "stop s",
        "start s",
    ):
        table.add_column(column, justify="right")
    for row in found:
        table.add_row(
            f"{row['jobs']:,}",
            f"{row['kib_per_job']:.1f}",
            f"{row['kib_per_job_after_restart']:.1f}",
            f"{row['submit_per_s']:,.0f}",
            f"{row['overview_ms']:,.0f}",
            f"{row['put_p50_ms']:.1f}",
            f"{row['put_cpu_us']:,.0f}",
            f"{row['stop_s']:.1f}",
            f"{row['start_s']:.1f}",
        )
    return table


def step_table(found: dict[str, list[float]]) -> Table:
    table = Table(title="(c) steps of the core per second of CPU time: median (lowest-highest)")
    for column in ("loop", "steps/s", "µs/step"):
        table.add_column(column, justify="left" if column == "loop" else "right")
    for name, rates in found.items():
        table.add_row(name, spread(rates), f"{1e6 / statistics.median(rates):.1f}")
    return table


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds, at most 1,000 jobs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there as well")
    parser.add_argument("--only", nargs="+", choices=["requests", "jobs", "steps"], help="leave the rest out")
    args = parser.parse_args()
    parts = args.only or ["requests", "jobs", "steps"]
    rounds, seconds = (3, 1.0) if args.quick else (5, 3.0)
    counts = [200, 1_000] if args.quick else [1_000, 10_000]
    console = Console(width=None if sys.stdout.isatty() else 160)
    machine = {
        "cores": os.cpu_count(),
        "python": sys.version.split()[0],
        "load_average_at_start": os.getloadavg()[0],
        "fdatasync_per_s": store_commits.fdatasyncs_per_s(Path(tempfile.gettempdir()), 1.0),
    }
    console.print(
        f"{machine['cores']} cores, Python {machine['python']}, load {machine['load_average_at_start']:.1f}"
    )
    result: dict[str, Any] = {"machine": machine, "flink_on_another_machine": FLINK}
    total = (len(CLIENTS) * 4 * rounds if "requests" in parts else 0) + (
        4 * len(counts) if "jobs" in parts else 0
    )
    total += len(core_steps.LOOPS) if "steps" in parts else 0
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("starting", total=total)

        def tell(what: str) -> None:
            progress.update(task, advance=1, description=what)

        if "requests" in parts:
            with program() as running:
                requests = measure_requests(running, rounds, seconds, tell)
            result["requests"] = {
                name: {clients: [asdict(one) for one in done] for clients, done in by_clients.items()}
                for name, by_clients in requests.items()
            }
            console.print(request_table(requests))
        if "jobs" in parts:
            result["jobs"] = measure_jobs(counts, tell)
            console.print(job_table(result["jobs"]))
        if "steps" in parts:
            result["steps"] = measure_steps(3 if args.quick else 7, 0.3, tell)
            console.print(step_table(result["steps"]))
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
