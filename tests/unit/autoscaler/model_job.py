"""A job in virtual time behind what the REST API says of it: batches that follow each other, a curve of arrivals, and
tasks that share the work of a batch, though not quite evenly."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from app.autoscaler.loop import Loop, Refusal, Turn
from app.load.steps import LoadSteps

START_MS = 1_795_000_000_000
VERTEX = "slow"
FIXED_MS = 300


@dataclass
class ModelJob:
    """``row_ms``: what a row takes a task. ``own_ms``: what a task costs before its first row. ``loss``: the part of a
    batch's work that each further task adds to it. ``hot``: the part of the rows that one task has alone. ``arrival``:
    rows per second at a time in ms since the start."""

    arrival: Callable[[int], float]
    row_ms: float = 20.0
    own_ms: int = 0
    loss: float = 0.02
    hot: float = 0.0
    limit_rows: int = 2_000
    lower: int = 1
    upper: int = 1
    most: int = 32
    seed: int = 1
    now_ms: int = START_MS
    since_ms: int = START_MS
    parallelism: int = 1
    arrived: float = 0.0
    done: int = 0
    refusals: deque[Refusal] = field(default_factory=deque)
    declared: list[tuple[int, int, str]] = field(default_factory=list)
    slot_ms: int = 0
    backlogs: list[float] = field(default_factory=list)
    status: str = "RUNNING"
    rollback: dict[str, Any] | None = None
    floor: int | None = None
    ceiling: int | None = None
    attempt: int = 1
    slots: int = 1_000
    records: list[dict[str, Any]] = field(default_factory=list)
    # More tasks than these find nothing to do.
    parts: int = 1_000
    tells_tasks: bool = False

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self.steps = LoadSteps()
        self.version = 1
        # Of the last minute: end, length, and the times of the average, the median and the longest task.
        self.batches: deque[tuple[int, int, float, float, float]] = deque()
        # The batch that runs: its rows, its start and its end.
        self.batch: tuple[int, int, int] | None = None

    # -- time

    def run_to(self, end_ms: int) -> None:
        while self.now_ms < end_ms:
            next_ms = end_ms if self.batch is None else self.batch[2]
            step_ms = max(1, min(1_000, end_ms - self.now_ms, next_ms - self.now_ms))
            self.arrived += self.arrival(self.now_ms - START_MS) * step_ms / 1000
            self.slot_ms += self.parallelism * step_ms
            self.now_ms += step_ms
            if self.batch is not None and self.batch[2] <= self.now_ms:
                self._end(*self.batch)
            if self.batch is None and (rows := min(self.limit_rows, int(self.arrived) - self.done)) > 0:
                wanted = max(self.upper, self.floor or 1)
                wanted = min(wanted, self.ceiling or wanted)
                if self.parallelism != wanted:
                    self.parallelism, self.since_ms = wanted, self.now_ms
                self.tasks_ms = self._tasks_ms(rows)
                self.batch = (rows, self.now_ms, self.now_ms + FIXED_MS + round(self.tasks_ms[2]))
        self.backlogs.append(self.arrived - self.done)

    def _tasks_ms(self, rows: int) -> tuple[float, float, float]:
        """Of the average, the median and the longest task. All but one are as long as the median one."""
        spread = 1 + self.loss * (self.parallelism - 1)
        all_ms = rows * self.row_ms * spread * self.dice.uniform(0.95, 1.05)
        if self.parts < self.parallelism:
            # As Spark's figures are without those of tasks: shared evenly.
            busy_ms = all_ms / self.parallelism
            return busy_ms, busy_ms, all_ms / self.parts
        median_ms = self.own_ms + all_ms * (1 - self.hot) / self.parallelism
        longest_ms = median_ms + all_ms * self.hot
        average_ms = (longest_ms + median_ms * (self.parallelism - 1)) / self.parallelism
        return average_ms, median_ms if self.parallelism > 1 else longest_ms, longest_ms

    def _end(self, rows: int, start_ms: int, end_ms: int) -> None:
        self.batch = None
        self.done += rows
        waiting = max(0, int(self.arrived) - self.done - self.limit_rows)
        self.steps.note(start_ms, end_ms, rows=rows, backlog_rows=waiting, busy_ms={VERTEX: self.tasks_ms[0]})
        self.batches.append((end_ms, end_ms - start_ms, *self.tasks_ms))
        while self.batches[0][0] < end_ms - 60_000:
            self.batches.popleft()

    # -- the REST API

    def get(self, path: str) -> tuple[Any, str | None]:
        if self.refusals:
            raise self.refusals.popleft()
        place = urlsplit(path)
        wanted = parse_qs(place.query).get("get", [""])[0].split(",")
        last = place.path.rpartition("/")[2]
        if last == "resource-requirements":
            bounds = {"lowerBound": self.lower, "upperBound": self.upper}
            return {VERTEX: {"parallelism": bounds}}, f'"{self.version}"'
        if last == "explanation":
            return {"rollback": self.rollback}, None
        if last == "scaling-policy":
            limits = {"floor": self.floor, "ceiling": self.ceiling}
            return {"allVertices": {}, "vertices": {VERTEX: limits}}, '"2"'
        if last == "history":
            return self.records, None
        if last == "overview":
            return {"slots-total": self.slots}, None
        if last == "load":
            return self._load(), None
        if place.path.endswith("/subtasks/metrics"):
            average_ms, median_ms, longest_ms = (
                sum(each[place] for each in self.batches) for place in (2, 3, 4)
            )
            skew = longest_ms / median_ms if median_ms else 1.0
            return [
                {"id": "busyTimeMsPerSecond", "avg": average_ms / 60},
                {"id": "taskTimeSkew", "avg": skew},
                *([{"id": "numTasksObserved", "avg": self.working}] if self.tells_tasks else []),
            ], None
        if last == "metrics":
            values = self._metrics()
            return [{"id": name, "value": str(values[name])} for name in wanted if name in values], None
        return self._details(), None

    @property
    def working(self) -> int:
        """How many tasks have rows."""
        return min(self.parallelism, self.parts)

    def _metrics(self) -> dict[str, float]:
        if not self.batches:
            return {"lastCheckpointDuration": -1}
        end_ms, took_ms, *_ = self.batches[-1]
        return {
            "batchTimeMsPerSecond": sum(each[1] for each in self.batches) / 60,
            "lastCheckpointDuration": took_ms,
            "lastBatchTimestamp": end_ms,
            "isIdle": int(self.batch is None),
        }

    def _load(self) -> dict[str, Any]:
        read = self.steps.read(5_000, self.now_ms)
        return {
            "stepInMillis": read.step_ms,
            "startTimestampsInMillis": read.starts_ms,
            "numRecordsInPerSecond": read.rows_per_second,
            "pendingRecords": read.backlog_rows,
            "longestBatchInMillis": read.longest_batch_ms,
            "batchTimeMsPerSecond": read.batch_ms_per_second,
            "busyTimeMsPerSecond": read.busy_ms_per_second,
        }

    def _details(self) -> dict[str, Any]:
        vertex = {
            "id": VERTEX,
            "name": VERTEX,
            "slotSharingGroupId": "default",
            "parallelism": self.parallelism,
            "maxParallelism": self.most,
        }
        return {
            "jid": "job",
            "state": self.status,
            "schedulerState": "Executing",
            "attempt": self.attempt,
            "now": self.now_ms,
            "timestamps": {"RUNNING": self.since_ms},
            "vertices": [vertex],
            "plan": {"nodes": [{"id": VERTEX}]},
        }

    def put(self, path: str, body: Any, *, if_match: str | None, reason: str) -> None:
        assert path == "/jobs/job/resource-requirements"
        if if_match != f'"{self.version}"':
            raise Refusal(412, f"The requirements are at version {self.version}.")
        bounds = body[VERTEX]["parallelism"]
        assert bounds["lowerBound"] == self.lower <= bounds["upperBound"]
        self.version += 1
        self.declared.append((self.now_ms, bounds["upperBound"], reason))
        self.upper = bounds["upperBound"]


def drive(job: ModelJob, loop: Loop, length_ms: int) -> list[Turn]:
    """Let the loop drive the job for so long."""
    turns = []
    end_ms = job.now_ms + length_ms
    while job.now_ms < end_ms:
        turns.append(loop.turn())
        job.run_to(min(end_ms, job.now_ms + turns[-1].pause_ms))
    return turns
