"""Steps per second of the streaming scheduler's pure core, on one core of this machine.

    python benchmarks/core_steps.py [--repetitions 15] [--seconds 0.5] [--profile LOOP]

Each loop feeds `step` the events of a job of four vertices in two slot sharing groups that holds eight slots, and
checks after each repetition that the job did what the loop is about. Time is the CPU time of this process, so that
what else runs on the machine does not count; a figure is the median over the repetitions, with the slowest and the
fastest. Nothing else is in the loop: no database, no validation, no simulator.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from app.model import ids
from app.model.jobgraph import (
    InPlace,
    JobGraph,
    JobType,
    JobVertex,
    SinkSpec,
    SourceSpec,
    SqlSpec,
    VertexInput,
)
from app.model.options import JobOptions
from app.model.plan import Slot
from app.model.requirements import Bounds, Requirements
from app.model.rescale import Measured
from app.scheduler.adaptive.events import (
    AttemptFailed,
    AttemptRunning,
    AttemptStopped,
    BatchCompleted,
    Event,
    PlanApplied,
    RequirementsUpdated,
    SlotsChanged,
    StartScheduling,
    TimerFired,
)
from app.scheduler.adaptive.state import JobState
from app.scheduler.step import initial_state, step

NAME = "core-steps"
START_MS = 1_700_000_000_000
SLOTS = tuple(Slot(f"slot-{index}", f"tm-{index // 4}") for index in range(8))
TARGET_STEPS_PER_S = 100_000


def _graph(in_place: InPlace) -> JobGraph:
    def vertex(name: str, *inputs: str, group: str = "default") -> JobVertex:
        operation = (
            SinkSpec("noop") if name == "store" else SqlSpec("SELECT 1") if inputs else SourceSpec("rate")
        )
        return JobVertex(
            id=ids.vertex_id(NAME, name),
            name=name,
            operation=operation,
            inputs=tuple(VertexInput(ids.vertex_id(NAME, one), one) for one in inputs),
            parallelism=1,
            lower_bound=1,
            max_parallelism=16,
            slot_sharing_group=group,
            slot_sharing_group_id=ids.slot_sharing_group_id(NAME, group),
            in_place=in_place if name == "delays" else InPlace.YES,
        )

    return JobGraph(
        NAME,
        JobType.STREAMING,
        (
            vertex("flights"),
            vertex("delays", "flights"),
            vertex("named", "delays"),
            vertex("store", "named", group="store"),
        ),
    )


def _requirements(graph: JobGraph, version: int, upper: int) -> Requirements:
    bounds = tuple((one.id, Bounds(1, upper if one.name != "store" else 2)) for one in graph.vertices)
    return Requirements(ids.derive_id("requirements", version), version, bounds, "ann", "lunch")


class Job:
    """One job on virtual time that counts its steps."""

    def __init__(self, *, in_place: InPlace = InPlace.YES, config: dict[str, object] | None = None) -> None:
        options, errors = JobOptions.parse(config or {})
        assert not errors, errors
        self.graph = _graph(in_place)
        self.now_ms = START_MS
        self.steps = 0
        self.version = 1
        self.state: JobState = initial_state(
            ids.derive_id(NAME), self.graph, options, _requirements(self.graph, 1, 2), self.now_ms
        )
        # Requirements are made by the API, not by the core: they are prepared.
        self.wishes = [
            (_requirements(self.graph, 2 * one, 4), _requirements(self.graph, 2 * one + 1, 2))
            for one in range(1, 512)
        ]
        self.do(StartScheduling())
        self.do(SlotsChanged(SLOTS))
        self.run()

    def do(self, event: Event) -> None:
        self.now_ms += 100
        self.state, *_ = step(self.state, event, self.now_ms)
        self.steps += 1

    def run(self) -> None:
        self.do(AttemptRunning(self.state.attempt))
        self.commit()

    def commit(self) -> None:
        state = self.state
        self.do(BatchCompleted(state.attempt, "store", self.steps, state.plan_version))

    def put(self) -> None:
        self.version += 1
        self.do(RequirementsUpdated(self.wishes[(self.version // 2) % len(self.wishes)][self.version % 2]))

    def applied(self) -> None:
        self.do(PlanApplied(self.state.attempt, self.state.plan_version, measured=Measured(20)))

    def fire(self, name: str) -> None:
        timer = next(one for one in self.state.timers if one.name == name)
        self.now_ms = max(self.now_ms, timer.at_ms)
        self.do(TimerFired(timer.name, timer.version))


@dataclass(frozen=True)
class Loop:
    """``turn`` is one turn of the loop; ``check`` says whether the job did what it is about."""

    name: str
    what: str
    make: Callable[[], Job]
    turn: Callable[[Job], None]
    check: Callable[[Job], bool]


def _typical(job: Job) -> None:
    """One batch a second, and a rescale every thirty: Flink's default cooldown allows no more of them."""
    for _ in range(30):
        job.commit()
    job.put()
    job.applied()


def _each_once(job: Job) -> None:
    job.commit()
    job.put()
    job.applied()


def _failover(job: Job) -> None:
    job.do(AttemptFailed(job.state.attempt, "the driver is gone", stopped=True))
    job.fire("backoff")
    if job.state.phase.kind == "WaitingForResources":
        job.fire("stabilization")
    job.run()


def _restart(job: Job) -> None:
    job.put()
    job.do(AttemptStopped(job.state.attempt, driver_alive=True))
    job.run()


_NO_DAMPING: dict[str, object] = {
    "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling": "0 s",
    "jobmanager.adaptive-scheduler.rescale-trigger.max-delay": "0 s",
    "restart-strategy.exponential-delay.jitter-factor": "0",
}

LOOPS = (
    Loop(
        "batches",
        "batch committed, nothing to do",
        Job,
        Job.commit,
        lambda job: job.state.num_rescales == 0,
    ),
    Loop(
        "typical",
        "30 batches, 1 PUT, 1 rescale in place",
        Job,
        _typical,
        lambda job: job.state.num_rescales >= job.steps // 32 - 1,
    ),
    Loop(
        "puts",
        "1 batch, 1 PUT, 1 rescale in place",
        Job,
        _each_once,
        lambda job: job.state.num_rescales >= job.steps // 3 - 2,
    ),
    Loop(
        "restarts",
        "1 PUT, 1 query restart (4 steps)",
        lambda: Job(in_place=InPlace.QUERY_RESTART, config=_NO_DAMPING),
        _restart,
        lambda job: job.state.num_rescales >= job.steps // 4 - 2,
    ),
    Loop(
        "failovers",
        "1 failure, backoff, wait, start (4-5 steps)",
        lambda: Job(config=_NO_DAMPING),
        _failover,
        lambda job: job.state.recovery.num_restarts >= job.steps // 5 - 2,
    ),
)


def measure(loop: Loop, seconds: float) -> float:
    """Steps per second of one repetition on a fresh job."""
    job = loop.make()
    turn = loop.turn
    before = job.steps
    began = time.process_time()
    until = began + seconds
    while time.process_time() < until:
        for _ in range(20):
            turn(job)
    rate = (job.steps - before) / (time.process_time() - began)
    assert loop.check(job), f"{loop.name}: the job did not do what the loop is about"
    return rate


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.5, help="length of a repetition")
    parser.add_argument("--profile", choices=[one.name for one in LOOPS], help="profile one loop instead")
    args = parser.parse_args()
    if args.profile:
        loop = next(one for one in LOOPS if one.name == args.profile)
        with cProfile.Profile() as profile:
            measure(loop, 3.0)
        pstats.Stats(profile).sort_stats("tottime").print_stats(30)
        return 0
    print(f"{'loop':<10} {'what':<44} {'steps/s':>10} {'min':>10} {'max':>10} {'us/step':>8}")
    medians = {}
    for loop in LOOPS:
        measure(loop, args.seconds / 2)
        rates = [measure(loop, args.seconds) for _ in range(args.repetitions)]
        medians[loop.name] = middle = statistics.median(rates)
        print(
            f"{loop.name:<10} {loop.what:<44} {middle:>10,.0f} {min(rates):>10,.0f} {max(rates):>10,.0f} "
            f"{1e6 / middle:>8.2f}"
        )
    reached = medians["typical"] >= TARGET_STEPS_PER_S
    print(f"typical loop: {'at least' if reached else 'BELOW'} {TARGET_STEPS_PER_S:,} steps/s on one core")
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
