"""What the autoscaler does with six shapes of load, beside the rules of Flink's autoscaler on the same input.

    python benchmarks/load_shapes.py [--json]

A model in virtual time (that of the autoscaler's tests): batches follow each other, a row takes a task 20 ms, a batch
300 ms besides and about 10 s at most, a rescale is in force with the next batch. The cluster has 16 slots. `Flink` is
what the flink-autoscaler of the Kubernetes operator decides by its defaults, from the same figures: the true
processing rate, a target of 0.7 within 0.4 and 1.0, a catch-up of 30 min, a window of 15 min and a stabilization of
5 min after each change, at most 60 % down, and one hour's delay of that. It does not know the slots. `behind`: minutes
in which a row waited for longer than a minute. `most`: tasks declared.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from app.autoscaler.decide import decide
from app.autoscaler.loop import Loop
from app.autoscaler.policy import Policy
from app.autoscaler.seen import Action, Decision, Snapshot
from tests.unit.autoscaler.model_job import START_MS, ModelJob

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
SLOTS = 16
ROW_MS = 20.0
STEP_MS = 5_000
LATE_MS = MINUTE_MS

Arrival = Callable[[int], float]
"""Rows per second, at a time in ms since the start."""


def day(at_ms: int) -> float:
    return 300 - 250 * math.cos(2 * math.pi * at_ms / (24 * HOUR_MS))


def heaps(at_ms: int) -> float:
    """30,000 rows within a second, every half hour."""
    return 30_000 if at_ms % (HOUR_MS // 2) < 1_000 else 0.0


def ramp(at_ms: int) -> float:
    return 20 + 480 * min(1.0, max(0.0, (at_ms - HOUR_MS) / (2 * HOUR_MS)))


def step(at_ms: int) -> float:
    return 40 if at_ms < HOUR_MS else 220


def spike(at_ms: int) -> float:
    """Ten minutes after six hours of nothing."""
    return 300 if 6 * HOUR_MS <= at_ms < 6 * HOUR_MS + 10 * MINUTE_MS else 0.0


def constant(at_ms: int) -> float:
    return 120.0


@dataclass(frozen=True)
class Shape:
    """``parts``: of a batch, as many tasks have rows at most."""

    name: str
    arrival: Arrival
    hours: int
    parts: int = 1_000


SHAPES = (
    Shape("smooth day", day, 24),
    Shape("heaps, one part", heaps, 3, parts=1),
    Shape("ramp", ramp, 4),
    Shape("step", step, 3),
    Shape("spike after nothing", spike, 8),
    Shape("one partition", constant, 3, parts=1),
)


@dataclass
class Result:
    shape: str
    rules: str
    changes: int
    behind_minutes: float
    slot_hours: float
    most_declared: int


class FlinkRules:
    """Decides as the flink-autoscaler does. It keeps what it has recommended for the delay of a scale-down."""

    WINDOW_MS = 15 * MINUTE_MS
    STABILIZATION_MS = 5 * MINUTE_MS
    CATCH_UP_S = 1_800.0
    RESTART_S = 300.0
    TARGET, LEAST, MOST = 0.7, 0.4, 1.0
    DOWN_AT_MOST = 0.6
    DOWN_DELAY_MS = HOUR_MS
    PARALLELISM_MOST = 200

    def __init__(self) -> None:
        self._lower: list[tuple[int, int]] = []

    def decide(self, seen: Snapshot, policy: Policy) -> Decision:
        load = seen.load
        if load is None or seen.now_ms - seen.since_ms < self.STABILIZATION_MS + self.WINDOW_MS:
            return Decision(Action.NONE, "stabilization, or the window is not full")
        (vertex,) = seen.vertices
        true_rate, arrival, lag = load.rows_per_busy_second, load.arrival_per_second, load.backlog_rows or 0.0
        if true_rate <= 0:
            return Decision(Action.NONE, "no rows")
        catch_up = lag / self.CATCH_UP_S
        is_late = arrival > 0 and lag / arrival > 300
        capacity = catch_up + arrival * self.RESTART_S / self.CATCH_UP_S + arrival / self.TARGET
        wanted = math.ceil(vertex.parallelism * max(1 - self.DOWN_AT_MOST, capacity / true_rate))
        wanted = min(wanted, vertex.most, self.PARALLELISM_MOST)
        if true_rate < arrival / self.MOST + catch_up and wanted > vertex.upper:
            self._lower = []
            return Decision(Action.SCALE, "up", {vertex.id: wanted})
        if is_late or true_rate <= arrival / self.LEAST + catch_up or wanted >= vertex.upper:
            self._lower = []
            return Decision(Action.NONE, "within its limits")
        self._lower.append((seen.now_ms, wanted))
        if seen.now_ms - self._lower[0][0] < self.DOWN_DELAY_MS:
            return Decision(Action.NONE, "a scale-down is delayed")
        highest = max(each for _, each in self._lower)
        self._lower = []
        return Decision(Action.SCALE, "down", {vertex.id: highest})


class Job(ModelJob):
    """Has no more tasks than the cluster has slots, and batches of about 10 s at most."""

    def run_to(self, end_ms: int) -> None:
        self.ceiling = SLOTS
        working = min(self.parallelism, self.parts)
        self.limit_rows = max(1, round(10_000 * working / self.row_ms))
        super().run_to(end_ms)


def run(shape: Shape, rules: str) -> Result:
    job = Job(
        shape.arrival,
        row_ms=ROW_MS,
        upper=2,
        parallelism=2,
        slots=SLOTS,
        parts=shape.parts,
        most=128,
        tells_tasks=True,
    )
    flink = rules == "Flink"
    policy = Policy(interval_ms=MINUTE_MS, window_ms=300_000) if flink else Policy()
    loop = Loop(job, "job", policy, decide=FlinkRules().decide if flink else decide)
    # What the operator's ceiling hides, as the cluster's size does.
    job.ceiling = None
    times: list[int] = []
    arrived: list[float] = []
    behind_ms, next_turn_ms = 0, job.now_ms
    while job.now_ms - START_MS < shape.hours * HOUR_MS:
        if job.now_ms >= next_turn_ms:
            job.ceiling = None
            next_turn_ms = job.now_ms + loop.turn().pause_ms
        job.run_to(job.now_ms + STEP_MS)
        times.append(job.now_ms)
        arrived.append(job.arrived)
        oldest = bisect_left(arrived, job.done + 1)
        if oldest < len(times) and job.now_ms - times[oldest] > LATE_MS:
            behind_ms += STEP_MS
    return Result(
        shape.name,
        rules,
        len(job.declared),
        behind_ms / MINUTE_MS,
        job.slot_ms / HOUR_MS,
        max((upper for _, upper, _ in job.declared), default=2),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    results = [run(shape, rules) for shape in SHAPES for rules in ("Slotwise", "Flink")]
    if given.json:
        print(json.dumps([asdict(one) for one in results]))
        return
    table = Table("shape", "rules", *(("changes", "behind (min)", "slot-hours", "most")))
    for one in results:
        figures = (
            str(one.changes),
            f"{one.behind_minutes:.1f}",
            f"{one.slot_hours:.1f}",
            str(one.most_declared),
        )
        table.add_row(one.shape, one.rules, *figures)
    Console().print(table)


if __name__ == "__main__":
    main()
