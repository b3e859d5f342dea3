"""Graph documents with connectors: rescaled in place at random, killed, their output exact."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.acceptance import connectors
from tests.acceptance.connectors import RecordFeeder, committed_ends
from tests.acceptance.deployment import Deployment, deployed
from tests.acceptance.documents import (
    STATE_PARTITIONS,
    Document,
    checkpoint,
    kafka_source,
    kept,
    run_rescaled,
    sql,
)
from tests.acceptance.programs import Outcome
from tests.acceptance.test_connectors import pending
from tests.environments import CACHE
from tests.kafka import KafkaBroker, KafkaMissing

pytestmark = [pytest.mark.timeout(1800), pytest.mark.long]

RESCALES = 6


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployed(tmp_path_factory.mktemp("documents"), settings={"cache_dir": str(CACHE)}) as made:
        made.start(with_points=False)
        yield made


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    try:
        started = KafkaBroker.start()
    except KafkaMissing as missing:
        pytest.skip(f"NOT TESTED WITH KAFKA: {missing}")
    yield started
    started.stop()


def kafka_package(version: str) -> str:
    return f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version}"


def was_rescaled(outcome: Outcome, name: str) -> None:
    assert (outcome.in_place, outcome.others, outcome.kills) == (RESCALES, [], 1)
    print(f"OUTCOME {name}: {RESCALES} rescales in place, 1 kill, exact")


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
