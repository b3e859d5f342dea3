"""Graph documents with Kafka, Delta, Iceberg, XML and Avro: rescaled in place at random, killed, their output exact."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance import connectors, program_data, program_results
from tests.acceptance.connectors import RecordFeeder, committed_ends
from tests.acceptance.deployment import Deployment, deployed
from tests.acceptance.documents import (
    STATE_PARTITIONS,
    Document,
    Fed,
    checkpoint,
    each_once,
    file_source,
    kafka_source,
    kept,
    run_rescaled,
    sql,
)
from tests.acceptance.programs import Outcome, Place, Program
from tests.acceptance.test_connectors import TABLES, pending
from tests.kafka import KafkaBroker
from tests.outputs import rows_of

pytestmark = [pytest.mark.timeout(1800), pytest.mark.long]

RESCALES = 6
COLUMNS = "id BIGINT, page STRING, amount BIGINT"


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployed(tmp_path_factory.mktemp("documents")) as made:
        made.start(with_points=False)
        yield made


def kafka_package(version: str) -> str:
    return f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version}"


def was_rescaled(outcome: Outcome, name: str) -> None:
    assert (outcome.in_place, outcome.others, outcome.kills) == (RESCALES, [], 1)
    print(f"OUTCOME {name}: {RESCALES} rescales in place, 1 kill, exact")


def events_of(feeder: program_data.Feeder) -> list[tuple[str, ...]]:
    """What each event is, once, as the columns of `COLUMNS`: its last file has one of its own."""
    rows = [row for number in range(feeder.files - 1) for row in program_data.events(number)]
    rows += program_data.last(program_data.events)
    return sorted({(str(row["id"]), row["page"], str(row["amount"])) for row in rows})


def test_kafka_to_kafka_is_exact_by_keys(deployment: Deployment, broker: KafkaBroker) -> None:
    topic, counts = "document-words", "document-counts"
    document = Document(
        "words",
        [
            kafka_source(broker, topic),
            sql(
                "words",
                "SELECT explode(split(CAST(value AS STRING), ' ')) AS word, offset AS at_offset FROM records",
                "records",
            ),
            sql(
                "counts",
                "SELECT word, count(*) AS n, sum(at_offset) AS offsets FROM words GROUP BY word",
                "words",
                maxParallelism=STATE_PARTITIONS,
            ),
            sql("results", "SELECT word AS key, to_json(struct(n, offsets)) AS value FROM counts", "counts"),
            kept(
                "results",
                format="kafka",
                outputMode="update",
                options={"kafka.bootstrap.servers": broker.servers, "topic": counts},
            ),
        ],
        "4.2.0",
        (kafka_package("4.2.0"),),
    ).served()
    for name in (topic, counts):
        broker.create_topic(name, connectors.PARTITIONS)
    feeder = RecordFeeder(broker, topic)
    feeder.write(6000)
    feeder.start()
    ends: dict[str, int] = {}

    def reached() -> bool:
        ends.update(committed_ends(checkpoint(deployment), topic))
        # The backlog that the API tells is that of the latest batch.
        return sum(ends.values()) == broker.sent[topic] and pending(deployment) == 0

    outcome = run_rescaled(deployment, document, feeder, reached, rescales=RESCALES, seed=1)
    found = {key: json.loads(value) for key, value in broker.read(counts)}
    assert {word: value["n"] for word, value in found.items()} == connectors.words(feeder.lines)
    # Each offset was added once for each word of its record.
    offsets = sum(end * (end - 1) // 2 for end in ends.values())
    assert sum(value["offsets"] for value in found.values()) == connectors.LINE * offsets
    was_rescaled(outcome, "document, Kafka to Kafka on 4.2.0")


def lake_reader(form: str) -> Program:
    _, version, package = TABLES[f"{form} on 4.1.1"]
    return Program("", "", version=version, packages=(package,))


def test_kafka_to_delta(deployment: Deployment, broker: KafkaBroker, tmp_path: Path) -> None:
    reader, place = lake_reader("delta"), Place(tmp_path / "input", tmp_path / "run")
    topic = "document-delta"
    document = Document(
        "to delta",
        [
            kafka_source(broker, topic),
            sql(
                "told",
                "SELECT partition, offset, CAST(key AS STRING) AS key, CAST(value AS STRING) AS words "
                "FROM records",
                "records",
            ),
            each_once("told"),
            kept("once", format="delta", path=str(place.output)),
        ],
        reader.version,
        (*reader.packages, kafka_package(reader.version)),
        {**connectors.DELTA, **connectors.SMALL_LOG},
    ).served()
    broker.create_topic(topic, connectors.PARTITIONS)
    feeder = RecordFeeder(broker, topic)
    feeder.write(6000)
    feeder.start()

    def reached() -> bool:
        return sum(committed_ends(checkpoint(deployment), topic).values()) == broker.sent[topic]

    outcome = run_rescaled(deployment, document, feeder, reached, rescales=RESCALES, seed=2)
    (rows,) = connectors.read_tables(reader, "delta", [place], tmp_path / "reader.log")
    assert len({row[:2] for row in rows}) == len(rows) == feeder.lines
    sent = sorted(tuple(connectors.line(number).split("\t")) for number in range(feeder.lines))
    assert sorted(row[2:] for row in rows) == sent
    was_rescaled(outcome, "document, Kafka to Delta on 4.1.1")


def test_parquet_to_iceberg(deployment: Deployment, tmp_path: Path) -> None:
    reader, place = lake_reader("iceberg"), Place(tmp_path / "input", tmp_path / "run")
    folder = tmp_path / "input" / "events-parquet"
    document = Document(
        "to iceberg",
        [
            file_source("parquet", folder),
            sql("told", "SELECT id, page, amount FROM records", "records"),
            each_once("told"),
            kept("once", format="iceberg", options={"table": "lake.shop.pages"}),
        ],
        reader.version,
        reader.packages,
        {
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.lake.type": "hadoop",
            "spark.sql.catalog.lake.warehouse": str(place.output),
        },
    ).served()
    feeder = program_data.Feeder({folder: program_data.events}, 1.0, 1000)
    feeder.write(10)
    feeder.start()

    def reached() -> bool:
        return program_results.is_at_end(checkpoint(deployment), [folder])

    outcome = run_rescaled(deployment, document, feeder, reached, rescales=RESCALES, seed=3)
    (rows,) = connectors.read_tables(reader, "iceberg", [place], tmp_path / "reader.log")
    assert rows == events_of(feeder)
    was_rescaled(outcome, "document, Parquet to Iceberg on 4.1.1")


@pytest.mark.parametrize(
    ("form", "version", "packages", "options"),
    [
        ("xml", "", (), {"rowTag": "event"}),
        ("avro", "4.2.0", ("org.apache.spark:spark-avro_2.13:4.2.0",), {}),
    ],
)
def test_files_are_written_and_read(
    deployment: Deployment,
    tmp_path: Path,
    form: str,
    version: str,
    packages: tuple[str, ...],
    options: dict[str, Any],
) -> None:
    folder, between, output = tmp_path / "input" / "events", tmp_path / "between", tmp_path / "output"
    written = Document(
        f"to {form}",
        [
            file_source("json", folder, COLUMNS),
            each_once("records"),
            kept("once", format=form, path=str(between), options=options),
        ],
        version,
        packages,
    ).served()
    feeder = program_data.Feeder({folder: program_data.events}, 1.0, 1000)
    feeder.write(10)
    feeder.start()
    outcome = run_rescaled(
        deployment,
        written,
        feeder,
        lambda: program_results.is_at_end(checkpoint(deployment), [folder]),
        rescales=RESCALES,
        seed=4,
    )
    was_rescaled(outcome, f"document, JSON to {form}")
    expected = events_of(feeder)
    read = Document(
        f"from {form}",
        [
            file_source(form, between, COLUMNS, **options),
            sql("told", "SELECT id, page, amount FROM records", "records"),
            each_once("told"),
            kept("once", format="json", path=str(output)),
        ],
        version,
        packages,
    )
    outcome = run_rescaled(
        deployment, read, Fed(), lambda: len(rows_of(output)) >= len(expected), rescales=RESCALES, seed=5
    )
    found = [tuple(str(row[name]) for name in ("id", "page", "amount")) for row in rows_of(output)]
    assert sorted(found) == expected
    was_rescaled(outcome, f"document, {form} to JSON")
