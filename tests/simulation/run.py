"""Run seeds: ``python -m tests.simulation.run --seeds 500 --start 0 [--jobs 2] [--seed N --trace]``.

A seed that fails is printed with its story and kept in failing_seeds.txt, whose seeds are run first the next time.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import tests.without_plugins  # noqa: F401 - also in the processes that the seeds run in
from tests.simulation.scenario import Outcome
from tests.simulation.seeds import run_seed

FAILING = Path(__file__).with_name("failing_seeds.txt")
_TAIL = 120


def known_failures() -> list[int]:
    """Seeds that failed once; they stay, as the cheapest tests there are."""
    if not FAILING.exists():
        return []
    lines = (line.partition("#")[0].strip() for line in FAILING.read_text().splitlines())
    return [int(line) for line in lines if line]


def remember(seed: int, violation: str) -> None:
    if seed not in known_failures():
        sentence = violation.splitlines()[0][:160]
        with FAILING.open("a") as file:
            file.write(f"{seed}  # {sentence}\n")


def run_seeds(seeds: Iterable[int], jobs: int) -> Iterator[Outcome]:
    """The outcomes, in no particular order of completion but that of ``seeds``."""
    if jobs == 1:
        yield from map(run_seed, seeds)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(run_seed, seeds, chunksize=4)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=500, help="how many")
    parser.add_argument("--start", type=int, default=0, help="the first one")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--seed", type=int, help="run this one alone")
    parser.add_argument("--trace", action="store_true", help="print the story")
    parser.add_argument("--forget", action="store_true", help="do not keep seeds that fail")
    options = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets of texts is part of a run.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation.run", *sys.argv[1:]])
    if options.seed is not None:
        outcome = run_seed(options.seed, tracing=options.trace)
        print("\n".join(outcome.story))
        print(
            f"seed {outcome.seed}: {outcome.violation or 'well'}; {outcome.virtual_s:.0f} s; {outcome.counts}"
        )
        return 0 if outcome.violation is None else 1
    first = known_failures()
    seeds = [*first, *(s for s in range(options.start, options.start + options.seeds) if s not in first)]
    return _run_all(seeds, options.jobs, keep=not options.forget)


def _run_all(seeds: list[int], jobs: int, *, keep: bool) -> int:
    began = time.monotonic()
    failed = 0
    totals: dict[str, int] = {}
    virtual_s = 0.0
    for outcome in run_seeds(seeds, jobs):
        virtual_s += outcome.virtual_s
        for what, count in outcome.counts.items():
            totals[what] = totals.get(what, 0) + count
        if outcome.violation is None:
            continue
        failed += 1
        print(f"seed {outcome.seed}: {outcome.violation}"[:600], flush=True)
        if failed == 1:
            print("\n".join(run_seed(outcome.seed, tracing=True).story[-_TAIL:]), flush=True)
        if keep:
            remember(outcome.seed, outcome.violation)
    took_s = time.monotonic() - began
    print(
        f"{len(seeds)} seeds, {failed} failed; {took_s:.0f} s, {len(seeds) / took_s:.1f} seeds/s; "
        f"{virtual_s / 3600:.0f} virtual hours; " + ", ".join(f"{k}: {v}" for k, v in sorted(totals.items()))
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
