"""A vertex as a DataFrame: what its SQL text or its Python function makes of its inputs, and failures with its name."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.errors import ParseException
from pyspark.sql import DataFrame, SparkSession

from app.driver.failures import DriverError, describe, one_line
from app.driver.scala import plan_children
from app.model.jobgraph import JobVertex, Partitioner, PythonSpec, SqlSpec, VertexInput

# What Spark says where a function asks a stream for its rows.
_NEEDS_ROWS = re.compile(
    r"Queries with streaming sources must|can not be called on streaming|on a? ?streaming Data"
)
_RUNS_NOTHING = (
    "(The function of a vertex says what is to be done with a stream, and cannot look at its rows: "
    "what is to be run with each micro-batch belongs into a Python sink.)"
)
_MESSAGES = "pyspark.sql.streaming.proto.StateMessage_pb2"


class Functions:
    """Resolves ``module:function`` in the artifacts of one attempt."""

    def __init__(self, artifacts_dir: Path, artifacts: tuple[str, ...]) -> None:
        archives = [
            str(artifacts_dir / name) for name in artifacts if name.endswith((".zip", ".whl", ".egg"))
        ]
        self.paths = (str(artifacts_dir), *archives)
        self.files = tuple(artifacts_dir / name for name in artifacts)
        self._found: dict[str, Callable[..., Any]] = {}

    def install(self) -> None:
        """Put the artifacts first on the path of this process.

        Modules that an earlier attempt of the job imported here stay: artifacts do not change once submitted.
        """
        for path in self.paths:
            if path in sys.path:
                sys.path.remove(path)
        sys.path[:0] = self.paths
        importlib.invalidate_caches()

    def __call__(self, entry: str) -> Callable[..., Any]:
        """The function that ``entry`` names.

        Raises:
            DriverError: it is not there, or importing its module failed.
        """
        if entry not in self._found:
            self._found[entry] = self._load(entry)
        return self._found[entry]

    def _load(self, entry: str) -> Callable[..., Any]:
        module_name, _, function_name = entry.partition(":")
        try:
            module = importlib.import_module(module_name)
        except BaseException as error:  # a module may do anything when it is imported, sys.exit included
            if isinstance(error, KeyboardInterrupt):
                raise
            what = one_line(f"{type(error).__name__}: {error}")
            raise DriverError(f"The module {module_name} of {entry} cannot be imported: {what}") from error
        function = getattr(module, function_name, None)
        if function is None:
            raise DriverError(
                f"The module {module_name} has no function {function_name}, which {entry} names."
            )
        if not callable(function):
            raise DriverError(f"What {entry} names is not a function but a {type(function).__name__}.")
        return function  # type: ignore[no-any-return]


def apply_operation(
    session: SparkSession, vertex: JobVertex, frames: Mapping[str, DataFrame], functions: Functions
) -> DataFrame:
    """What ``vertex``, a SQL text or a Python function, makes of ``frames``: its inputs by vertex id.

    Raises:
        DriverError: the function is not there, refuses its inputs, or returns something else.
    """
    operation = vertex.operation
    inputs = [_hinted(frames[edge.vertex_id], edge) for edge in vertex.inputs]
    if isinstance(operation, SqlSpec):
        for edge, frame in zip(vertex.inputs, inputs, strict=True):
            # Texts read it by the name of its vertex.
            quoted = "`" + edge.vertex_name.replace("`", "``") + "`"
            frame._jdf.createOrReplaceTempView(quoted)
        return session.sql(_query_of(session, vertex, operation.text))
    assert isinstance(operation, PythonSpec)
    try:
        result = functions(operation.entry)(*inputs)
    except TypeError as error:
        raise DriverError(
            f"Vertex {vertex.name}: {operation.entry} failed: {error}", vertex=vertex.name
        ) from error
    if not isinstance(result, DataFrame):
        raise DriverError(
            f"Vertex {vertex.name}: {operation.entry} should return a DataFrame, but returned a "
            f"{type(result).__name__}.",
            vertex=vertex.name,
        )
    if result.isStreaming:
        try:
            equip_state_workers(result, functions.paths)
        except DriverError as error:
            raise DriverError(f"Vertex {vertex.name}: {error}", vertex=vertex.name) from error
    return result


def _query_of(session: SparkSession, vertex: JobVertex, text: str) -> str:
    """The ``text`` of ``vertex``, which is one query: `SparkSession.sql` would run anything.

    Raises:
        ParseException: Spark does not understand it. DriverError: it is another statement.
    """
    parser = session._jsparkSession.sessionState().sqlParser()
    # `parseQuery` takes no semicolon. Behind the last one there may be comments, which may have some too.
    ends = [len(text), *(at for at in range(len(text) - 1, -1, -1) if text[at] == ";")]
    for end in ends:
        with contextlib.suppress(ParseException):
            parser.parseQuery(text[:end])
            parser.parsePlan(f"SELECT 1{text[end:]}")
            return text[:end]
    # What is no statement at all says where.
    parser.parsePlan(text)
    raise DriverError(
        f"Vertex {vertex.name}: its SQL text should be one query that only reads, such as SELECT; a sink writes.",
        vertex=vertex.name,
    )


def guarded(vertex: JobVertex, build: Callable[[], DataFrame]) -> DataFrame:
    """``build()``, whose failure is that of ``vertex``."""
    try:
        return build()
    except DriverError as error:
        error.vertex = error.vertex or vertex.name
        raise
    except Exception as error:
        failure = describe(error, vertex=vertex.name)
        if _NEEDS_ROWS.search(failure.sentence):
            failure = replace(failure, sentence=f"{failure.sentence} {_RUNS_NOTHING}", recoverable=False)
        raise DriverError.of(failure) from error


def _hinted(frame: DataFrame, edge: VertexInput) -> DataFrame:
    return frame.hint("broadcast") if edge.partitioner is Partitioner.BROADCAST else frame


def equip_state_workers(frame: DataFrame, artifacts: Sequence[str]) -> None:
    """Let the Python worker that Spark starts beside the driver for each transformWithState in ``frame``, a vertex'
    result, import from ``artifacts``.

    It sees the environment of its function, and none of the files that Spark sends to other workers. Where it cannot
    import something of its own it ends without a word.

    Raises:
        DriverError: a package is missing that they need.
    """
    waiting = [frame._jdf.queryExecution().analyzed()]
    while waiting:
        node = waiting.pop()
        waiting.extend(plan_children(node))
        if node.getClass().getSimpleName() == "TransformWithStateInPySpark":
            _check_packages()
            environment = node.functionExpr().func().envVars()
            known = environment.get("PYTHONPATH")
            environment.put("PYTHONPATH", os.pathsep.join([*artifacts, *([known] if known else [])]))


def _check_packages() -> None:
    try:
        importlib.import_module(_MESSAGES)
    except Exception as error:  # that of a protobuf too old is no ImportError
        why = one_line(f"{type(error).__name__}: {error}", 300)
        raise DriverError(
            f"transformWithState needs the Python package protobuf in a version that PySpark was made for ({why}). "
            "Install the one that `slotwise doctor` names, beside PySpark."
        ) from error
