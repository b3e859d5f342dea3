"""What the control plane gives a driver to do: a file."""

from __future__ import annotations

import json
from pathlib import Path

from app.driver.failures import DriverError
from app.model.fromjson import from_json
from app.model.graphdoc import read_graph
from app.model.grapherrors import GraphErrors
from app.model.jobgraph import JobGraph
from app.model.protocol import DriverSpec


def read_assignment(path: Path) -> tuple[DriverSpec, JobGraph]:
    """The assignment of an attempt, with its job graph.

    Raises:
        DriverError: the file is not there or not an assignment.
    """
    try:
        spec = from_json(DriverSpec, json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise DriverError(f"The assignment {path} cannot be read: {error.strerror}.") from error
    except (TypeError, ValueError) as error:
        raise DriverError(f"The file {path} is not an assignment: {error}.") from error
    try:
        return spec, read_graph(spec.graph)
    except GraphErrors as error:
        raise DriverError(f"The job graph of the assignment {path} is not usable: {error}") from error
