"""What is said of any value that does not fit a form, and what the JSON schemas of the forms say."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from app.cli.autoscale_policy import PolicyForm
from app.documents.form import Form, read_form
from app.documents.graph import GraphForm
from app.documents.program import ProgramForm
from app.model.grapherrors import GraphErrors
from app.plugins.livy.document import LivyForm

GRAPH: dict[str, Any] = {
    "name": "job",
    "type": "STREAMING",
    "artifacts": ["m.py"],
    "environment": {"python": "/bin/python"},
    "packages": ["a:b:1"],
    "environmentVariables": {"A": "1"},
    "config": {"spark.x": "1"},
    "vertices": [
        {
            "name": "in",
            "source": {
                "format": "csv",
                "path": "/in",
                "schema": "a INT",
                "options": {"a": 1},
                "static": True,
            },
        },
        {
            "name": "counts",
            "inputs": [{"vertex": "in", "partitioner": "HASH", "keys": ["k"], "exchange": "PIPELINED"}],
            "sql": "SELECT 1 FROM in",
            "parallelism": 1,
            "lowerBound": 1,
            "maxParallelism": 1,
            "stateful": True,
            "slotSharingGroup": "a",
        },
        {
            "name": "out",
            "inputs": ["counts"],
            "sink": {"python": "m:f", "outputMode": "append", "options": {}},
        },
        {"name": "f", "inputs": ["counts"], "python": "m:f"},
    ],
}
PROGRAM: dict[str, Any] = {
    "name": "words",
    "type": "BATCH",
    "script": "job.py",
    "args": ["a"],
    "from": "/c",
    "environment": {"requirements": ["numpy"]},
    "bounds": {"a": {"lowerBound": 1, "upperBound": 2}},
}
BATCH: dict[str, Any] = {
    "file": "a.py",
    "args": ["a"],
    "pyFiles": ["b.py"],
    "files": ["c"],
    "name": "a",
    "conf": {},
    "driverMemory": "1g",
    "numExecutors": 1,
    "executorCores": "1",
}
POLICY: dict[str, Any] = {
    "targetUtilization": 0.5,
    "catchUp": "1 min",
    "parallelism": {"min": 1, "max": 2},
    "vertices": {"a": {"max": 2}},
    "timeZone": "UTC",
    "schedule": [{"from": "08:00", "to": "09:00", "days": ["mon"], "pause": True}],
    "recommendOnly": True,
}
WHOLE = [(GraphForm, GRAPH), (ProgramForm, PROGRAM), (LivyForm, BATCH), (PolicyForm, POLICY)]
NUMBERS = (True, -1, 10**40, 1.5, float("nan"))
TEXTS = ("", " ", "\0", "\ud800", "x" * 200_000)
STRANGE = (None, *NUMBERS, *TEXTS, [], [[]], {}, {"": 1}, {5: {}})


def places(value: Any, *place: Any) -> Iterator[tuple[Any, ...]]:
    """Of all values within ``value``."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield (*place, key)
        yield from places(value[key], *place, key)


@pytest.mark.parametrize(("form", "document"), WHOLE)
def test_whatever_does_not_fit_is_said_in_sentences_of_ours(
    form: type[Form], document: dict[str, Any]
) -> None:
    read_form(form, document)
    refused = 0
    for *within, last in places(document):
        for strange in STRANGE:
            other = copy.deepcopy(document)
            target = other
            for step in within:
                target = target[step]
            target[last] = strange
            try:
                read_form(form, other)
            except GraphErrors as error:
                refused += 1
                for sentence in error.errors:
                    assert "Input should" not in sentence and "should be ," not in sentence, sentence
                    assert sentence.endswith((".", "?", ".)")), sentence
                    # Only flags are expected to be true or false.
                    is_flag = any(
                        name in sentence for name in ("static", "stateful", "pause", "recommendOnly")
                    )
                    assert "true or false" not in sentence or is_flag, sentence
    assert refused > 50


def schemas(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield schema
        for each in schema.values():
            yield from schemas(each)
    elif isinstance(schema, list):
        for each in schema:
            yield from schemas(each)


@pytest.mark.parametrize("form", [GraphForm, ProgramForm, LivyForm])
def test_the_schema_has_limits_that_mean_something_and_no_null(form: type[Form]) -> None:
    found = list(schemas(form.model_json_schema()))
    for each in found:
        if each.get("type") in ("array", "object"):
            assert not {"maxLength", "minLength", "pattern"} & each.keys(), each
        assert each.get("type") != "null" and each.get("default", "") is not None, each
    assert any("maxItems" in each for each in found)
