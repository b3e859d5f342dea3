"""The assignment of a driver, as it comes out of its file."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, TypeVar

from app.driver.failures import DriverError
from app.model.graphdoc import GraphErrors, parse_document
from app.model.jobgraph import JobGraph
from app.model.protocol import DriverSpec, PlanningSpec

_Kind = TypeVar("_Kind")


def read_planning(path: Path) -> PlanningSpec | None:
    """The assignment if it is one that plans a program, and else None.

    Raises:
        DriverError: the file is not there or not an assignment.
    """
    value = _read(path)
    return _made(PlanningSpec, value, path) if "answer_file" in value else None


def read_spec(path: Path) -> tuple[DriverSpec, JobGraph]:
    """The assignment and its job graph.

    Raises:
        DriverError: the file is not there or not an assignment.
    """
    spec = _made(DriverSpec, _read(path), path)
    try:
        return spec, parse_document(spec.graph, stored=True)
    except GraphErrors as error:
        raise DriverError(f"The job graph of the assignment {path} is not usable: {error}") from error


def trigger_of(spec: DriverSpec) -> dict[str, Any]:
    """When the queries of a job run a batch, and whether they end by themselves: what Spark's `trigger` is given."""
    if spec.available_now:
        return {"availableNow": True}
    return {"processingTime": f"{spec.batch_interval_ms} milliseconds"} if spec.batch_interval_ms else {}


def _read(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DriverError(f"The assignment {path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise DriverError(f"The file {path} is not an assignment: {error}.") from error
    if not isinstance(value, dict):
        raise DriverError(f"The file {path} is not an assignment: it has no fields.")
    return value


def _made(kind: type[_Kind], value: dict[str, Any], path: Path) -> _Kind:
    known = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    try:
        return kind(**{name: entry for name, entry in value.items() if name in known})
    except TypeError as error:
        raise DriverError(f"The file {path} is not an assignment: {error}.") from error
