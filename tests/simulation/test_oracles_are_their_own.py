"""Oracles judge by rules of their own: they know the scheduler's data types, and call none of its functions."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
# Defects are planted into the functions that they spoil.
MODULES = sorted(
    path.stem for path in HERE.glob("*.py") if not path.stem.startswith(("planted_", "test_", "__"))
)
DECISIONS = ("app.scheduler", "app.model")
NO_DECISIONS = {
    "app.model.graphdoc.read_graph",
    "app.model.graphdoc_program.graph_of",
    "app.model.graphdoc_program.graph_of_version",
    "app.model.ids.derive_id",
    "app.model.ids.vertex_id",
    "app.model.protocol.outcome_document",
}
"""Documents are read and written with them, ids are made, and programs become what a server stores of them."""


def imported(source: str) -> Iterator[str]:
    """The dotted names of whatever a module imports, wherever in it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{one.name}" for one in node.names)


def is_a_decision(name: str) -> bool:
    """Whether it is a function, or a module through which one could be called."""
    if not name.startswith(DECISIONS) or name in NO_DECISIONS:
        return False
    module, _, attribute = name.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except AttributeError:
        return True
    # Whatever is callable and no type: functions, and those that remember what they answered.
    return inspect.ismodule(found) or (callable(found) and not inspect.isclass(found))


@pytest.mark.parametrize("module", MODULES)
def test_no_module_but_the_planted_defects_imports_a_decision(module: str) -> None:
    found = {name for name in imported((HERE / f"{module}.py").read_text()) if is_a_decision(name)}
    assert found == set(), "an oracle that asks the scheduler what is right agrees with its defects"


@pytest.mark.parametrize(
    "line",
    [
        "from app.scheduler.slots import distribute",
        "def f():\n    from app.model.batch_regions import regions_of",
        "import app.scheduler.slots",
        "from app.scheduler import slots",
        "from app.scheduler import explain as words",
        "from app.model.state_partitions import with_partitions",
    ],
)
def test_an_import_of_a_decision_is_seen(line: str) -> None:
    assert [is_a_decision(name) for name in imported(line)] == [True]


def test_types_are_no_decisions() -> None:
    assert not is_a_decision("app.scheduler.adaptive.state.JobState")
    assert not is_a_decision("app.model.jobgraph.JobGraph")
    assert not is_a_decision("app.worker.requests.requirements.resolve_bounds"), (
        "what is judged may be called"
    )
