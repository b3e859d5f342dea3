"""What an autoscaled job costs and how far it falls behind, against a fixed maximum and a fixed mean.

    python benchmarks/autoscaler.py [--seconds 300] [--days 1] [--only autoscaled] [--model] [--json FILE] [--svg FILE]

Three jobs run `examples/autoscaler/day.py` at the same time, on a server of their own: their input follows a day that
is replayed in `--seconds`, and each row takes a task 20 ms of waiting. One has the bounds that `slotwise autoscale`
declares by `examples/autoscaler/quick.yaml`, one the maximum of that policy, and one what the mean rate needs. Each
second it is noted how many slots each job uses and holds, and how many rows that have come are not processed.

With `--model` the jobs are those of the autoscaler's tests: a model of batches in virtual time, without Spark, over a
day of 24 hours by the default policy. It takes a minute.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from _autoscaler_plot import plot
from _servers import Server, server, wait_for

from app.autoscaler.loop import Loop
from app.autoscaler.policy import Policy, Range
from tests.environments import CACHE
from tests.unit.autoscaler.model_job import START_MS, ModelJob

EXAMPLES = Path(__file__).resolve().parents[1] / "examples/autoscaler"
POLICY = EXAMPLES / "quick.yaml"
AUTOSCALED = "autoscaled"
START_AFTER_S = 10.0
"""Once all jobs run."""
SAMPLE_S = 1.0
DAY_S = 86_400.0


def day_module() -> Any:
    spec = importlib.util.spec_from_file_location("day", EXAMPLES / "day.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@dataclass
class Measured:
    """Of one job, each second from the first midnight on. ``held``: slots, which a job that needs fewer gives back
    after `slot.idle.timeout`. ``changes``: of its bounds, by the autoscaler."""

    name: str
    floor: int
    at_s: list[float] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
    backlog: list[int] = field(default_factory=list)
    changes: int = 0

    def summary(self) -> dict[str, Any]:
        length_s = self.at_s[-1] - self.at_s[0]
        return {
            "slot-seconds": round(statistics.mean(self.slots) * length_s),
            "held": round(statistics.mean(self.held) * length_s),
            "p95 backlog": round(statistics.quantiles(self.backlog, n=20)[-1]),
            "max backlog": max(self.backlog),
            "least slots": min(self.slots),
            "most slots": max(self.slots),
            "changes per hour": round(self.changes * 3600 / length_s, 1),
        }


def submit(running: Server, name: str, bounds: tuple[int, int], seconds: float, start: Path) -> str:
    each = {"lowerBound": bounds[0], "upperBound": bounds[1]}
    document = {
        "name": name,
        "script": "day.py",
        "args": ["--seconds", str(seconds), "--start", str(start)],
        "bounds": {"day": each, "store": each},
        # As short beside the day as the default is beside a real one.
        "config": {"slot.idle.timeout": "1 s"},
    }
    files = [
        ("graph", ("graph.json", json.dumps(document).encode(), "application/json")),
        ("files", ("day.py", (EXAMPLES / "day.py").read_bytes(), "application/octet-stream")),
    ]
    answer = running.http.post("/jobs", files=files, timeout=900)
    answer.raise_for_status()
    return str(answer.json()["jobid"])


def look(running: Server, job_id: str) -> tuple[int, int, int]:
    """The slots that a job uses and holds, and the rows that it has processed."""
    vertices = running.get(f"/jobs/{job_id}")["vertices"]
    source = next(each["id"] for each in vertices if each["name"] == "day")
    counted = running.get(f"/jobs/{job_id}/vertices/{source}/subtasks/metrics?get=numRecordsIn&agg=sum")
    held = running.get(f"/jobs/{job_id}/explanation")["slots"]["held"]
    return max(each["parallelism"] for each in vertices), held, round(counted[0]["sum"]) if counted else 0


def measure(
    running: Server, jobs: dict[str, str], floor: int, seconds: float, days: int, start_s: float
) -> list[Measured]:
    due = day_module().due
    found = {name: Measured(name, floor if name == AUTOSCALED else 1) for name in jobs}
    while (at_s := time.time() - start_s) < seconds * days:
        for name, job_id in jobs.items():
            slots, held, rows = look(running, job_id)
            now_s = time.time() - start_s
            found[name].at_s.append(now_s)
            found[name].slots.append(slots)
            found[name].held.append(held)
            found[name].backlog.append(max(0, due(now_s, seconds) - rows))
        time.sleep(max(0.0, start_s + at_s + SAMPLE_S - time.time()))
    return list(found.values())


def policy_max() -> int:
    return int(yaml.safe_load(POLICY.read_text(encoding="utf-8"))["parallelism"]["max"])


def chosen_bounds(options: argparse.Namespace) -> dict[str, tuple[int, int]]:
    # The mean rate is 100 rows per second.
    mean = math.ceil(100 * day_module().ROW_MS / 1000 / 0.7)
    bounds = {
        AUTOSCALED: (options.floor, max(2, options.floor)),
        "fixed maximum": (1, policy_max()),
        "fixed mean": (1, mean),
    }
    return {name: each for name, each in bounds.items() if options.only in (None, name)}


def run_model(options: argparse.Namespace) -> list[Measured]:
    day = day_module()
    chosen, found = chosen_bounds(options), []
    policy = Policy(interval_ms=30_000, parallelism=Range(max=policy_max()))
    for name, (lower, upper) in chosen.items():
        job = ModelJob(
            lambda at_ms: (day.due((at_ms + 60_000) / 1000, DAY_S) - day.due(at_ms / 1000, DAY_S)) / 60,
            row_ms=day.ROW_MS,
            own_ms=100,
            lower=lower,
            upper=upper,
            parallelism=upper,
        )
        loop = Loop(job, "job", policy) if name == AUTOSCALED else None
        one = Measured(name, lower)
        while job.now_ms - START_MS < options.days * DAY_S * 1000:
            if loop is not None:
                loop.turn()
            job.run_to(job.now_ms + policy.interval_ms)
            one.at_s.append((job.now_ms - START_MS) / 1000)
            one.slots.append(job.parallelism)
            one.held.append(job.parallelism)
            one.backlog.append(round(job.backlogs[-1]))
        one.changes = len(job.declared)
        found.append(one)
    return found


def run(options: argparse.Namespace) -> list[Measured]:
    chosen = chosen_bounds(options)
    slots = sum(policy_max() if name == AUTOSCALED else upper for name, (_, upper) in chosen.items())
    settings = {"warm_drivers": "0", "cache_dir": str(CACHE)}
    with server(slots=slots, **settings) as running, tempfile.TemporaryFile() as turns:
        start = running.directory / "midnight"
        jobs = {name: submit(running, name, each, options.seconds, start) for name, each in chosen.items()}
        for job_id in jobs.values():
            wait_for("a job", lambda job_id=job_id: running.get(f"/jobs/{job_id}")["state"] == "RUNNING", 900)
        start_s = time.time() + START_AFTER_S
        start.with_suffix(".new").write_text(str(start_s), encoding="ascii")
        start.with_suffix(".new").rename(start)
        command = [
            sys.executable,
            "-m",
            "app.cli",
            "autoscale",
            jobs[AUTOSCALED],
            "--policy",
            str(POLICY),
            "--json",
        ]
        scaler = subprocess.Popen([*command, "--server", running.url], stdout=turns, stderr=turns)
        try:
            time.sleep(max(0.0, start_s - time.time()))
            found = measure(running, jobs, options.floor, options.seconds, options.days, start_s)
        finally:
            scaler.terminate()
            scaler.wait()
        turns.seek(0)
        told = turns.read().decode().splitlines()
        (auto,) = (each for each in found if each.name == AUTOSCALED)
        decisions = [json.loads(line) for line in told if line.startswith("{")]
        auto.changes = sum(
            each["declared"] and each["timestampInMillis"] / 1000 >= start_s for each in decisions
        )
        for line in told:
            if not line.startswith("{"):
                print(line, file=sys.stderr)
        for each in decisions:
            if each["declared"]:
                print(
                    f"{each['timestampInMillis'] / 1000 - start_s:6.0f} s: {each['reason']}", file=sys.stderr
                )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=300, help="of a day")
    parser.add_argument("--days", type=int, default=1)
    parser.add_argument("--floor", type=int, default=1, help="the lower bounds of the autoscaled job")
    parser.add_argument("--only", choices=(AUTOSCALED,), help="without the fixed ones")
    parser.add_argument("--model", action="store_true", help="a model in virtual time instead of Spark")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where all samples are written")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="where the curves are drawn")
    options = parser.parse_args()
    found = (run_model if options.model else run)(options)
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(each) for each in found]), encoding="utf-8")
    if options.svg is not None:
        due, day_s = day_module().due, DAY_S if options.model else options.seconds
        step_s = day_s / 300
        arrivals = [(at_s, (due(at_s + step_s, day_s) - due(at_s, day_s)) / step_s) for at_s in found[0].at_s]
        options.svg.write_text(plot([asdict(each) for each in found], arrivals), encoding="utf-8")
    table = Table("job", *found[0].summary())
    for each in found:
        table.add_row(each.name, *(f"{value:,}" for value in each.summary().values()))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
