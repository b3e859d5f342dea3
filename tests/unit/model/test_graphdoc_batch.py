"""What only one type of job takes, and what a BATCH job has for defaults."""

from __future__ import annotations

from typing import Any

import pytest

from app.documents.graph import parse_document
from app.model.graphdoc import to_document
from app.model.grapherrors import GraphErrors
from app.model.jobgraph import Partitioner


def document(job_type: str, **config: str) -> dict[str, Any]:
    streams = {"format": "rate"} if job_type == "STREAMING" else {"format": "parquet", "path": "/in"}
    return {
        "name": "job",
        "type": job_type,
        "config": config,
        "vertices": [
            {"name": "in", "source": streams},
            {"name": "out", "inputs": ["in"], "sink": {"format": "noop"}},
        ],
    }


@pytest.mark.parametrize(
    ("job_type", "name", "value", "other"),
    [
        ("STREAMING", "slotwise.batch.parallelism-decider", "flip-187", "BATCH"),
        ("STREAMING", "execution.batch.adaptive.auto-parallelism.avg-data-volume-per-task", "1 mb", "BATCH"),
        ("BATCH", "slotwise.batch.interval", "1 s", "STREAMING"),
        ("BATCH", "slotwise.in-place.cooldown", "1 s", "STREAMING"),
        ("BATCH", "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling", "1 s", "STREAMING"),
    ],
)
def test_options_of_the_other_type_are_refused(job_type: str, name: str, value: str, other: str) -> None:
    with pytest.raises(GraphErrors) as refused:
        parse_document(document(job_type, **{name: value}))
    assert str(refused.value) == (
        f"config: Option {name} is for {other} jobs: a {job_type} job has no use for it."
    )


@pytest.mark.parametrize("value", ["0", "-1 mb", "1 parsec", "many", "1.5 gb", ""])
def test_a_size_that_is_none_is_refused(value: str) -> None:
    name = "execution.batch.adaptive.auto-parallelism.avg-data-volume-per-task"
    with pytest.raises(GraphErrors, match="a size above 0 such as 16 mb"):
        parse_document(document("BATCH", **{name: value}))


def test_an_unknown_decider_is_refused() -> None:
    with pytest.raises(GraphErrors, match="one of flip-187, even-data is expected, found"):
        parse_document(document("BATCH", **{"slotwise.batch.parallelism-decider": "odd-data"}))


def test_a_type_in_small_letters_is_the_only_error_of_a_graph_with_results() -> None:
    value = document("BATCH")
    value["type"] = "batch"
    value["vertices"][1]["inputs"] = [{"vertex": "in", "exchange": "BLOCKING"}]
    with pytest.raises(GraphErrors) as refused:
        parse_document(value)
    (error,) = refused.value.errors
    assert error.startswith("type: ") and "BATCH" in error


@pytest.mark.parametrize("path", ["/in", "/in/", "/other/../in"])
def test_a_sink_where_a_source_reads_is_refused(path: str) -> None:
    value = document("BATCH")
    value["vertices"][1]["sink"] = {"format": "parquet", "path": path}
    with pytest.raises(GraphErrors) as refused:
        parse_document(value)
    assert str(refused.value) == (
        f"vertices[1].sink.path: {path!r} is what vertices[0].source reads: the job would read what it writes."
    )
    value["vertices"][1]["sink"]["path"] = "/in/out"
    assert parse_document(value)


def test_a_batch_vertex_has_room_for_decisions_unless_it_says_otherwise() -> None:
    value = document("BATCH")
    value["vertices"][1]["maxParallelism"] = 8
    graph = parse_document(value)
    assert [(v.lower_bound, v.parallelism) for v in graph.vertices] == [(1, 32), (1, 8)]
    assert [(v.lower_bound, v.parallelism) for v in parse_document(document("STREAMING")).vertices] == [
        (1, 1)
    ] * 2


def test_slot_sharing_groups_are_for_streaming_jobs() -> None:
    value = document("BATCH")
    value["vertices"][1]["slotSharingGroup"] = "sinks"
    with pytest.raises(GraphErrors, match="slotSharingGroup: is for STREAMING jobs"):
        parse_document(value)


def test_forward_is_for_pipelined_edges() -> None:
    """What reads a result runs as parallel as its bytes ask for, whatever the producer ran at."""
    value = document("BATCH")
    edge = {"vertex": "in", "partitioner": "FORWARD", "exchange": "BLOCKING"}
    value["vertices"][1]["inputs"] = [edge]
    with pytest.raises(GraphErrors) as refused:
        parse_document(value)
    assert str(refused.value) == (
        "vertices[1].inputs[0].partitioner: FORWARD is for PIPELINED edges: the parallelism of each side of a BLOCKING "
        "edge is decided on its own. Take REBALANCE."
    )
    edge["exchange"] = "PIPELINED"
    assert parse_document(value).by_name["out"].inputs[0].partitioner is Partitioner.FORWARD


@pytest.mark.parametrize(
    ("exchange", "default"), [("PIPELINED", Partitioner.FORWARD), ("BLOCKING", Partitioner.REBALANCE)]
)
def test_the_default_partitioner_of_equal_vertices(exchange: str, default: Partitioner) -> None:
    value = document("BATCH")
    value["vertices"][1]["inputs"] = [{"vertex": "in", "exchange": exchange}]
    graph = parse_document(value)
    assert graph.by_name["out"].inputs[0].partitioner is default
    assert parse_document(to_document(graph)) == graph
