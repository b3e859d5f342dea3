"""How long it takes to decide who may hold how many slots, among many jobs.

    python benchmarks/arbiter.py [--jobs 10000] [--slots 100000] [--repetitions 5]

Three moments: nobody holds anything yet; everybody holds a share, and nothing is to change; and a job arrives whose
lower bound is to be met by what others have beyond theirs. Bounds, weights and priorities are drawn at random, the same
in each run. Seconds of CPU time of this process, medians with the lowest and the highest.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from app.scheduler.arbiter import Allotment, Claim, arbitrate

HOLDING_MS = 60_000
NOW_MS = 1_000_000


def claims_at_random(jobs: int, slots: int) -> list[Claim]:
    """Jobs that together ask for about twice the slots that there are."""
    rng = random.Random(jobs)
    most = 4 * slots // jobs
    claims = []
    for number in range(jobs):
        desired = rng.randint(1, most)
        minimal = rng.randint(1, max(1, desired // 4))
        weight, priority = rng.randint(1, 10), rng.randint(-1, 1)
        claims.append(Claim(f"job{number}", minimal, desired, weight=weight, priority=priority))
    return claims


def moved(claims: list[Claim], verdicts: dict[str, Allotment]) -> list[Claim]:
    return [
        replace(one, held=verdicts[one.job_id].allowed, running=True, changed_ms=NOW_MS) for one in claims
    ]


def measure(name: str, claims: list[Claim], slots: int, repetitions: int) -> dict[str, Allotment]:
    seconds = []
    for _ in range(repetitions):
        started = time.process_time()
        verdicts = arbitrate(claims, slots, now_ms=NOW_MS, holding_ms=HOLDING_MS)
        seconds.append(time.process_time() - started)
    changed = sum(verdicts[one.job_id].allowed != one.held for one in claims)
    row = f"{statistics.median(seconds):8.3f} {min(seconds):8.3f} {max(seconds):8.3f}"
    print(f"{name:20} {row} {changed:8d}")
    return verdicts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--slots", type=int, default=100_000)
    parser.add_argument("--repetitions", type=int, default=5)
    options = parser.parse_args()
    print(f"{options.jobs} jobs, {options.slots} slots, {options.repetitions} repetitions; seconds of CPU")
    print(f"{'':20} {'median':>8} {'min':>8} {'max':>8} {'changed':>8}")
    claims = claims_at_random(options.jobs, options.slots)
    verdicts = measure("nobody holds any", claims, options.slots, options.repetitions)
    claims = moved(claims, verdicts)
    measure("nothing changes", claims, options.slots, options.repetitions)
    arrival = Claim("arrival", options.slots // 100, options.slots // 100, priority=1)
    measure("one arrives", [*claims, arrival], options.slots, options.repetitions)


if __name__ == "__main__":
    main()
