"""Documents of programs, and the graphs that they get by their queries."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from app.documents.graph import parse_document
from app.documents.program import parse_program, parse_submitted
from app.model.analysis import queries
from app.model.graphdoc import read_graph, to_document
from app.model.graphdoc_program import ProgramDocument, graph_of, grown
from app.model.grapherrors import GraphErrors
from app.model.jobgraph import (
    InPlace,
    JobGraph,
    JobType,
    Partitioner,
    PlannedSpec,
    ProgramSpec,
    Role,
)
from app.model.localpaths import local_paths
from app.model.masking import masked_arguments
from app.model.options import JobOptions
from app.model.planned import PlannedVertex
from app.model.secret_texts import secrets_of
from app.model.state_partitions import numbers_of, partitions_of_queries, why_fixed, with_partitions
from tests.unit.model.documents import document as graph_document

PROGRAM: dict[str, Any] = {"name": "words", "script": "job.py"}


def errors_of(change: dict[str, Any]) -> list[str]:
    with pytest.raises(GraphErrors) as raised:
        parse_program({**PROGRAM, **change})
    return raised.value.errors


def source(name: str) -> PlannedVertex:
    return PlannedVertex(name, Role.SOURCE, "kafka")


def stateful(name: str, *inputs: str, partitions: int = 12) -> PlannedVertex:
    return PlannedVertex(name, Role.OPERATOR, "Aggregate", inputs, True, partitions)


def sink(name: str, *inputs: str) -> PlannedVertex:
    return PlannedVertex(name, Role.SINK, "parquet", inputs)


def planned(*vertices: PlannedVertex, **document: Any) -> JobGraph:
    return grown(graph_of(parse_program({**PROGRAM, **document})), vertices)


# -- the document


def test_the_least_that_is_a_program() -> None:
    assert parse_program(PROGRAM) == ProgramDocument(
        "words", JobType.STREAMING, ProgramSpec("job.py"), ("job.py",)
    )
    assert parse_submitted(PROGRAM) == parse_program(PROGRAM)


def test_a_program_in_full() -> None:
    document = {
        **PROGRAM,
        "type": "STREAMING",
        "args": ["--topic", "", "words"],
        "artifacts": ["helpers.zip", "job.py"],
        "config": {"spark.sql.shuffle.partitions": 24, "slotwise.slots.weight": "2"},
        "bounds": {"counts": {"lowerBound": 1, "upperBound": 4}, "store": {}},
        "from": "/data/counts",
    }
    program = parse_program(document)
    assert program.program == ProgramSpec("job.py", ("--topic", "", "words"))
    assert program.origin == "/data/counts"
    assert program.artifacts == ("helpers.zip", "job.py")
    assert dict(program.config)["spark.sql.shuffle.partitions"] == "24"
    assert [(each.vertex, each.lower, each.upper) for each in program.bounds] == [
        ("counts", 1, 4),
        ("store", None, None),
    ]


@pytest.mark.parametrize("spelled", ["/data/a%20b/", "file:/data/a%20b", "file:///data//x/../a%20b"])
def test_what_it_goes_on_from_may_be_written_as_for_spark(spelled: str) -> None:
    program = parse_program({**PROGRAM, "from": spelled})
    assert program.origin == "/data/a%20b"
    graph = graph_of(program)
    assert graph.origin == program.origin and to_document(graph)["from"] == program.origin


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"type": "batch"}, "type: should be one of STREAMING, BATCH"),
        ({"script": "job.sh"}, "script: should be the name of a Python file"),
        ({"script": "a/job.py"}, "script: should be the name of a Python file"),
        ({"script": 1}, "script: should be the file of a program"),
        ({"args": "--x"}, "args: should be a list of texts"),
        ({"args": ["--port", 9999]}, "args[1]: should be a text, found the number 9999 (put it in quotes"),
        ({"args": ["\0"]}, "args[0]: must not contain the character NUL"),
        ({"vertices": []}, "vertices: the vertices of a program are read from its plan"),
        ({"arg": []}, "arg: is not a field of a program. Did you mean 'args'?"),
        ({"bounds": []}, "bounds: should be a mapping"),
        (
            {"bounds": {"a": 3}},
            "bounds.a: should be a mapping with lowerBound, upperBound, found the number 3",
        ),
        ({"bounds": {"a": {"upper": 3}}}, "bounds.a.upper: is not a field of the bounds of a vertex"),
        ({"bounds": {"a": {"upperBound": 0}}}, "bounds.a.upperBound: should be a whole number between 1"),
        ({"bounds": {"a": {"lowerBound": 3, "upperBound": 2}}}, "bounds.a.lowerBound: 3 is higher than"),
        (
            {"config": {"spark.sql.shuffle.partitions": 0}},
            "config['spark.sql.shuffle.partitions']: should be the number",
        ),
        ({"config": {"spark.sql.shuffle.partitions": 32769}}, "a whole number between 1 and 32768"),
        ({"config": {"spark.sql.shuffle.partitions": "many"}}, "found 'many'"),
        ({"config": {"spark.master": "local"}}, "config: The setting spark.master is not allowed"),
        ({"config": {"spark.sql.streaming.checkpointLocation": "/x"}}, "option('checkpointLocation', ...)"),
        ({"config": {"slotwise.batch.interval": "1 s"}}, "trigger(processingTime=...)"),
        ({"config": {"slotwise.batch.parallelism-decider": "flip-187"}}, "is for BATCH jobs"),
        ({"from": "counts"}, "from: should be an absolute path on the host of the server"),
        ({"from": "file://host/c"}, "from: should be an absolute path on the host of the server"),
        ({"from": "hdfs://host/c"}, "A checkpoint on another file system has to be copied there before."),
        (
            {"from": ["/c"]},
            "from: should be the directory of a checkpoint on the host of the server, found a",
        ),
        (
            {"from": "/c", "type": "BATCH"},
            "from: is for jobs with streaming queries: a BATCH job has no checkpoint.",
        ),
        ({"artifacts": [f"f{number}" for number in range(100)]}, "with the script there are 101"),
    ],
)
def test_what_is_refused(change: dict[str, Any], sentence: str) -> None:
    found = errors_of(change)
    assert any(sentence in error for error in found), found


def test_the_script_is_needed_and_the_number_of_partitions_is_for_programs_only() -> None:
    with pytest.raises(GraphErrors, match="script: is missing"):
        parse_program({"name": "x"})
    with pytest.raises(GraphErrors, match="give maxParallelism at the stateful vertices"):
        parse_document(graph_document(config={"spark.sql.shuffle.partitions": 1}))


# -- the graph


def test_the_graph_of_a_program() -> None:
    graph = planned(
        source("in"),
        stateful("counts", "in", partitions=6),
        sink("out", "counts"),
        source("raw"),
        sink("copy", "raw"),
        bounds={"counts": {"lowerBound": 2, "upperBound": 6}, "copy": {"upperBound": 300}},
    )
    assert graph.program == ProgramSpec("job.py")
    assert [
        (each.name, each.lower_bound, each.parallelism, each.max_parallelism, each.stateful)
        for each in graph.vertices
    ] == [
        ("in", 1, 6, 128, False),
        ("counts", 2, 6, 6, True),
        ("out", 1, 6, 128, False),
        ("raw", 1, 12, 128, False),
        ("copy", 1, 300, 512, False),
    ]
    assert [edge.partitioner for vertex in graph.vertices for edge in vertex.inputs] == [
        Partitioner.HASH,
        Partitioner.FORWARD,
        Partitioner.REBALANCE,
    ]
    assert {vertex.in_place for vertex in graph.vertices} == {InPlace.YES}
    assert graph.groups == (("default", tuple(vertex.id for vertex in graph.vertices)),)
    assert [vertex.name for vertex in graph.vertices if vertex.is_source] == ["in", "raw"]
    assert [vertex.name for vertex in graph.vertices if vertex.is_sink] == ["out", "copy"]
    assert graph.by_name["counts"].operation == PlannedSpec(Role.OPERATOR, "Aggregate")
    assert list(local_paths(graph)) == []


def test_a_stored_graph_is_the_graph() -> None:
    graph = planned(
        source("in"), stateful("counts", "in"), sink("out", "counts"), args=["a"], artifacts=["b.zip"]
    )
    document = json.loads(json.dumps(to_document(graph)))
    assert read_graph(document) == graph
    assert to_document(read_graph(document)) == document
    # It is no document to submit.
    with pytest.raises(GraphErrors, match="vertices: the vertices of a program are read from its plan"):
        parse_submitted(document)
    # A graph document has no planned vertices.
    del document["script"], document["args"]
    with pytest.raises(GraphErrors, match="planned: is not a field of a vertex"):
        parse_submitted(document)


@pytest.mark.parametrize("partitions", [1, 3, 5])
def test_a_stored_graph_is_read_with_other_state_partitions_than_it_began_with(partitions: int) -> None:
    graph = planned(source("in"), stateful("aggregate", "in", partitions=4), sink("out", "aggregate"))
    other = with_partitions(graph, tuple((vertex, partitions) for vertex, _ in numbers_of(graph)))
    assert read_graph(to_document(other)) == other


def test_the_queries_of_a_program() -> None:
    graph = planned(
        source("left"),
        source("right"),
        stateful("join", "left", "right", partitions=8),
        stateful("counts", "join", partitions=8),
        sink("out", "counts"),
        source("one"),
        source("two"),
        sink("both", "one", "two"),
    )
    out, both = queries(graph)
    assert [vertex.name for vertex in out.flow] == ["left", "right", "join", "counts", "out"]
    assert [vertex.name for vertex in both.flow] == ["one", "two", "both"]
    assert (out.sink.name, both.sink.name) == ("out", "both")
    assert (out.key, both.key) == (graph.by_name["out"].id, graph.by_name["both"].id)
    assert [vertex.name for vertex in both.streams] == ["one", "two"]
    assert (out.state_partitions, both.state_partitions) == (8, None)
    assert partitions_of_queries(graph) == {out.key: 8}
    assert {vertex.in_place for vertex in graph.vertices} == {InPlace.YES}
    # A source of a query with state may be as parallel as its state.
    assert graph.by_name["left"].parallelism == 8
    assert graph.by_name["one"].parallelism == 12


def test_what_fixes_the_state_of_a_program_is_known_since_it_was_planned() -> None:
    counts = stateful("counts", "in")
    graph = planned(source("in"), counts, sink("out", "counts"))
    assert why_fixed(graph, JobOptions(), graph.by_name["counts"], 24) is None
    fixed = replace(counts, fixed="its checkpoint is far away")
    graph = planned(source("in"), fixed, sink("out", "counts"))
    why = why_fixed(graph, JobOptions(), graph.by_name["counts"], 24)
    assert why == "Its state has 12 partitions, which is the most: its checkpoint is far away."
    assert read_graph(to_document(graph)) == graph


@pytest.mark.parametrize(
    "vertices",
    [
        (),
        (source("in"),),
        (source("in"), sink("in", "in")),
        (source("in"), sink("out", "none")),
        (source("in"), sink("out")),
        (source("x" * 300), sink("out", "x" * 300)),
        (source("0" * 32), sink("out", "0" * 32)),
        (source("in"), stateful("counts", "in", partitions=0), sink("out", "counts")),
        (source("in"), stateful("counts", "in", partitions=10**6), sink("out", "counts")),
        (PlannedVertex("in", Role.SOURCE, ""), sink("out", "in")),
        (stateful("a", "b"), stateful("b", "a"), sink("out", "b")),
    ],
)
def test_a_plan_that_is_none_is_refused(vertices: tuple[PlannedVertex, ...]) -> None:
    """The process that made it ran the code of a user."""
    with pytest.raises(GraphErrors):
        planned(*vertices)


# -- secrets


def test_secrets_among_arguments() -> None:
    args = [
        *("--password", "hunter22", "--api-key=abcdef99", "--topic", "words", "--token", "--verbose"),
        *(
            "--url",
            "jdbc:postgresql://me:geheim77@host/db",
            "spark.x.secret=verysecret1",
            "-secret",
            "-dash77",
        ),
    ]
    assert masked_arguments(args) == [
        *("--password", "******", "--api-key=******", "--topic", "words", "--token", "--verbose"),
        *("--url", "jdbc:postgresql://me:******@host/db", "spark.x.secret=******", "-secret", "******"),
    ]
    graph = planned(source("in"), sink("out", "in"), args=args)
    found = secrets_of(graph)
    assert {"hunter22", "abcdef99", "geheim77", "verysecret1", "-dash77"} <= set(found)
    assert "words" not in found


# -- BATCH programs


def batch(**document: Any) -> JobGraph:
    return graph_of(parse_program({**PROGRAM, "type": "BATCH", **document}))


def test_a_batch_program_is_one_vertex_with_the_name_of_its_script() -> None:
    graph = batch(bounds={"job": {"lowerBound": 2, "upperBound": 4}})
    (vertex,) = graph.vertices
    assert (vertex.name, vertex.operation) == ("job", PlannedSpec(Role.PROGRAM, "batch"))
    assert (vertex.lower_bound, vertex.parallelism, vertex.stateful) == (2, 4, False)
    assert vertex.in_place is InPlace.YES
    assert graph.is_batch_program and not graph.runs_by_regions
    assert read_graph(to_document(graph)) == graph
    # As much as there is, as other BATCH jobs take it.
    assert (batch().vertices[0].lower_bound, batch().vertices[0].parallelism) == (1, 32)


def test_what_only_batch_programs_may_set_and_what_they_may_not() -> None:
    graph = batch(
        config={
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.adaptive.skewJoin.enabled": "true",
            "spark.sql.shuffle.partitions": 400,
            "spark.sql.sources.bucketing.enabled": "false",
            "spark.scheduler.mode": "FIFO",
            "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling": "1 s",
            "slotwise.in-place.cooldown": "1 s",
        }
    )
    assert dict(graph.config)["spark.sql.shuffle.partitions"] == "400"
    assert read_graph(to_document(graph)) == graph
    assert any(
        "choose the number of tasks" in each
        for each in errors_of({"config": {"spark.sql.adaptive.enabled": "true"}})
    )


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"config": {"spark.task.cpus": "2"}}, "a slot is for one task at a time"),
        ({"config": {"spark.master": "local"}}, "Slotwise decides where the driver runs"),
        ({"config": {"spark.sql.shuffle.partitions": "0"}}, "the number of partitions behind a shuffle"),
        ({"config": {"slotwise.rollback.watch-period": "1 s"}}, "neither regions nor micro-batches"),
        ({"config": {"slotwise.batch.parallelism-decider": "flip-187"}}, "neither regions nor micro-batches"),
        ({"config": {"scheduler-mode": "reactive"}}, "scheduler-mode is not for BATCH programs"),
        ({"bounds": {"jab": {"upperBound": 2}}}, "Did you mean 'job'? Its only vertex is job."),
        ({"bounds": {"job": {"lowerBound": 33}}}, "33 is higher than the upper bound 32"),
    ],
)
def test_what_is_refused_of_batch_programs(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(GraphErrors) as raised:
        batch(**change)
    assert any(sentence in error for error in raised.value.errors), raised.value.errors
