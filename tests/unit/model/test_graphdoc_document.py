"""The fields of a document and of a vertex: names, kinds, limits, and that all errors come at once."""

from __future__ import annotations

from typing import Any

import pytest

from app.documents.graph import parse_document
from app.model.graphdoc import MAX_VERTICES
from app.model.grapherrors import GraphErrors
from app.model.jobgraph import JobType
from tests.unit.model.documents import COUNTS, FLIGHTS, STORE, changed, document, errors, vertex

RANGE = "should be a whole number between 1 and 32768"


def test_the_smallest_document() -> None:
    graph = parse_document(document())
    assert (graph.name, graph.type, graph.artifacts, graph.config) == ("job", JobType.STREAMING, (), ())
    assert [v.name for v in graph.vertices] == ["flights", "counts", "store"]
    assert graph.groups == (("default", tuple(v.id for v in graph.vertices)),)


@pytest.mark.parametrize("value", [None, [], "x", 1, True, 1.5])
def test_a_document_is_a_mapping(value: object) -> None:
    [error] = errors(value)
    assert error.startswith(
        "The job graph should be a mapping with name, type, artifacts, environment, packages, environmentVariables, "
        "from, config, vertices, found "
    )


def test_all_errors_of_rules_come_at_once_if_there_are_none_of_form() -> None:
    found = errors(
        document(
            {"name": "a", "source": {"format": "csv"}, "parallelism": 2, "maxParallelism": 1},
            {"name": "b", "inputs": ["aa"], "sql": "SELECT * FROM a"},
            {"name": "b", "inputs": ["a"], "python": "m:f"},
            {"name": "d", "inputs": ["b"], "sink": {"format": "sqlite", "path": "s3://x"}},
            config={"jobmanager.scheduler": "Default"},
        )
    )
    assert [error.split(": ")[0] for error in found] == [
        "config",
        "vertices[0].source.path",
        "vertices[2].python",
        "vertices[3].sink.path",
        "vertices[3].sink.options.table",
        "vertices[0].parallelism",
        "vertices[2].name",
        "vertices[1].inputs[0]",
    ]


def test_all_errors_of_form_come_at_once_each_with_its_place() -> None:
    found = errors(
        {
            "name": "",
            "type": "STREAM",
            "artefacts": [],
            "config": {"jobmanager.scheduler": "Default"},
            "vertices": [
                {"name": "a", "source": {"format": "csv", "path": "in/"}, "parallelism": 0},
                {"name": "b", "inputs": ["aa"], "sql": "SELECT * FROM a"},
                {"name": "b", "inputs": [{"vertex": "a", "partitioner": "HASHED"}], "python": "m:f", "x": 1},
                {"name": "d", "inputs": ["b"], "sink": {"format": "par ket"}},
                7,
            ],
        }
    )
    assert [error.split(": ")[0] for error in found] == [
        "name",
        "type",
        "vertices[0].source.path",
        "vertices[0].parallelism",
        "vertices[2].inputs[0].partitioner",
        "vertices[2].x",
        "vertices[3].sink.format",
        "vertices[4]",
        "artefacts",
    ]
    assert all(error.endswith((".", ".)", "?")) for error in found)
    with pytest.raises(GraphErrors) as caught:
        parse_document({})
    assert str(caught.value).splitlines() == caught.value.errors


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        (
            {"name": 5},
            "name: should be a text, found the number 5 (put it in quotes if it is meant as text).",
        ),
        ({"name": None}, "name: should be a text, found null."),
        ({"name": " a"}, "name: must not begin or end with a blank, found ' a'."),
        ({"name": "a\nb"}, "name: must not contain line breaks or control characters, found 'a\\nb'."),
        ({"name": "a" * 201}, "name: is too long: at most 200 characters are allowed, found 201."),
        ({"name": "a\0"}, "name: must not contain the character NUL."),
        ({"name": "\ud800"}, "name: must not contain half a surrogate pair: it is not valid Unicode."),
        (
            {"type": "streaming"},
            "type: should be one of STREAMING, BATCH, found the text 'streaming'. Did you mean 'STREAMING'?",
        ),
        ({"type": True}, "type: should be one of STREAMING, BATCH, found true."),
        ({"vertices": []}, "vertices: must not be empty: at least a source and a sink are expected."),
        ({"vertices": {}}, "vertices: should be a list of vertices, found a mapping."),
        ({"artifacts": "a.py"}, "artifacts: should be a list of file names, found the text 'a.py'."),
        ({"artifacts": ["a.py", "a.py"]}, "artifacts[1]: 'a.py' is listed twice."),
        (
            {"artifacts": [1]},
            "artifacts[0]: should be a file name, found the number 1 (put it in quotes if it is meant as text).",
        ),
        (
            {"config": []},
            "config: should be a mapping of spark.* settings and scheduler options, found a list.",
        ),
        (
            {"config": {"spark.x": None}},
            "config['spark.x']: should be a text, a number or a boolean, found null.",
        ),
        (
            {"vertexes": []},
            "vertexes: is not a field of a job graph. Did you mean 'vertices'? Allowed are name, type, ",
        ),
    ],
)
def test_fields_of_the_document(fields: dict[str, Any], error: str) -> None:
    found = errors({**document(), **fields})
    assert len(found) == 1
    assert found[0].startswith(error)


@pytest.mark.parametrize("name", ["../a.py", "a/b.py", "/etc/passwd", ".hidden", "", "a\\b.py", "a" * 201])
def test_artifacts_are_plain_file_names(name: str) -> None:
    [error] = errors(document(artifacts=[name]))
    assert error.startswith("artifacts[0]: ")


@pytest.mark.parametrize(
    ("config", "part"),
    [
        ({"slot.idle.timeot": "1 s"}, "Option slot.idle.timeot is unknown. Did you mean slot.idle.timeout?"),
        ({"restart-strategy.type": "never"}, "Option restart-strategy.type: one of none, fixed-delay"),
        (
            {"spark.sql.shuffle.partitions": 4},
            "is not allowed: give maxParallelism at the stateful vertices.",
        ),
        ({"spark.master": "local"}, "is not allowed: Slotwise decides"),
        ({"spark.ui.enabled": "on"}, "spark.ui.enabled']: should be true or false, found 'on'."),
        ({"spark.ui.port": "80"}, "should be 0, for any port that is free, or a port between 1024 and 65535"),
        ({"spark.ui.port": "x"}, "found 'x'"),
        ({"spark.task.maxFailures": "0"}, "should be how often a task may fail, a whole number from 1 to"),
        ({"spark.ui.killEnabled": "true"}, "is not allowed: everybody who reaches the page could end tasks"),
        ({"spark.jars": "/a.jar"}, "is not allowed: list the libraries of a job under packages"),
        ({"spark.jars.packages": "a:b:1"}, "is not allowed: list the libraries of a job under packages"),
        (
            {"spark.jars.repositories": "https://x"},
            "is not allowed: list the libraries of a job under packages",
        ),
        (
            {"spark.driver.extraClassPath": "/a.jar"},
            "is not allowed: list the libraries of a job under packages",
        ),
        ({"spark.driver.extraLibraryPath": "/a"}, "is not allowed: it would have no effect"),
        ({"spark.submit.pyFiles": "/a.py"}, "is not allowed: list the Python files of a job under artifacts"),
        ({"spark.pyspark.python": "/bin/x"}, "is not allowed: say under environment which Python"),
        ({"spark.app.name": "x"}, "is not allowed: it is the name of the job"),
        ({"slot.idle.timeout": [1]}, "should be a text, a number or a boolean, found a list."),
    ],
)
def test_config_is_checked(config: dict[str, Any], part: str) -> None:
    [error] = errors(document(config=config))
    assert error.startswith("config") and part in error


def test_config_values_are_kept_as_text() -> None:
    config = {"spark.a": True, "spark.b": 5, "spark.c": 1.5, "spark.d": "x", "slot.idle.timeout": 100}
    assert parse_document(document(config=config)).config == (
        ("spark.a", "true"),
        ("spark.b", "5"),
        ("spark.c", "1.5"),
        ("spark.d", "x"),
        ("slot.idle.timeout", "100"),
    )


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"name": None}, ".name: is missing: a text is expected."),
        ({"name": "0123456789ABCDEF0123456789abcdef"}, ".name: must not be 32 hexadecimal digits"),
        ({"sql": None}, ": should have exactly one of source, sql, python, sink, found none."),
        ({"python": "m:f"}, ": should have exactly one of source, sql, python, sink, found sql and python."),
        ({"sql": 5}, ".sql: should be a SQL text, found the number 5"),
        ({"sql": " "}, ".sql: must not be empty: a SQL text is expected."),
        ({"sql": "SELECT * FROM flights --" + "x" * 100_000}, ".sql: is too long: at most 100000 characters"),
        ({"inputs": None}, ".inputs: at least one input is expected, found none."),
        ({"inputs": []}, ".inputs: at least one input is expected, found none."),
        ({"inputs": "flights"}, ".inputs: should be a list of inputs, found the text 'flights'."),
        ({"inputs": [1]}, ".inputs[0]: should be the name of a vertex or a mapping with vertex, "),
        ({"parallelism": True}, ".parallelism: " + RANGE + ", found true."),
        ({"parallelism": 2.0}, ".parallelism: " + RANGE + ", found the number 2.0."),
        ({"parallelism": "2"}, ".parallelism: " + RANGE + ", found the text '2'."),
        ({"parallelism": 0}, ".parallelism: " + RANGE + ", found the number 0."),
        ({"parallelism": -1}, ".parallelism: should be a whole number"),
        ({"parallelism": 32769}, ".parallelism: " + RANGE),
        ({"parallelism": 10**40}, ".parallelism: " + RANGE + ", found a huge number."),
        ({"maxParallelism": 32769}, ".maxParallelism: " + RANGE),
        ({"parallelism": 5, "maxParallelism": 4}, ".parallelism: 5 is higher than the maxParallelism 4."),
        ({"lowerBound": 0}, ".lowerBound: " + RANGE),
        ({"lowerBound": 2}, ".lowerBound: 2 is higher than the parallelism 1, the initial upper bound."),
        ({"stateful": "yes"}, ".stateful: should be true or false, found the text 'yes'."),
        ({"slotSharingGroup": ""}, ".slotSharingGroup: must not be empty"),
        ({"slotSharingGroup": 1}, ".slotSharingGroup: should be a text, found the number 1"),
        (
            {"paralelism": 1},
            ".paralelism: is not a field of a vertex. Did you mean 'parallelism'? Allowed are name, ",
        ),
        ({"a b": 1}, "['a b']: is not a field of a vertex."),
    ],
)
def test_fields_of_a_vertex(fields: dict[str, Any], error: str) -> None:
    found = errors(document(FLIGHTS, changed(COUNTS, **fields), STORE))
    own = [text for text in found if text.startswith("vertices[1]")]
    assert len(own) == 1, found
    assert own[0].startswith("vertices[1]" + error)


def test_the_number_of_vertices_is_bounded() -> None:
    many = [{"name": f"s{i}", "source": {"format": "rate"}} for i in range(MAX_VERTICES + 1)]
    found = errors(document(*many))
    assert found[0] == "vertices: has 201 elements: at most 200 are allowed."


def test_the_number_of_inputs_is_bounded() -> None:
    many = [{"name": f"s{i}", "source": {"format": "rate"}} for i in range(51)]
    union = {"name": "union", "inputs": [v["name"] for v in many], "python": "m:f"}
    found = errors(document(*many, union, changed(STORE, inputs=["union"]), artifacts=["m.py"]))
    assert "vertices[51].inputs: has 51 elements: at most 50 are allowed." in found


def test_a_hostile_number_of_errors_is_counted_only() -> None:
    found = errors({**document(), **{f"field{i}": 0 for i in range(5000)}})
    assert len(found) == 101
    assert found[-1] == "There are 4900 more errors."


def test_deeply_nested_values_are_refused_where_they_stand() -> None:
    deep: Any = []
    for _ in range(10_000):
        deep = [deep]
    assert errors(document(changed(FLIGHTS, source=deep), COUNTS, STORE))[0].startswith(
        "vertices[0].source: should be a mapping with format, path, schema, options, static, found a list."
    )
    assert errors(document(config={"spark.x": deep})) == [
        "config['spark.x']: should be a text, a number or a boolean, found a list."
    ]


def test_slot_sharing_groups_have_ids_of_their_own() -> None:
    store = vertex("store", FLIGHTS, COUNTS, changed(STORE, slotSharingGroup="sinks"))
    counts = vertex("counts", FLIGHTS, COUNTS, changed(STORE, slotSharingGroup="sinks"))
    assert (store.slot_sharing_group, counts.slot_sharing_group) == ("sinks", "default")
    assert store.slot_sharing_group_id != counts.slot_sharing_group_id
    assert len(store.slot_sharing_group_id) == 32


def test_ids_are_stable_across_submissions_and_differ_between_jobs() -> None:
    first, second = (
        parse_document(document()),
        parse_document(document(FLIGHTS, changed(COUNTS, parallelism=3), STORE)),
    )
    assert [v.id for v in first.vertices] == [v.id for v in second.vertices]
    other = parse_document({**document(), "name": "other"})
    assert not {v.id for v in first.vertices} & {v.id for v in other.vertices}
