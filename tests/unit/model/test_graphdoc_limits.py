"""How much a document may have, and what holds for one that was accepted before."""

from __future__ import annotations

from typing import Any

import pytest

from app.documents.graph import parse_document
from app.model.graphdoc import read_graph, to_document
from app.model.grapherrors import GraphErrors
from tests.unit.model.documents import COUNTS, FLIGHTS, STORE, document, errors


def test_a_document_that_was_stored_may_have_what_is_refused_now() -> None:
    stored: dict[str, Any] = to_document(parse_document(document(FLIGHTS, COUNTS, STORE)))
    stored["vertices"][0]["source"]["options"] = {"numPartitions": "4"}
    stored["config"] = {"spark.x.y": "a" * 50_000, "spark.jars": "/a.jar"}
    with pytest.raises(GraphErrors):
        parse_document(stored)
    assert to_document(read_graph(stored)) == stored


def test_the_settings_of_a_document_have_a_largest_size() -> None:
    def faults(**config: str) -> list[str]:
        return errors(document(FLIGHTS, COUNTS, STORE, config=config))

    assert faults(**{"spark.x.y": "a" * 32_768}) == []
    assert faults(**{"spark.x.y": "a" * 32_769}) == [
        "config['spark.x.y']: is too long: at most 32768 characters are allowed, found 32769."
    ]
    many = {f"spark.x.y{number}": "a" * 30_000 for number in range(9)}
    (sentence,) = faults(**many)
    assert sentence.endswith("characters together: at most 262144 are allowed.")
