"""How much a document may have, and what holds for one that was accepted before."""

from __future__ import annotations

from collections.abc import Callable
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


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda it: it.pop("name"), "KeyError: 'name'"),
        (lambda it: it.update(type="OTHER"), "'OTHER' is not a valid JobType"),
        (lambda it: it.update(vertices=[]), "vertices: some are missing."),
        (lambda it: it["vertices"].pop(0), "vertices: some are missing."),
        (lambda it: it["vertices"][1].update(parallelism="2"), "'2' is no <class 'int'>"),
        (lambda it: it["vertices"][2].pop("sink"), "KeyError: 'sink'"),
        (lambda it: it["vertices"][2]["inputs"].append(5), "TypeError: "),
        (lambda it: it.update(config={"spark.x": 1}), "1 is no <class 'str'>"),
        # What a newer version has written, and has a meaning that would be lost.
        (lambda it: it.update(tomorrow=1), "tomorrow: is not known here."),
        (lambda it: it["vertices"][0].update(tomorrow=1), "tomorrow: is not known here."),
        (lambda it: it["vertices"][0]["source"].update(tomorrow=1), "tomorrow: is not known here."),
        (lambda it: it["vertices"][1]["inputs"][0].update(tomorrow=1), "tomorrow: is not known here."),
    ],
)
def test_a_stored_document_that_is_damaged_or_of_a_newer_version_is_refused(
    change: Callable[[dict[str, Any]], object], sentence: str
) -> None:
    stored = to_document(parse_document(document(FLIGHTS, COUNTS, STORE)))
    change(stored)
    with pytest.raises(GraphErrors) as refused:
        read_graph(stored)
    assert sentence in str(refused.value)


@pytest.mark.parametrize("stored", [None, [], "x", 1])
def test_what_is_no_document_at_all_is_refused(stored: object) -> None:
    with pytest.raises(GraphErrors):
        read_graph(stored)
