"""What it costs an unmodified program to run under Slotwise, against `python job.py`.

    python benchmarks/overhead.py [--rows parquet,json,udf,kafka] [--files 400] [--repetitions 3] [--json]

Each program reads a folder of files with everything that is there (`availableNow`), in turns: plain, under Slotwise,
plain, ... with one number of cores and one set of Spark's settings. Plain, the JVM is the one that PySpark starts.
What is measured lies between the begin of the second batch and the end of the last one, so the start does not count:

* rows per second; CPU seconds per million rows, of the process of the program, its JVM and their Python workers;
* how long batches took (Spark's triggerExecution), the median and the 95th percentile;
* memory: the largest sum of the proportional set sizes of those processes.

Of `kafka`, on PySpark 4.2 since there is no connector for 4.3, the rows are records of a local broker, in a topic of as
many partitions as there are cores. It is left out unless it is asked for.

Batches and rows are read from Spark's event log, which both ways write. Ratios are under Slotwise against plain.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as parquet
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from app.cluster.runtimes import OWN, Kind
from benchmarks._servers import Server, server, wait_for
from tests.acceptance.programs import Program
from tests.environments import CACHE
from tests.kafka import KafkaBroker

CORES = 2
STATE_PARTITIONS = 12
ROWS_PER_FILE = 20_000
FILES_PER_BATCH = 8
PROGRAM = Path(__file__).resolve().parent / "programs" / "windows.py"
ROWS = {
    "parquet": ("parquet", ()),
    "json": ("json", ()),
    "udf": ("parquet", ("--udf",)),
    "kafka": ("kafka", ()),
}
KAFKA = Program(
    PROGRAM.name, "", version="4.2.0", packages=("org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",)
)
TOPIC = "rows"
# What is nearest to what Slotwise's drivers have, whose own class plain Spark has not.
PLAIN = {"spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs"}
# What Slotwise's drivers set, or a promise rests on: it is not what is compared.
SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.shuffle.partitions": str(STATE_PARTITIONS),
    "spark.driver.memory": "2g",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.rolling.enabled": "false",
    "spark.eventLog.compress": "false",
}


@dataclass(frozen=True)
class Measured:
    rows_per_s: float
    cpu_s_per_million: float
    p50_ms: float
    p95_ms: float
    memory_mb: float


class Meter:
    """CPU time and memory of a process and all that it has started, looked at twice a second until it is gone."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._cpu: dict[int, float] = {}
        self.samples: list[tuple[float, float]] = []
        self.memory_mb = 0.0
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while True:
            try:
                members = [self._root, *self._root.children(recursive=True)]
            except psutil.NoSuchProcess:
                return
            memory = 0
            for member in members:
                try:
                    times = member.cpu_times()
                    self._cpu[member.pid] = times.user + times.system
                    memory += member.memory_full_info().pss
                except (psutil.NoSuchProcess, psutil.ZombieProcess):
                    continue
            self.memory_mb = max(self.memory_mb, memory / 2**20)
            self.samples.append((time.time(), sum(self._cpu.values())))
            time.sleep(0.5)

    def cpu_s(self, begin: float, end: float) -> float:
        """CPU seconds between two instants (Unix seconds), to half a second."""
        inside = [cpu for at, cpu in self.samples if begin <= at <= end + 0.5]
        return inside[-1] - inside[0] if inside else 0.0


def write_input(directory: Path, form: str, files: int) -> None:
    """``files`` files, many of them links to a few: what is in them does not matter to what is measured."""
    directory.mkdir(parents=True)
    rng = random.Random(7)
    distinct = 16
    for number in range(files):
        target = directory / f"{number:06d}.{form}"
        if number >= distinct:
            os.link(directory / f"{number % distinct:06d}.{form}", target)
            continue
        base = 1_700_000_000_000_000 + number * 1_000_000
        table = {
            "at": [base + 50 * row for row in range(ROWS_PER_FILE)],
            "key": [rng.randrange(100_000) for _ in range(ROWS_PER_FILE)],
            "value": [rng.random() * 100 for _ in range(ROWS_PER_FILE)],
            "note": [f"note {rng.randrange(1_000_000)}" for _ in range(ROWS_PER_FILE)],
        }
        if form == "parquet":
            at = pa.array(table["at"], pa.timestamp("us", "UTC"))
            parquet.write_table(pa.table({**table, "at": at}), target)
        else:
            target.write_text("\n".join(lines_of(table)))


def lines_of(table: Mapping[str, list[Any]]) -> Iterator[str]:
    return (
        json.dumps({"at": datetime.fromtimestamp(row[0] / 1e6).isoformat(), "key": row[1]}
                   | {"value": row[2], "note": row[3]})
        for row in zip(*table.values(), strict=True)
    )  # fmt: skip


def fill_topic(broker: KafkaBroker, directory: Path, files: int) -> None:
    """The rows of ``files`` files as records."""
    write_input(directory, "json", min(files, 16))
    texts = [file.read_text().splitlines() for file in sorted(directory.iterdir())]
    broker.create_topic(TOPIC, CORES)
    for first in range(0, files, len(texts)):
        part = texts[: files - first]
        broker.send(TOPIC, [f"{number}\t{line}" for text in part for number, line in enumerate(text)])


def arguments(place: Path, source: str, form: str, more: tuple[str, ...]) -> list[str]:
    return [
        *("--format", form, "--input", source, "--output", str(place / "out")),
        *("--checkpoint", str(place / "checkpoint"), "--files-per-batch", str(FILES_PER_BATCH), *more),
    ]


def plain(place: Path, args: list[str], settings: Mapping[str, str], kind: Kind = OWN) -> Meter:
    python = kind.python or sys.executable
    settings = {**settings, "spark.jars": ",".join(kind.jars)} if kind.jars else settings
    (place / "conf").mkdir()
    lines = [f"{key} {value}" for key, value in {**settings, "spark.master": f"local[{CORES}]"}.items()]
    (place / "conf" / "spark-defaults.conf").write_text("\n".join([*lines, "spark.ui.enabled false"]))
    # As in an environment that is activated.
    environment = {**os.environ, "SPARK_CONF_DIR": str(place / "conf"), "PYSPARK_PYTHON": python}
    with open(place / "log", "wb") as log:
        process = subprocess.Popen([python, str(PROGRAM), *args], env=environment, stdout=log, stderr=log)
    meter = Meter(process.pid)
    if process.wait() != 0:
        raise RuntimeError((place / "log").read_text()[-2000:])
    return meter


def slotwise(running: Server, args: list[str], settings: Mapping[str, str], *environment: str) -> Meter:
    conf = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    command = [
        sys.executable,
        "-m",
        "app.cli",
        "submit",
        str(PROGRAM),
        "--server",
        running.url,
        "--json",
        *conf,
        *environment,
    ]
    answer = subprocess.run([*command, "--", *args], check=True, capture_output=True, text=True)
    job = json.loads(answer.stdout)["jobid"]

    def assigned() -> Any:
        return [entry for entry in running.events("attempt assigned") if entry.get("job") == job]

    meter = Meter(wait_for("the driver", assigned)[0]["pid"])
    state = wait_for("the job to end", lambda: _ended(running, job), 3_600, 0.5)
    if state != "FINISHED":
        raise RuntimeError(f"the job is {state}: {running.get(f'/jobs/{job}/exceptions')}")
    return meter


def _ended(running: Server, job: str) -> str | None:
    state = str(running.get(f"/jobs/{job}")["state"])
    return state if state in ("FINISHED", "FAILED", "CANCELED") else None


def measured(place: Path, meter: Meter) -> Measured:
    """From Spark's event log in ``place``."""
    log = max((place / "events").iterdir(), key=lambda file: file.stat().st_size)
    batches = []
    for line in log.read_text().splitlines():
        if "QueryProgressEvent" in line[:200]:
            progress = json.loads(line)["progress"]
            if "addBatch" in progress["durationMs"] and progress["sources"][0]["numInputRows"]:
                batches.append(progress)
    batches = batches[1:]
    begin = _seconds(batches[0]["timestamp"])
    took = [int(each["durationMs"]["triggerExecution"]) for each in batches]
    end = _seconds(batches[-1]["timestamp"]) + took[-1] / 1000
    rows = sum(int(each["sources"][0]["numInputRows"]) for each in batches)
    return Measured(
        rows / (end - begin),
        meter.cpu_s(begin, end) / rows * 1e6,
        statistics.median(took),
        statistics.quantiles(took, n=20)[-1] if len(took) > 1 else took[0],
        meter.memory_mb,
    )


def _seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp()


def compare(name: str, files: int, repetitions: int, running: Server) -> dict[str, list[Measured]]:
    form, more = ROWS[name]
    found: dict[str, list[Measured]] = {"plain": [], "slotwise": []}
    root = Path(tempfile.mkdtemp(prefix="slotwise-overhead-"))
    kind, environment, source = OWN, [], str(root / "in")
    broker: KafkaBroker | None = None
    try:
        if form == "kafka":
            kind, environment = KAFKA.kind, KAFKA.options
            broker = KafkaBroker.start()
            fill_topic(broker, root / "in", files)
            source = f"{broker.servers}/{TOPIC}"
        else:
            write_input(root / "in", form, files)
        for turn in range(repetitions):
            for way in found if turn % 2 == 0 else reversed(found):
                place = root / f"{way}-{turn}"
                (place / "events").mkdir(parents=True)
                settings = {**SETTINGS, "spark.eventLog.dir": str(place / "events")}
                args = arguments(place, source, form, more)
                if way == "plain":
                    meter = plain(place, args, {**PLAIN, **settings}, kind)
                else:
                    meter = slotwise(running, args, settings, *environment)
                found[way].append(measured(place, meter))
                print(f"{name} {way}: {found[way][-1]}", file=sys.stderr)
    finally:
        if broker is not None:
            broker.stop()
        shutil.rmtree(root, ignore_errors=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", default="parquet,json,udf", help="which programs, with commas between")
    parser.add_argument("--files", type=int, default=400, help=f"of {ROWS_PER_FILE} rows each")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with server(slots=CORES, cache_dir=str(CACHE)) as running:
        results = {
            name: compare(name, options.files, options.repetitions, running)
            for name in options.rows.split(",")
        }
    if options.json:
        told = {
            name: {way: [asdict(each) for each in many] for way, many in ways.items()}
            for name, ways in results.items()
        }
        print(json.dumps(told, indent=2))
        return
    table = Table("program", "way", "rows/s", "CPU s per million", "batch p50 ms", "p95 ms", "MB")
    for name, ways in results.items():
        medians = {way: _medians(many) for way, many in ways.items()}
        for way, values in medians.items():
            table.add_row(name, way, *(f"{value:,.1f}" for value in values))
        ratios = [under / base for under, base in zip(medians["slotwise"], medians["plain"], strict=True)]
        table.add_row(name, "ratio", *(f"{ratio:.2f}" for ratio in ratios))
    Console().print(table)


def _medians(many: list[Measured]) -> list[float]:
    return [
        statistics.median(values) for values in zip(*(asdict(each).values() for each in many), strict=True)
    ]


if __name__ == "__main__":
    main()
