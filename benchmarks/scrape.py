"""What a scrape of `GET /metrics` costs a server with many jobs, and for how long it holds up the requests of others.

    python benchmarks/scrape.py [--jobs 500] [--vertices 4] [--repetitions 10]

In one process, without drivers: each job has a minute of batches of all its vertices. Printed are the CPU time of a
scrape in both formats, the longest part of it for which the event loop was not free, and the size of the answer.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import gzip
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from app.model.jobgraph import JobGraph, JobType
from app.model.measured import ExecutorLoad, VertexBatch
from app.model.status import JobStatus
from app.model.value import evolve
from app.plugins.prometheus import exposition
from app.plugins.prometheus.exposition import Exposition
from app.plugins.prometheus.meters import Meters
from app.worker.views import Census, JobView
from tests.unit.load.reporting import Reporting, at_ms
from tests.unit.scheduler.driving import T0_MS, Job, vertex

FORMATS = {"text": "", "OpenMetrics": "application/openmetrics-text; version=1.0.0"}
BATCHES = 60


def job_view(number: int, vertices: int) -> JobView:
    names = [f"vertex-{index}" for index in range(vertices)]
    chained = tuple(vertex(name, names[max(0, index - 1) : index]) for index, name in enumerate(names))
    job = Job(JobGraph(f"job-{number}", JobType.STREAMING, chained)).run()
    driver = Reporting(job.graph)
    work = tuple(
        VertexBatch(one.id, 2, 2, 10, 10, 5, 100, 100, 5, 4, 1000, 100_000, 7) for one in job.graph.vertices
    )
    executor = ExecutorLoad("driver", "here", 10**8, 10**9, 1, 1, 2, 100, 0, 1000)
    driver.steady(BATCHES, vertices=work, watermark_ms=T0_MS, state_rows=1000, executor_loads=(executor,))
    state = evolve(job.state, job_id=f"{number:032x}")
    return JobView(state, JobStatus.RUNNING, number, None, None, 1, driver_pid=number, load=driver.load)


async def held_up(work: Callable[[], Awaitable[object]]) -> float:
    """The longest CPU time, in seconds, for which nothing else got its turn while ``work`` was done."""
    longest_s, over = 0.0, False

    async def watch() -> None:
        nonlocal longest_s
        before_s = time.thread_time()
        while not over:
            await asyncio.sleep(0)
            now_s = time.thread_time()
            longest_s, before_s = max(longest_s, now_s - before_s), now_s

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0)
    await work()
    over = True
    await watching
    return longest_s


async def measure(jobs: int, vertices: int, repetitions: int) -> None:
    views = [job_view(number, vertices) for number in range(jobs)]
    census = Census(views, 0, 8, 0, 1, 1, True, 1)
    told = Exposition(Meters(), lambda: census, lambda: 0, jobs_max=jobs, version="0")
    exposition.KEPT_S = 0.0  # type: ignore[misc]
    now_ms = at_ms(BATCHES)
    # As the server does it (app/main.py).
    gc.set_threshold(10_000)
    gc.freeze()
    print(f"{jobs} jobs of {vertices} vertices; median, most")
    for name, accept in FORMATS.items():
        cpu_s, longest_s = [], []
        for _ in range(repetitions):
            began_s = time.process_time()
            body = (await told.answer(accept, now_ms)).text
            cpu_s.append(time.process_time() - began_s)
            longest_s.append(await held_up(lambda accept=accept: told.answer(accept, now_ms)))
        series = sum(not line.startswith(b"#") for line in body.splitlines())
        print(
            f"{name:12} CPU {statistics.median(cpu_s) * 1000:.0f}, {max(cpu_s) * 1000:.0f} ms; others wait "
            f"{statistics.median(longest_s) * 1000:.1f}, {max(longest_s) * 1000:.1f} ms; {series} series, "
            f"{len(body) / 1e6:.1f} MB, {len(gzip.compress(body, 1)) / 1e6:.2f} MB as gzip"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--vertices", type=int, default=4)
    parser.add_argument("--repetitions", type=int, default=10)
    arguments = parser.parse_args()
    asyncio.run(measure(arguments.jobs, arguments.vertices, arguments.repetitions))


if __name__ == "__main__":
    main()
