"""The environment variables of a job: what is read from a document, what is refused, and what is hidden."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from app.documents.graph import parse_document
from app.documents.program import parse_program, parse_submitted
from app.model.graphdoc import read_graph, to_document
from app.model.graphdoc_program import graph_of
from app.model.grapherrors import GraphErrors
from app.model.jobgraph import JobGraph
from app.model.masking import HIDDEN, masked, masked_document
from app.model.secret_texts import secrets_of, without_secrets
from app.model.variables import executor_settings, hiding_settings, is_of_host, is_own, variable_fault
from tests.unit.model.test_environment import graph, program

VARIABLES = {"TOPIC": "words", "api_token": "hunter2-of-me", "_X1": "", "LIMIT": "5"}


def batch_graph(**fields: Any) -> dict[str, Any]:
    source, sink = graph("parquet", "parquet")["vertices"]
    source["source"]["path"], sink["sink"]["path"] = "/data/in", "/data/out"
    return {**graph(), "type": "BATCH", "vertices": [source, sink], **fields}


def written(document: dict[str, Any]) -> dict[str, Any]:
    parsed = parse_submitted(document)
    return to_document(parsed) if isinstance(parsed, JobGraph) else to_document(graph_of(parsed))


def errors_of(variables: object) -> list[str]:
    with pytest.raises(GraphErrors) as caught:
        parse_program(program(environmentVariables=variables))
    return caught.value.errors


@pytest.mark.parametrize("document", [program, graph])
def test_they_are_read_and_written(document: Callable[..., dict[str, Any]]) -> None:
    said = written(document(environmentVariables={**VARIABLES, "LIMIT": 5}))
    assert said["environmentVariables"] == VARIABLES
    assert (
        written({name: said[name] for name in said if name in document() or name == "environmentVariables"})
        == said
    )
    # What was stored before there were any has none.
    assert "environmentVariables" not in written(document())
    assert parse_submitted(document()).runtime.variables == ()


def test_a_stored_graph_keeps_them_and_a_driver_that_is_warm_may_have_them() -> None:
    document = program(type="BATCH", environmentVariables=VARIABLES)
    planned = graph_of(parse_program(document))
    assert planned.runtime.variables == tuple(VARIABLES.items())
    assert read_graph(to_document(planned)) == planned
    assert not planned.runtime.is_own and planned.runtime.with_artifacts("/a") is None
    assert planned != graph_of(parse_program(program(type="BATCH")))


def test_a_stored_name_that_is_refused_only_since_then_is_read() -> None:
    document = {**to_document(parse_document(graph())), "environmentVariables": {"SPARK_X": "1"}}
    assert read_graph(document).runtime.variables == (("SPARK_X", "1"),)
    with pytest.raises(GraphErrors):
        parse_document(document)


@pytest.mark.parametrize("name", ["1X", "a-b", "a b", "a=b", "é", "A" * 201, "a.b", "X\n"])
def test_names_that_no_shell_could_set(name: str) -> None:
    assert any("name" in error and "environmentVariables" in error for error in errors_of({name: "1"}))


@pytest.mark.parametrize(
    "name",
    ["_SLOTWISE_DRIVER_LOCK", "SPARK_LOCAL_IP", "SPARK_HOME", "PYSPARK_PYTHON", "_PYSPARK_X", "PYTHONPATH"],
)
def test_those_of_slotwise_and_spark_are_refused_with_what_to_do(name: str) -> None:
    (error,) = errors_of({name: "1", "FINE": "1"})
    assert error.startswith(f"environmentVariables.{name}: is not allowed: Slotwise and Spark set")
    assert "under environment which Python" in error and is_own(name)


@pytest.mark.parametrize(
    "name",
    [
        "PYTHONHASHSEED",
        "JAVA_TOOL_OPTIONS",
        "_JAVA_OPTIONS",
        "LD_PRELOAD",
        "LC_ALL",
        "LANG",
        "HADOOP_USER_NAME",
    ],
)
def test_those_that_are_read_before_the_driver_has_the_job_are_refused(name: str) -> None:
    (error,) = errors_of({name: "1"})
    assert error.startswith(f"environmentVariables.{name}: is not allowed: it is read when")
    assert not is_own(name)


@pytest.mark.parametrize(
    "name", ["PATH", "TZ", "HOME", "AWS_SECRET_ACCESS_KEY", "LANGUAGES", "MY_SPARK_X", "_"]
)
def test_others_are_not(name: str) -> None:
    assert variable_fault(name) is None


def test_what_is_wrong_with_values_and_their_number() -> None:
    assert errors_of(["A=1"])[0].startswith("environmentVariables: should be a mapping of names")
    assert errors_of({"A": None})[0].startswith("environmentVariables.A: should be a text")
    assert errors_of({"A": "x\0"}) == ["environmentVariables.A: must not contain the character NUL."]
    assert "at most 200 are allowed" in errors_of({f"A{number}": "" for number in range(201)})[0]
    assert "is too long" in errors_of({"A": "x" * 40_000})[0]
    (error,) = errors_of({f"A{number}": "x" * 30_000 for number in range(9)})
    assert "the environmentVariables have 270018 characters together: at most 262144" in error


def test_values_are_always_hidden_and_names_shown() -> None:
    for document in (program(type="BATCH"), graph(), batch_graph()):
        parsed = parse_submitted({**document, "environmentVariables": VARIABLES})
        stored = to_document(parsed if isinstance(parsed, JobGraph) else graph_of(parsed))
        assert masked_document(stored)["environmentVariables"] == dict.fromkeys(VARIABLES, HIDDEN)
    assert "environmentVariables" not in masked_document(to_document(parse_document(graph())))
    assert masked("spark.executorEnv.TOPIC", "words") == HIDDEN


def test_those_that_look_like_secrets_are_hidden_in_failures() -> None:
    variables = {**VARIABLES, "DB": "postgresql://me:open-sesame@db/x"}
    for kind in ("BATCH", "STREAMING"):
        known = secrets_of(graph_of(parse_program(program(type=kind, environmentVariables=variables))))
        text = without_secrets("words: hunter2-of-me is refused, and open-sesame too", known)
        assert text == f"words: {HIDDEN} is refused, and {HIDDEN} too"


def test_executors_have_them_and_spark_hides_their_values() -> None:
    assert executor_settings({}) == {}
    assert executor_settings({"TOPIC": "words"}) == {"spark.executorEnv.TOPIC": "words"}
    assert hiding_settings({}) == {
        "spark.redaction.regex": r"(?i)secret|password|token|access[.]?key|credential|^spark\.executorEnv\."
    }
    assert hiding_settings({"spark.redaction.regex": "mine"}) == {
        "spark.redaction.regex": r"mine|^spark\.executorEnv\."
    }


def test_what_a_program_sets_for_its_host_is_not_for_others() -> None:
    for name in ("PATH", "JAVA_HOME", "LD_LIBRARY_PATH", "HADOOP_HOME", "PYTHONPATH", "a-b"):
        assert is_of_host(name)
    assert not is_of_host("MODEL")
