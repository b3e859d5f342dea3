"""Durable commits per second, and what it takes to load many jobs, on SQLite and on PostgreSQL.

    python benchmarks/store_commits.py [--rounds 5] [--seconds 2] [--jobs 1000 10000] [--directory DIR]

A commit is what a PUT of resource requirements writes: a state, a version of the requirements, a rescale record that
ends, and one that opens. It counts when the store has acknowledged it, on SQLite with synchronous=FULL,
on PostgreSQL with fsync and synchronous_commit on, in a server that this script starts on this machine. A writer
waits for each commit before it makes the next one, and each has a job of its own. For scale, the first line says how
often this disk can do the least that durability takes: append 4 KiB to a file and fdatasync.

Figures are medians over the rounds, with the slowest and the fastest. A load is what a server does when it starts: all
jobs that have not ended, each with its state parsed; memory is what the process grew by.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parent.parent))

from app.store.store import Store
from tests.databases import PostgresMissing, PostgresServer
from tests.unit.store import samples

WRITERS = (1, 8, 32)
WARM_UP_S = 0.3
CREATED_TOGETHER = 200


def fdatasyncs_per_s(directory: Path, seconds: float) -> float:
    with tempfile.NamedTemporaryFile(dir=directory) as file:
        block, count, started = b"x" * 4096, 0, time.perf_counter()
        while time.perf_counter() - started < seconds:
            os.write(file.fileno(), block)
            os.fdatasync(file.fileno())
            count += 1
        return count / (time.perf_counter() - started)


@contextmanager
def databases(directory: Path) -> Iterator[dict[str, str]]:
    """URLs of empty databases by name. Without PostgreSQL, SQLite alone, and a line that says so."""
    urls = {"SQLite": f"sqlite:///{directory}/slotwise.db"}
    try:
        server = PostgresServer.start(durable=True)
    except PostgresMissing as missing:
        print(f"NOT MEASURED ON POSTGRESQL: {missing}")
        yield urls
        return
    try:
        yield urls | {"PostgreSQL": server.create_database()}
    finally:
        server.stop()


class Writer:
    """Commits for one job, one step after another, and remembers how long each took."""

    def __init__(self, store: Store, number: int) -> None:
        self.store = store
        self.number = number
        self.seq = 1

    async def run(self, until: float) -> list[float]:
        job_id = samples.job_id(self.number)
        took: list[float] = []
        while (started := time.perf_counter()) < until:
            self.seq += 1
            await self.store.commit(samples.put(job_id, self.seq))
            took.append(time.perf_counter() - started)
        return took


async def commits(url: str, rounds: int, seconds: float) -> dict[int, list[tuple[float, float, float]]]:
    """Per number of writers and round: commits per second, median and p99 of a commit in milliseconds."""
    store = await Store.open(url, "benchmark")
    found: dict[int, list[tuple[float, float, float]]] = {}
    number = 0
    try:
        for count in WRITERS:
            writers = [Writer(store, number + index) for index in range(1, count + 1)]
            number += count
            await asyncio.gather(*(store.commit(samples.creation(writer.number)) for writer in writers))
            await asyncio.gather(*(writer.run(time.perf_counter() + WARM_UP_S) for writer in writers))
            for _ in range(rounds):
                started = time.perf_counter()
                done = await asyncio.gather(*(writer.run(started + seconds) for writer in writers))
                elapsed = time.perf_counter() - started
                took = sorted(value * 1000 for part in done for value in part)
                figures = (
                    len(took) / elapsed, statistics.median(took), took[min(len(took) - 1, len(took) * 99 // 100)]
                )  # fmt: skip
                found.setdefault(count, []).append(figures)
    finally:
        await store.close()
    return found


async def fill(url: str, first: int, last: int) -> None:
    store = await Store.open(url, "benchmark")
    try:
        for start in range(first, last + 1, CREATED_TOGETHER):
            numbers = range(start, min(start + CREATED_TOGETHER, last + 1))
            await asyncio.gather(*(store.commit(samples.creation(number)) for number in numbers))
    finally:
        await store.close()


def load_in_a_process(url: str, results: multiprocessing.Queue[tuple[int, float, float]]) -> None:
    """Puts jobs loaded, seconds, and MiB grown into ``results``. In a process of its own, for the memory."""

    async def load() -> None:
        store = await Store.open(url, "benchmark")
        try:
            await store.ping()
            gc.collect()
            process = psutil.Process()
            before = process.memory_info().rss
            started = time.perf_counter()
            jobs = await store.load_live_jobs()
            states = [job.state(samples.GRAPH) for job in jobs]
            elapsed = time.perf_counter() - started
            grown = (process.memory_info().rss - before) / 2**20
            results.put((len(states), elapsed, grown))
        finally:
            await store.close()

    asyncio.run(load())


def loads(url: str, rounds: int) -> tuple[int, list[float], list[float]]:
    context = multiprocessing.get_context("spawn")
    count, seconds, memory = 0, [], []
    for _ in range(rounds):
        results = context.Queue()
        process = context.Process(target=load_in_a_process, args=(url, results))
        process.start()
        process.join()
        if process.exitcode != 0:
            raise SystemExit(f"loading from {url} failed")
        count, elapsed, grown = results.get()
        seconds.append(elapsed)
        memory.append(grown)
    return count, seconds, memory


def spread(values: list[float], digits: int = 0) -> str:
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:,.{digits}f} ({low:,.{digits}f}-{high:,.{digits}f})"


def measure_commits(urls: dict[str, str], rounds: int, seconds: float) -> None:
    print(f"\n{'database':<12}{'writers':>8}  {'commits/s':<26}{'median ms':<22}p99 ms")
    for name, url in urls.items():
        for writers, figures in asyncio.run(commits(url, rounds, seconds)).items():
            rate, middle, late = ([figure[index] for figure in figures] for index in range(3))
            row = f"{spread(rate):<26}{spread(middle, 2):<22}{spread(late, 2)}"
            print(f"{name:<12}{writers:>8}  {row}", flush=True)


def measure_loads(urls: dict[str, str], rounds: int, jobs: list[int]) -> None:
    print(f"\n{'database':<12}{'jobs':>8}  {'load, s':<26}{'memory, MiB':<22}KiB per job")
    for name, url in urls.items():
        there = 1_000_000  # numbers that the writers above did not use
        done = 0
        for wanted in sorted(jobs):
            asyncio.run(fill(url, there + done + 1, there + wanted))
            done = wanted
            count, seconds, memory = loads(url, rounds)
            per_job = statistics.median(memory) * 1024 / count
            print(
                f"{name:<12}{count:>8,}  {spread(seconds, 2):<26}{spread(memory):<22}{per_job:.1f}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description="Durable commits per second, and loads of many jobs.")
    parser.add_argument("--rounds", type=int, default=5, help="repetitions of each measurement (default 5)")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a round of commits (default 2)")
    parser.add_argument("--jobs", type=int, nargs="*", default=[1_000, 10_000], help="jobs to load")
    parser.add_argument(
        "--directory", type=Path, help="where the SQLite file lies (default: a temporary one)"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="slotwise-bench-", dir=arguments.directory) as name:
        directory = Path(name)
        print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}, load {os.getloadavg()[0]:.1f}")
        print(f"fdatasync of 4 KiB: {fdatasyncs_per_s(directory, 2.0):,.0f} per second")
        with databases(directory) as urls:
            measure_commits(urls, arguments.rounds, arguments.seconds)
        # Fresh databases: the jobs of the writers have a long history.
        (directory / "loads").mkdir()
        with databases(directory / "loads") as urls:
            measure_loads(urls, arguments.rounds, arguments.jobs)


if __name__ == "__main__":
    main()
