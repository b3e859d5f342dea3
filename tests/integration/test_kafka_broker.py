"""The broker of the tests: it starts without anything installed but Java, takes records and gives them back."""

from __future__ import annotations

import pytest

from tests.kafka import KafkaBroker


@pytest.mark.long
def test_records_come_back_by_key_also_after_a_crash(broker: KafkaBroker) -> None:
    broker.create_topic("words", 3)
    sent = [(f"key-{number % 5}", f"value {number}") for number in range(200)]
    broker.send("words", [f"{key}\t{value}" for key, value in sent])
    broker.kill()
    broker.launch()

    found = broker.read("words")
    assert sorted(found) == sorted(sent)
    for key in {key for key, _ in sent}:
        assert [one for one in found if one[0] == key] == [one for one in sent if one[0] == key]
