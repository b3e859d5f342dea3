"""What of a new version of a job is known not to fit the checkpoints of the one before."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from app.documents.graph import parse_document
from app.documents.program import parse_program
from app.model.analysis import queries
from app.model.compatibility import incompatibilities, query_incompatibilities
from app.model.graphdoc_program import graph_of, grown
from app.model.jobgraph import JobGraph, Role
from app.model.planned import PlannedVertex
from app.model.state_partitions import with_partitions
from app.model.statefulness import analysed

PROGRAM = parse_program({"name": "words", "script": "job.py"})
VERTICES = (
    PlannedVertex("orders", Role.SOURCE, "json"),
    PlannedVertex("payments", Role.SOURCE, "json"),
    PlannedVertex("join", Role.OPERATOR, "StreamingSymmetricHashJoin", ("orders", "payments"), True, 12),
    PlannedVertex("store", Role.SINK, "parquet", ("join",), checkpoint="/c", path="/out"),
)
DOCUMENT: dict[str, Any] = {
    "name": "counts",
    "type": "STREAMING",
    "vertices": [
        {"name": "a", "source": {"format": "rate", "options": {"rowsPerSecond": "1"}}},
        {"name": "counts", "inputs": ["a"], "sql": "SELECT value, count(*) AS n FROM a GROUP BY value"},
        {"name": "store", "inputs": ["counts"], "sink": {"format": "noop", "outputMode": "update"}},
    ],
}

_ASKED = parse_document(DOCUMENT)
COUNTED = analysed(_ASKED, {_ASKED.by_name["counts"].id})


def program(*vertices: PlannedVertex) -> JobGraph:
    return grown(graph_of(PROGRAM), vertices)


def changed(name: str, **fields: Any) -> JobGraph:
    return program(*(dataclasses.replace(one, **fields) if one.name == name else one for one in VERTICES))


def of_first_query(before: JobGraph, after: JobGraph, **said: bool) -> list[str]:
    return query_incompatibilities(queries(before)[0], queries(after)[0], **said)


def test_what_fits() -> None:
    before = program(*VERTICES)
    assert of_first_query(before, before) == []
    assert of_first_query(before, changed("store", operator="delta")) == []
    spelled = changed("store", checkpoint="file:///x/../c/", path="file:/out")
    assert of_first_query(before, spelled) == [], "the same places"


@pytest.mark.parametrize(
    ("after", "sentence"),
    [
        (
            program(VERTICES[1], VERTICES[0], *VERTICES[2:]),
            "the sources of a checkpoint cannot be changed, nor their",
        ),
        (changed("orders", operator="csv"), "reads csv as 'orders' now, and its checkpoint is of json"),
        (changed("join", operator="Aggregate"), "operators with state cannot be added, removed"),
        (changed("join", state_partitions=24), "has 24 state partitions now, and its state has 12"),
        (changed("store", checkpoint="/d"), "has its checkpoint in '/d' now, and had it in '/c'"),
        (changed("store", checkpoint="/%63"), "has its checkpoint in '/%63' now, and had it in '/c'"),
        (changed("store", checkpoint=None), "has its checkpoint with the job now, and had it in '/c'"),
        (changed("store", path="/other"), "writes to '/other' now, and to '/out' before"),
    ],
)
def test_what_does_not_fit(after: JobGraph, sentence: str) -> None:
    errors = of_first_query(program(*VERTICES), after)
    assert len(errors) == 1 and sentence in errors[0], errors


def test_state_partitions_that_were_redistributed_are_kept_whatever_the_document_says() -> None:
    after = changed("join", state_partitions=24)
    assert of_first_query(program(*VERTICES), after, redistributed=True) == []
    assert incompatibilities(program(*VERTICES), changed("join", operator="Aggregate")) == [], "not known yet"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            lambda v: v[0].update(source={"format": "rate-micro-batch", "options": {"rowsPerBatch": "1"}}),
            "reads rate-micro-batch as 'a' now",
        ),
        (lambda v: v[1].update(maxParallelism=24), "leave maxParallelism as it was"),
    ],
)
def test_graph_documents(change: Callable[[list[dict[str, Any]]], None], sentence: str) -> None:
    document = copy.deepcopy(DOCUMENT)
    assert incompatibilities(COUNTED, parse_document(document)) == []
    change(document["vertices"])
    errors = incompatibilities(COUNTED, parse_document(document))
    assert len(errors) == 1 and sentence in errors[0], errors


@pytest.mark.parametrize(
    "change",
    [
        lambda v: v[1].update(sql="SELECT value, 1 AS n FROM a"),
        lambda v: (
            v[2].update(inputs=["named"])
            or v.insert(2, {"name": "named", "inputs": ["counts"], "sql": "SELECT n FROM counts"})
        ),
        lambda v: v[1].update(parallelism=12),
    ],
)
def test_what_keeps_state_in_a_document_is_said_by_spark(
    change: Callable[[list[dict[str, Any]]], None],
) -> None:
    document = copy.deepcopy(DOCUMENT)
    change(document["vertices"])
    assert incompatibilities(COUNTED, parse_document(document)) == []
    few = with_partitions(COUNTED, ((COUNTED.by_name["counts"].id, 8),))
    assert incompatibilities(few, parse_document(DOCUMENT)) == [], "nothing is said of how many there are"


def test_a_query_of_a_document_that_is_not_there_any_more() -> None:
    document = copy.deepcopy(DOCUMENT)
    document["vertices"][-1]["name"] = "another"
    (error,) = incompatibilities(parse_document(DOCUMENT), parse_document(document))
    assert "is not there any more" in error


def test_a_graph_is_no_version_of_a_program() -> None:
    (error,) = incompatibilities(program(*VERTICES), parse_document(DOCUMENT))
    assert error.startswith("The job is a program and its new version a graph")


def test_another_type() -> None:
    batch = {**copy.deepcopy(DOCUMENT), "type": "BATCH"}
    batch["vertices"][0] = {
        "name": "a",
        "source": {"format": "parquet", "path": "/data", "schema": "value BIGINT"},
    }
    batch["vertices"][2]["sink"] = {"format": "parquet", "path": "/out"}
    errors = incompatibilities(parse_document(DOCUMENT), parse_document(batch))
    assert errors == ["type: a new version of a STREAMING job is STREAMING, found BATCH."]


def test_a_format_may_be_spelled_otherwise() -> None:
    def read(form: str) -> JobGraph:
        document = copy.deepcopy(DOCUMENT)
        document["vertices"][0]["source"] = {"format": form, "options": {"subscribe": "t"}}
        return parse_document(document)

    assert incompatibilities(read("kafka"), read("Kafka")) == []
    assert incompatibilities(read("kafka"), read("delta"))
