"""Programs that read and write Kafka, Delta and Iceberg, with the PySpark and the packages that there are for each."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.acceptance.deployment import ROOT
from tests.acceptance.plain_run import plain
from tests.acceptance.program_results import Rows
from tests.acceptance.programs import Place, Program
from tests.kafka import KafkaBroker
from tests.outputs import newest

READER = ROOT / "tests/acceptance/lake_reader.py"
READ_S = 300
DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
# Otherwise Delta reads its own log in fifty tasks, batch by batch.
SMALL_LOG = {"spark.databricks.delta.snapshotPartitions": "2"}
VOCABULARY, LINE, PARTITIONS = 15, 4, 3


# -- Kafka


@dataclass(frozen=True)
class KafkaPlace(Place):
    """``topic`` is read by all runs, ``counts`` written by one."""

    broker: KafkaBroker | None = None
    topic: str = "words"
    counts: str = "counts"


@dataclass(frozen=True)
class KafkaProgram(Program):
    """One that reads a topic, with a checkpoint of its own."""

    def command(self, place: Place) -> list[str]:
        assert isinstance(place, KafkaPlace) and place.broker is not None
        return self.arguments.format(
            servers=place.broker.servers,
            words=place.topic,
            counts=place.counts,
            checkpoint=place.checkpoint,
        ).split()

    def is_at_end(self, place: Place) -> bool:
        assert isinstance(place, KafkaPlace) and place.broker is not None
        ends = committed_ends(place.checkpoint, place.topic)
        return sum(ends.values()) == place.broker.sent[place.topic] > 0

    def rows(self, place: Place) -> dict[str, Rows]:
        """The newest value of each key: a record may be there twice, and is then the same."""
        assert isinstance(place, KafkaPlace) and place.broker is not None
        return {"": sorted(dict(place.broker.read(place.counts)).items())}


def committed_ends(checkpoint: Path, topic: str) -> dict[str, int]:
    """How far the newest batch has read the topic, if it is committed."""
    offsets, commits = newest(checkpoint / "offsets"), newest(checkpoint / "commits")
    if offsets is None or commits is None or offsets.name != commits.name:
        return {}
    return ends_in(offsets, topic)


def ends_in(offsets: Path, topic: str) -> dict[str, int]:
    """How far the batch of this file reads the topic."""
    found = json.loads(offsets.read_text(encoding="utf-8").splitlines()[-1]).get(topic, {})
    return {str(partition): int(end) for partition, end in found.items()}


def line(number: int) -> str:
    """A record: its key, and some words; equal for equal numbers."""
    dice = random.Random(number)
    return f"key-{number % 50}\t{' '.join(f'word-{dice.randrange(VOCABULARY)}' for _ in range(LINE))}"


def words(lines: int) -> Counter[str]:
    """How often each word is in the first ``lines`` records."""
    return Counter(word for number in range(lines) for word in line(number).partition("\t")[2].split())


class RecordFeeder:
    """Sends records to a topic, ``step`` by step, until it is told that this is enough."""

    def __init__(self, broker: KafkaBroker, topic: str, step: int = 300) -> None:
        self.broker, self.topic, self.step = broker, topic, step
        self.lines = 0
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def write(self, lines: int) -> None:
        self.broker.send(self.topic, [line(self.lines + number) for number in range(lines)])
        self.lines += lines

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        self._enough.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._enough.wait(1.0):
            self.write(self.step)


# -- Delta and Iceberg


def read_tables(program: Program, form: str, places: list[Place], log: Path) -> list[Rows]:
    """The rows of the tables of runs, sorted, read by Spark with the packages of ``program``."""
    folders = [place.output / ("" if form == "delta" else "shop/pages") for place in places]
    config = DELTA if form == "delta" else {}
    with plain(READER, [form, *map(str, folders)], log, program.kind, config) as process:
        status = process.wait(READ_S)
    text = log.read_text(encoding="utf-8")
    assert status == 0, text[-4000:]
    tables = [json.loads(each[5:]) for each in text.splitlines() if each.startswith("ROWS ")]
    return [sorted(tuple(row) for row in table) for table in tables]
