"""What a vertex of a document needs in the environment of its job."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

import pyspark

from app.driver.failures import DriverError
from app.model.environment import is_before
from app.model.jobgraph import JobVertex


def require(vertex: JobVertex, what: str, modules: Sequence[str], *, since: str = "") -> None:
    """``what``: that which ``vertex`` is. ``since``: the first line of PySpark that has what it is made with, as 4.2.

    Raises:
        DriverError: something is not there.
    """
    version = pyspark.__version__
    if since and is_before(version, since):
        told = f"{what} needs PySpark {since} or newer, and this is PySpark {version}."
        raise DriverError(f"Vertex {vertex.name}: {told}", vertex=vertex.name)
    if missing := [each for each in modules if find_spec(each) is None]:
        them = "it" if len(missing) == 1 else "them"
        told = f"{what} needs {' and '.join(missing)}, which the environment of the job has not. Add {them} there."
        raise DriverError(f"Vertex {vertex.name}: {told}", vertex=vertex.name)
