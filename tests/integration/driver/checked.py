"""Graphs whose plans are compared with what they say, and which never run."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from app.documents.graph import parse_document
from app.driver.failures import DriverError
from app.driver.program.document import QueryBuilder
from app.driver.sources.opening import Splits
from app.driver.vertices import Functions
from app.model.analysis import Query, queries
from tests.numbers import unending

_modules = itertools.count(1)

HEADER = """
from pyspark.sql import functions as F, Window
"""


def check(spark: SparkSession, directory: Path, query: Query, functions: Functions) -> set[str]:
    """Build ``query`` and compare it with its plan, as a driver does that starts it for the first time. The names of
    the vertices that keep state."""
    parallelism = {vertex.id: 1 for vertex in (*query.flow, *query.static)}
    builder = QueryBuilder(query, Splits({}, parallelism, directory / "splits"), functions)
    builder.build(spark)
    found = builder.check()
    return {vertex.name for vertex in query.flow if vertex.id in found}


class Checked:
    """Graphs whose plans are compared with what they say, and which never run."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self._spark = spark
        self._directory = directory
        (directory / "side.csv").write_text("1,one\n2,two\n")

    def __call__(
        self, *vertices: dict[str, Any], code: str = "", mode: str = "append", to: str = "v"
    ) -> set[str]:
        """Check ``vertices`` behind the streams a and b and the side table c, with a sink behind ``to``. The names of
        those that keep state."""
        module = f"checked_{next(_modules)}"
        (self._directory / f"{module}.py").write_text(HEADER + code)
        for vertex in vertices:
            if "python" in vertex:
                vertex["python"] = f"{module}:{vertex['python']}"
        side = {
            "format": "csv",
            "path": str(self._directory / "side.csv"),
            "schema": "value LONG, name STRING",
            "static": True,
        }
        places = {"a": unending(1, ours=True), "b": unending(1, ours=True), "c": side}
        used = {
            edge["vertex"] if isinstance(edge, dict) else edge
            for v in vertices
            for edge in v.get("inputs", [])
        }
        graph = parse_document(
            {
                "name": "checked",
                "type": "STREAMING",
                "artifacts": [f"{module}.py"],
                "vertices": [
                    *({"name": name, "source": spec} for name, spec in places.items() if name in used),
                    *vertices,
                    {"name": "out", "inputs": [to], "sink": {"format": "noop", "outputMode": mode}},
                ],
            }
        )
        functions = Functions(self._directory, graph.artifacts)
        functions.install()
        return check(self._spark, self._directory, queries(graph)[0], functions)

    def refusal(self, *vertices: dict[str, Any], **fields: Any) -> str:
        with pytest.raises(DriverError) as raised:
            self(*vertices, **fields)
        assert raised.value.vertex == vertices[0]["name"], raised.value
        assert not raised.value.recoverable
        sentence = str(raised.value)
        assert "\n" not in sentence
        assert "slotwise input" not in sentence
        return sentence


def python(body: str, **fields: Any) -> tuple[dict[str, Any], str]:
    """A Python vertex v over the stream a, and the code of its function."""
    vertex = {"name": "v", "inputs": ["a"], "python": "f", **fields}
    inputs = [edge["vertex"] if isinstance(edge, dict) else edge for edge in vertex["inputs"]]
    return vertex, f"def f({', '.join(inputs)}):\n    return {body}\n"


def sql(text: str, **fields: Any) -> dict[str, Any]:
    inputs = sorted({"a", "b", "c"} & set(re.findall(r"\w+", text)))
    return {"name": "v", "inputs": inputs, "sql": text, **fields}
