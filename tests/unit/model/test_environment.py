"""The environment and the packages of a job: what is read from a document, what is refused, and what is lacking."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from app.documents.graph import parse_document
from app.documents.program import parse_program, parse_submitted
from app.model.environment import EnvironmentSpec, is_before, python_fault, spark_fault
from app.model.graphdoc import read_graph, to_document
from app.model.graphdoc_program import graph_of
from app.model.grapherrors import GraphErrors
from app.model.jobgraph import JobGraph

KAFKA = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.1"


def program(**fields: Any) -> dict[str, Any]:
    return {"name": "words", "script": "words.py", **fields}


def graph(source: str = "rate", sink: str = "noop", **fields: Any) -> dict[str, Any]:
    options = {"sqlite": {"table": "t"}, "postgresql": {"url": "postgresql://h/d", "table": "t"}}
    path = {"path": "/tmp/t.db"} if sink == "sqlite" else {}
    vertices = [
        {"name": "made", "source": {"format": source}},
        {
            "name": "kept",
            "inputs": ["made"],
            "sink": {"format": sink, "options": options.get(sink, {}), **path},
        },
    ]
    return {"name": "words", "type": "STREAMING", "vertices": vertices, **fields}


EITHER = pytest.mark.parametrize("document", [program, graph])


@EITHER
@pytest.mark.parametrize(
    ("environment", "spec"),
    [
        ({"python": "/opt/env/bin/python"}, EnvironmentSpec(python="/opt/env/bin/python")),
        ({"archive": "/srv/env.tar.gz"}, EnvironmentSpec(archive="/srv/env.tar.gz")),
        ({"archive": "env.tar.gz"}, EnvironmentSpec(archive="env.tar.gz")),
        (
            {"requirements": ["pyspark==4.1.1", "numpy>=2"]},
            EnvironmentSpec(requirements=("pyspark==4.1.1", "numpy>=2")),
        ),
    ],
)
def test_an_environment_is_read_and_written(
    document: Callable[..., dict[str, Any]], environment: dict[str, Any], spec: EnvironmentSpec
) -> None:
    said = document(environment=environment, packages=[KAFKA], artifacts=["env.tar.gz"])
    parsed = parse_submitted(said)
    assert parsed.runtime.environment == spec
    assert parsed.runtime.packages == (KAFKA,)
    written = to_document(parsed) if isinstance(parsed, JobGraph) else to_document(graph_of(parsed))
    assert read_graph(written).runtime == parsed.runtime
    assert {key: written[key] for key in ("environment", "packages")} == {
        key: said[key] for key in ("environment", "packages")
    }


@EITHER
def test_without_them_the_document_says_nothing_of_them(document: Callable[..., dict[str, Any]]) -> None:
    parsed = parse_submitted(document())
    assert parsed.runtime.environment is None and parsed.runtime.packages == ()
    written = to_document(parsed) if isinstance(parsed, JobGraph) else to_document(graph_of(parsed))
    assert not {"environment", "packages"} & written.keys()


@EITHER
@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"environment": "/opt/env/bin/python"}, "environment should be a mapping with one of python"),
        ({"environment": {}}, "should have exactly one of python, archive, requirements, found none"),
        (
            {"environment": {"python": "/a", "requirements": ["b"]}},
            "exactly one of python, archive, requirements, found python and requirements",
        ),
        ({"environment": {"pyton": "/a"}}, "pyton"),
        ({"environment": {"python": "bin/python"}}, "environment.python should be an absolute path"),
        ({"environment": {"python": "/opt/../bin/python"}}, "without .."),
        ({"environment": {"python": 3}}, "environment.python should be"),
        ({"environment": {"archive": "missing.tar.gz"}}, "or one of the artifacts"),
        ({"environment": {"requirements": []}}, "environment.requirements must not be empty"),
        (
            {"environment": {"requirements": ["-r other.txt"]}},
            "environment.requirements[0] should be a requirement",
        ),
        (
            {"environment": {"requirements": ["numpy", " --index-url x"]}},
            "environment.requirements[1] should be",
        ),
        ({"environment": {"requirements": ["a @ https://me:pw@host/a.whl"]}}, "has a password in an address"),
        ({"packages": KAFKA}, "packages should be a list"),
        (
            {"packages": ["org.apache.spark:spark-sql-kafka"]},
            "packages[0] should be the coordinates of one version",
        ),
        ({"packages": ["a:b:[1.0,2.0)"]}, "packages[0] should be the coordinates of one version"),
        ({"packages": ["a:b:1,c:d:2"]}, "packages[0] should be the coordinates of one version"),
        ({"packages": [KAFKA, 4]}, "packages[1] should be coordinates"),
    ],
)
def test_what_cannot_be_is_said_with_its_place(
    document: Callable[..., dict[str, Any]], fields: dict[str, Any], said: str
) -> None:
    with pytest.raises(GraphErrors) as caught:
        parse_submitted(document(**fields))
    assert said in " ".join(caught.value.errors).replace("environment: ", "environment ").replace(
        "packages: ", "packages "
    ).replace("]: ", "] ").replace("python: ", "python ").replace("requirements: ", "requirements ")
    assert "pw@" not in " ".join(caught.value.errors)


def test_versions_that_drivers_run_on() -> None:
    assert python_fault((3, 11, 0)) is None and python_fault((3, 14)) is None
    assert python_fault((3, 10, 13)) == "is Python 3.10.13: a driver needs Python 3.11 or newer"
    assert "Python 2.7.18" in str(python_fault((2, 7, 18)))
    for version in ("4.1.1", "4.2.0", "4.3.0", "4.3.1.dev0"):
        assert spark_fault(version) is None
    for version in ("4.0.1", "3.5.6", "4.4.0", "4.10.0"):
        assert version in str(spark_fault(version))


def test_a_stored_graph_of_a_program_keeps_what_it_runs_in() -> None:
    planned = graph_of(parse_program(program(type="BATCH", packages=[KAFKA])))
    assert planned.runtime.packages == (KAFKA,)
    assert read_graph(to_document(planned)) == planned
    assert parse_document(graph()) != parse_document(graph(packages=[KAFKA]))


@pytest.mark.parametrize("field", ["environment", "packages"])
def test_a_graph_of_type_batch_runs_in_the_environment_of_the_server(field: str) -> None:
    given = {"environment": {"python": "/a"}, "packages": [KAFKA]}[field]
    with pytest.raises(GraphErrors) as caught:
        parse_document({**graph("parquet"), "type": "BATCH", field: given})
    assert f"{field}: is for STREAMING graphs and for programs" in caught.value.errors[0]


def test_versions_are_compared_as_numbers() -> None:
    assert is_before("4.1.1", "4.2") and not is_before("4.2.0", "4.2") and not is_before("4.10.0", "4.2")
