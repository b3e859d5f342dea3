"""Kafka, Delta and Iceberg: rescaled in place at random, killed, and their output that of a plain run."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.acceptance import connectors
from tests.acceptance.connectors import KafkaPlace, KafkaProgram, RecordFeeder, committed_ends, ends_in
from tests.acceptance.console import word_counts
from tests.acceptance.deployment import Deployment, deployed, wait_for
from tests.acceptance.programs import (
    BOTH_WAYS,
    INPUT_S,
    SOON_NOTICED,
    Outcome,
    Place,
    Program,
    kill_driver,
    printed,
    rescale,
    run_plain,
    run_rescaled,
    served,
    submit,
    submit_program,
)
from tests.acceptance.test_programs import differences
from tests.kafka import KafkaBroker
from tests.outputs import newest

pytestmark = [pytest.mark.timeout(2400), pytest.mark.long]

RESCALES = 10
MILLION = 1_000_000
BATCH = 2000
"""Records of a batch of `kafka_to_kafka.py`."""
KAFKA = {
    version: KafkaProgram(
        "kafka_to_kafka.py",
        "--servers {servers} --words {words} --counts {counts} --checkpoint {checkpoint}",
        version=version,
        packages=(f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version}",),
    )
    for version in ("4.1.1", "4.2.0")
}
TABLES = {
    "delta on 4.1.1": ("delta", "4.1.1", "io.delta:delta-spark_2.13:4.3.0"),
    "delta on 4.2.0": ("delta", "4.2.0", "io.delta:delta-spark_4.2_2.13:4.4.1"),
    "iceberg on 4.1.1": ("iceberg", "4.1.1", "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0"),
}


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployed(tmp_path_factory.mktemp("connectors"), settings=SOON_NOTICED) as made:
        made.start(with_points=False)
        yield made


@pytest.mark.parametrize("version", list(KAFKA))
def test_kafka_to_kafka_is_exact_by_keys(
    deployment: Deployment, broker: KafkaBroker, tmp_path: Path, version: str
) -> None:
    program = served(KAFKA[version])
    topic = f"words-{version}"
    places = [
        KafkaPlace(tmp_path / "input", tmp_path / name, "", broker, topic, f"{name}-{version}")
        for name in ("slotwise", "plain")
    ]
    ours, alone = places
    broker.create_topic(topic, connectors.PARTITIONS)
    for place in places:
        broker.create_topic(place.counts, connectors.PARTITIONS)
    feeder = RecordFeeder(broker, topic)
    feeder.write(3000)
    feeder.start()
    outcome = run_rescaled(deployment, program, ours, feeder, rescales=RESCALES, seed=1, kills=BOTH_WAYS)
    run_plain(program, alone)

    rows = program.rows(ours)
    assert differences(rows, program.rows(alone)) == {}
    assert len(rows[""]) == connectors.VOCABULARY
    assert (outcome.in_place, outcome.others, outcome.kills) == (RESCALES, [], 2)
    print(f"OUTCOME Kafka to Kafka, {version}: {RESCALES} rescales in place, 2 kills, exact by keys")


def lake_program(name: str) -> tuple[str, Program]:
    """The format of a table, and the program that writes it."""
    form, version, package = TABLES[name]
    option = "--table" if form == "delta" else "--warehouse"
    program = Program(
        f"to_{form}.py",
        f"--events {{events}} {option} {{output}} --checkpoint {{checkpoint}}",
        version=version,
        packages=(package,),
        config=connectors.SMALL_LOG if form == "delta" else {},
    )
    return form, program


@pytest.mark.parametrize("name", list(TABLES))
def test_a_table_has_the_rows_of_a_plain_run(deployment: Deployment, tmp_path: Path, name: str) -> None:
    form, program = lake_program(name)
    served(program)
    ours, alone = (Place(tmp_path / "input", tmp_path / run) for run in ("slotwise", "plain"))
    feeder = program.feeder(ours.input, pause_s=3.0)
    feeder.write(10)
    feeder.start()
    outcome = run_rescaled(deployment, program, ours, feeder, rescales=RESCALES, seed=2, kills=BOTH_WAYS)
    run_plain(program, alone)

    ours_read, alone_read = connectors.read_tables(program, form, [ours, alone], tmp_path / "reader.log")
    assert differences({"": ours_read}, {"": alone_read}) == {} and ours_read
    assert (outcome.in_place, outcome.others, outcome.kills) == (RESCALES, [], 2)
    print(f"OUTCOME {name}: {RESCALES} rescales in place, 2 kills, exact: {len(ours_read)} rows")


def test_spark_s_own_example_counts_every_word(
    deployment: Deployment, broker: KafkaBroker, tmp_path: Path
) -> None:
    """It has no checkpoint, so it has one with its job: it goes on after a kill, which it could not do alone."""
    program = served(KAFKA["4.2.0"])
    topic = "example"
    broker.create_topic(topic, connectors.PARTITIONS)
    assert program.kind.environment is not None
    example = Path(program.kind.environment.spark_home) / (
        "examples/src/main/python/sql/streaming/structured_kafka_wordcount.py"
    )
    submit(
        deployment,
        example,
        [broker.servers, "subscribe", topic],
        *("--name", "example", *program.options),
        config={"spark.sql.shuffle.partitions": "6"},
    )
    checkpoints = deployment.data_dir / "jobs" / deployment.job_id / "checkpoint"
    # It reads what comes after it has begun.
    wait_for("it has noted where it begins", lambda: list(checkpoints.glob("*/sources/0/0")))
    feeder, outcome, dice = RecordFeeder(broker, topic, 50), Outcome(), random.Random(3)
    feeder.start()
    for number in range(RESCALES):
        rescale(deployment, dice, outcome)
        if number == RESCALES // 2:
            kill_driver(deployment, outcome)
    feeder.finish()
    expected = connectors.words(feeder.lines)
    wait_for("every word is counted", lambda: word_counts(printed(deployment)) == expected)
    deployment.stop()
    assert (outcome.in_place, outcome.others, outcome.kills) == (RESCALES, [], 1)
    print(
        f"OUTCOME structured_kafka_wordcount: {RESCALES} rescales in place, 1 kill, exact: {feeder.lines} records"
    )


@dataclass(frozen=True)
class Reading:
    """The backlog that the API has ``told``, and between what it should be: the records that the broker had when it was
    asked, without those that committed batches had read."""

    least: int
    told: int
    most: int

    @property
    def is_right(self) -> bool:
        """It is that of the latest batch, and one more may be committed that is not told yet."""
        return self.least - BATCH <= self.told <= self.most + BATCH


def backlog(deployment: Deployment, place: KafkaPlace, sent: Callable[[], int]) -> Reading | None:
    """None: it is not known. ``sent`` tells how many records the topic has."""
    sent_before, read_before = sent(), committed_records(place)
    told = pending(deployment)
    read_after, sent_after = committed_records(place), sent()
    return None if told is None else Reading(sent_before - read_after, told, sent_after - read_before)


@dataclass(frozen=True)
class BacklogWatch(KafkaProgram):
    """It reads the backlog each time it is asked whether the end is reached."""

    deployment: Deployment | None = None
    sent: int = 0
    readings: list[Reading] = field(default_factory=list)

    def is_at_end(self, place: Place) -> bool:
        assert isinstance(place, KafkaPlace) and self.deployment is not None
        if (found := backlog(self.deployment, place, lambda: self.sent)) is not None:
            self.readings.append(found)
        return super().is_at_end(place)


def committed_records(place: KafkaPlace) -> int:
    """How many records of the topic committed batches have read."""
    commit = newest(place.checkpoint / "commits")
    if commit is None:
        return 0
    return sum(ends_in(place.checkpoint / "offsets" / commit.name, place.topic).values())


def pending(deployment: Deployment) -> int | None:
    """The backlog of the job's source, if it is known."""
    vertices = f"/jobs/{deployment.job_id}/vertices"
    answers = [
        deployment.get(f"{vertices}/{one['id']}/subtasks/metrics?get=pendingRecords")
        for one in deployment.job()["vertices"]
    ]
    return next((int(float(each["sum"])) for answer in answers for each in answer), None)


def test_what_waits_is_told_by_topic(deployment: Deployment, broker: KafkaBroker, tmp_path: Path) -> None:
    """Each answer is that of one committed batch, whose offsets are in the checkpoint."""
    program = served(KAFKA["4.2.0"])
    sent = {"left": 7 * BATCH, "right": 3 * BATCH}
    place = KafkaPlace(tmp_path / "input", tmp_path / "run", "", broker, ",".join(sent), "both-counts")
    for topic, partitions in (("left", connectors.PARTITIONS), ("right", 1), (place.counts, 1)):
        broker.create_topic(topic, partitions)
    for topic, records in sent.items():
        broker.send(topic, [connectors.line(number) for number in range(records)])
    ends = {topic: broker.ends(topic) for topic in sent}
    names = ("pendingRecords", "pendingRecords.left", "pendingRecords.right", "recordsLagMax")
    readings: list[tuple[int, ...]] = []

    def all_is_read() -> bool:
        vertex = deployment.job()["vertices"][0]["id"]
        asked = f"/jobs/{deployment.job_id}/vertices/{vertex}/subtasks/metrics?get={','.join(names)}"
        told = {one["id"]: int(one["sum"]) for one in deployment.get(asked)}
        if told:
            readings.append(tuple(told[name] for name in names))
        return bool(told) and told["pendingRecords"] == 0

    submit_program(deployment, program, place)
    wait_for("all of it is read", all_is_read, INPUT_S)
    deployment.stop()
    truths = set()
    for offsets in (place.checkpoint / "offsets").iterdir():
        if offsets.name.isdigit():
            lags = {
                topic: [end - ends_in(offsets, topic).get(partition, 0) for partition, end in of.items()]
                for topic, of in ends.items()
            }
            left, right = (sum(lags[topic]) for topic in sent)
            truths.add((left + right, left, right, max(map(max, lags.values()))))
    print(f"OUTCOME what waits by topic: {sorted(set(readings), reverse=True)}")
    assert set(readings) <= truths and len(set(readings)) > 3


def test_a_million_records_are_exact_by_keys(
    deployment: Deployment, broker: KafkaBroker, tmp_path: Path
) -> None:
    program = served(KAFKA["4.2.0"])
    place = KafkaPlace(tmp_path / "input", tmp_path / "run", "", broker, "million", "million-counts")
    for topic in (place.topic, place.counts):
        broker.create_topic(topic, connectors.PARTITIONS)
    broker.send(place.topic, [f"key-{number % 1009}\tword-{number % 97}" for number in range(MILLION)])
    feeder = RecordFeeder(broker, place.topic)
    watched = BacklogWatch(
        **vars(program), deployment=deployment, sent=sum(broker.ends(place.topic).values())
    )
    assert watched.sent == MILLION
    outcome = run_rescaled(
        deployment, watched, place, feeder, rescales=RESCALES, seed=4, kills=2 * BOTH_WAYS[:1]
    )
    assert len(watched.readings) > 20 and [each for each in watched.readings if not each.is_right] == []

    found = {key: json.loads(value) for key, value in program.rows(place)[""]}
    assert {key: value["n"] for key, value in found.items()} == {
        f"word-{word}": len(range(word, MILLION, 97)) for word in range(97)
    }
    ends = committed_ends(place.checkpoint, place.topic)
    assert sum(ends.values()) == MILLION
    # Each record is one word, so each offset was added once, to one of the sums.
    assert sum(value["offsets"] for value in found.values()) == sum(n * (n - 1) // 2 for n in ends.values())
    assert (outcome.in_place, outcome.others, outcome.kills) == (RESCALES, [], 2)
    print(f"OUTCOME a million records: {RESCALES} rescales in place, 2 kills, exact by keys")


def test_the_backlog_of_a_topic_that_grows_is_that_of_the_broker(
    deployment: Deployment, broker: KafkaBroker, tmp_path: Path
) -> None:
    program = served(KAFKA["4.2.0"])
    place = KafkaPlace(tmp_path / "input", tmp_path / "run", "", broker, "growing", "growing-counts")
    for topic in (place.topic, place.counts):
        broker.create_topic(topic, connectors.PARTITIONS)
    feeder, outcome, dice = RecordFeeder(broker, place.topic, 100), Outcome(), random.Random(5)
    feeder.write(60 * BATCH)
    feeder.start()
    submit_program(deployment, program, place)
    readings = []
    for _ in range(RESCALES):
        rescale(deployment, dice, outcome)
        if (found := backlog(deployment, place, lambda: sum(broker.ends(place.topic).values()))) is not None:
            readings.append(found)
    grown = feeder.lines - 60 * BATCH
    feeder.finish()
    wait_for("all of it is read", lambda: program.is_at_end(place) and pending(deployment) == 0, INPUT_S)
    deployment.stop()
    print(
        f"OUTCOME backlog of a topic that grows by {grown} records in {RESCALES} rescales in place: {readings}"
    )
    assert [each for each in readings if not each.is_right] == []
    assert len(readings) > RESCALES // 2 and max(each.told for each in readings) > 2 * BATCH
    assert (outcome.in_place, outcome.others) == (RESCALES, []) and grown > 0
