"""What regions and durable results cost or bring: TPC-H queries as job graphs against plain Spark, on one machine.

    python benchmarks/batch.py [--scale 1] [--repetitions 5] [--queries q3,q9] [--slots 2] [--variants AQE,flip-187]
        [--volume "8 mb"] [--directory DIR]

All variants run in one JVM that is warm, in turn, so that a slow moment of the machine meets all of them:

* `AQE`: the query as TPC-H writes it, plain Spark with adaptive execution and its defaults.
* `static 200`: the same without adaptive execution, with 200 partitions.
* `pipelined`: the job graph of examples/tpch with no result between its vertices, by the real core and driver code.
* `flip-187`, `even-data`: the same with a durable result at every join, by either rule.

Seconds and CPU seconds are medians; `x` is the ratio to AQE. Tasks and bytes are of one run: bytes shuffled and bytes
of results written between regions (without the answer itself). Each answer is compared with DuckDB's. The control
plane's own part (a report, a transaction and an answer per region) is not in it: some 20 ms for each region.
"""

from __future__ import annotations

import argparse
import math
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).parent.parent))

from app.documents.graph import parse_document
from app.driver.batch.attempt import local_size
from app.model.jobgraph import JobGraph, SourceSpec
from tests.integration.batch.harness import Regions
from tests.tpch import answers, graphs, tables

VOLUME = "execution.batch.adaptive.auto-parallelism.avg-data-volume-per-task"
VARIANTS = ("AQE", "static 200", "pipelined", "flip-187", "even-data")


@dataclass
class Figures:
    """Of one variant of one query."""

    wall_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    tasks: int = 0
    shuffled_bytes: int = 0
    result_bytes: int = 0


class Bench:
    def __init__(self, session: Any, data: Path, directory: Path, slots: int, volume: str) -> None:
        self.session = session
        self.data = data
        self.directory = directory
        self.slots = slots
        self.volume = volume
        self._runs = 0
        children = psutil.Process().children(recursive=True)
        self._java = next(process for process in children if "java" in process.name())

    def measure(self, query: str, variant: str, figures: Figures) -> None:
        self._runs += 1
        out = self.directory / f"out-{self._runs}"
        first_stage = self._next_stage()
        cpu, started = self._cpu_s(), time.perf_counter()
        if variant in ("AQE", "static 200"):
            self._plain(query, variant, out)
            result_bytes = 0
        else:
            result_bytes = self._graph(query, variant, out)
        figures.wall_s.append(time.perf_counter() - started)
        figures.cpu_s.append(self._cpu_s() - cpu)
        figures.tasks, figures.shuffled_bytes = self._stages(first_stage)
        figures.result_bytes = result_bytes
        if answers.found(out) != answers.expected(query, self.data):
            raise SystemExit(f"{query}, {variant}: the answer is NOT DuckDB's")
        shutil.rmtree(out)

    def _cpu_s(self) -> float:
        times = self._java.cpu_times()
        return float(times.user + times.system)

    def _plain(self, query: str, variant: str, out: Path) -> None:
        session = self.session.newSession()
        session.conf.set("spark.sql.optimizer.excludedRules", "")
        session.conf.set("spark.sql.adaptive.enabled", "true" if variant == "AQE" else "false")
        session.conf.set("spark.sql.shuffle.partitions", "200")
        for table in answers.TABLES:
            session.read.parquet(str(self.data / f"{table}.parquet")).createOrReplaceTempView(table)
        frame = session.sql(answers.QUERIES[query])
        frame.toDF(*[f"c{index}" for index in range(len(frame.columns))]).write.parquet(str(out))

    def _graph(self, query: str, variant: str, out: Path) -> int:
        blocking = variant != "pipelined"
        config = {VOLUME: self.volume}
        if blocking:
            config["slotwise.batch.parallelism-decider"] = variant
        document = graphs.document(query, self.data, out, upper=16, config=config, blocking=blocking)
        graph = parse_document(document)
        work = self.directory / f"work-{self._runs}"
        job = Regions(self.session, graph, work, job_id=f"bench{self._runs}", slots=self.slots)
        job.run(source_bytes(graph))
        shutil.rmtree(work, ignore_errors=True)
        return sum(result.total_bytes for done in job.done for result in done.results)

    def _store(self) -> Any:
        return self.session.sparkContext._jsc.sc().statusStore()

    def _stage_list(self) -> list[Any]:
        context = self.session.sparkContext
        jvm = context._jvm
        quantiles = context._gateway.new_array(jvm.double, 0)
        found = self._store().stageList(None, False, False, quantiles, jvm.java.util.ArrayList())
        return [found.apply(index) for index in range(found.size())]

    def _next_stage(self) -> int:
        return max((int(stage.stageId()) for stage in self._stage_list()), default=-1) + 1

    def _stages(self, first: int) -> tuple[int, int]:
        own = [stage for stage in self._stage_list() if int(stage.stageId()) >= first]
        tasks = sum(int(stage.numCompleteTasks()) for stage in own)
        return tasks, sum(int(stage.shuffleWriteBytes()) for stage in own)


def source_bytes(graph: JobGraph) -> dict[str, int]:
    found = {}
    for vertex in graph.vertices:
        if isinstance(vertex.operation, SourceSpec) and vertex.operation.path:
            size = local_size(vertex.operation.path)
            if size is not None:
                found[vertex.id] = size
    return found


def open_spark(slots: int, directory: Path) -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(f"local[{slots}]").appName("benchmark")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "4g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(directory),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.ui.showConsoleProgress": "false",
        "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
    }.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def print_table(query: str, found: dict[str, Figures]) -> None:
    base = found["AQE"]
    for variant, one in found.items():
        wall, cpu = statistics.median(one.wall_s), statistics.median(one.cpu_s)
        print(
            f"{query:5} {variant:11} {wall:7.2f} {wall / statistics.median(base.wall_s):6.2f}x "
            f"{min(one.wall_s):7.2f} {max(one.wall_s):7.2f} {cpu:7.1f} "
            f"{cpu / statistics.median(base.cpu_s):6.2f}x {one.tasks:6d} {one.shuffled_bytes / 1e6:9.1f} "
            f"{one.result_bytes / 1e6:9.1f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--scale", default="1", help="TPC-H scale factor")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument(
        "--warm-ups",
        type=int,
        default=1,
        help="runs of each variant before those that count; 0 where a run takes far longer than the compiler does",
    )
    parser.add_argument("--queries", default=",".join(graphs.GRAPHS))
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--variants", default=",".join(VARIANTS), help="AQE has to be among them")
    parser.add_argument("--volume", default="8 mb", help="about how much each task of a graph reads")
    parser.add_argument("--directory", type=Path, help="where to keep the data between runs")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="slotwise-batch-") as scratch:
        directory = Path(scratch)
        data = tables(options.scale, options.directory or directory)
        bench = Bench(open_spark(options.slots, directory), data, directory, options.slots, options.volume)
        print(
            f"TPC-H at scale {options.scale}, {options.slots} slots, {options.volume} for each task, "
            f"{options.repetitions} repetitions; seconds, MB\n"
            f"{'':5} {'':11} {'wall':>7} {'':>7} {'min':>7} {'max':>7} {'CPU':>7} {'':>7} {'tasks':>6} "
            f"{'shuffled':>9} {'results':>9}"
        )
        variants = options.variants.split(",")
        ratios: dict[str, list[float]] = {variant: [] for variant in variants}
        for query in options.queries.split(","):
            # For nothing: the JVM compiles what it meets.
            for variant in variants * options.warm_ups:
                bench.measure(query, variant, Figures())
            found = {variant: Figures() for variant in variants}
            for _ in range(options.repetitions):
                for variant in variants:
                    bench.measure(query, variant, found[variant])
            print_table(query, found)
            base = statistics.median(found["AQE"].wall_s)
            for variant in variants:
                ratios[variant].append(statistics.median(found[variant].wall_s) / base)
        for variant, all_ratios in ratios.items():
            mean = math.exp(statistics.fmean(math.log(ratio) for ratio in all_ratios))
            print(f"all   {variant:11} {'':7} {mean:6.2f}x (geometric mean)")


if __name__ == "__main__":
    main()
