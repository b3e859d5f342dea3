"""The assignment of a driver, as it comes out of its file."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from app.driver.failures import DriverError
from app.model.graphdoc import GraphErrors, parse_document
from app.model.jobgraph import JobGraph
from app.model.protocol import DriverSpec


def read_spec(path: Path) -> tuple[DriverSpec, JobGraph]:
    """The assignment and its job graph.

    Raises:
        DriverError: the file is not there or not an assignment.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        known = {field.name for field in dataclasses.fields(DriverSpec)}
        spec = DriverSpec(**{name: entry for name, entry in value.items() if name in known})
        return spec, parse_document(spec.graph, stored=True)
    except OSError as error:
        raise DriverError(f"The assignment {path} cannot be read: {error.strerror}.") from error
    except GraphErrors as error:
        raise DriverError(f"The job graph of the assignment {path} is not usable: {error}") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise DriverError(f"The file {path} is not an assignment: {error}.") from error
