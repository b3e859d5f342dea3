"""The environment and the packages of a program: what is read from a document, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from app.model.environment import EnvironmentSpec, python_fault, spark_fault
from app.model.graphdoc_fields import GraphErrors
from app.model.graphdoc_program import parse_program

KAFKA = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.1"


def program(**fields: Any) -> dict[str, Any]:
    return {"name": "words", "script": "words.py", **fields}


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
def test_an_environment_is_read_and_written(environment: dict[str, Any], spec: EnvironmentSpec) -> None:
    document = program(environment=environment, packages=[KAFKA], artifacts=["env.tar.gz"])
    parsed = parse_program(document)
    assert parsed.program.environment == spec
    assert parsed.program.packages == (KAFKA,)
    assert parse_program(parsed.to_document()).program == parsed.program


def test_without_them_the_document_says_nothing_of_them() -> None:
    parsed = parse_program(program())
    assert parsed.program.environment is None and parsed.program.packages == ()
    assert not {"environment", "packages"} & parsed.to_document().keys()


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
def test_what_cannot_be_is_said_with_its_place(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(GraphErrors) as caught:
        parse_program(program(**fields))
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
