"""TPC-H for tests: the graphs and the answers of examples/tpch, and the data."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

_EXAMPLES = Path(__file__).resolve().parents[1] / "examples/tpch"


def _example(name: str) -> ModuleType:
    """A module of the examples, which are no package."""
    spec = importlib.util.spec_from_file_location(f"tpch_{name}", _EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


graphs, answers = _example("graphs"), _example("answers")


def tables(scale: str, directory: Path) -> Path:
    """The absolute directory below ``directory`` that has the tables at ``scale``; they are generated if need be."""
    found = directory.absolute() / f"sf{scale}"
    if not (found / "lineitem.parquet").exists():
        generate(scale, found)
    return found


def generate(scale: str, directory: Path) -> None:
    """Write the tables at ``scale`` as Parquet files."""
    directory.mkdir(parents=True, exist_ok=True)
    program = Path(sys.executable).with_name("tpchgen-cli")
    command = [str(program), "parquet", "-s", scale, f"--output-dir={directory}"]
    subprocess.run(command, check=True, capture_output=True)
