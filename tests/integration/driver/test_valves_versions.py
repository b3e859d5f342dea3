"""The other PySparks that are supported: what is tested of valves with this one holds there too.

Each run is pytest with the Python of an environment that has that PySpark: the fifty changes, the shapes of
plans, the writers, and checkpoints that earlier code wrote with that PySpark; documents with state whose plans change;
and the redistribution of state where there is any.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests import environments

pytestmark = [pytest.mark.timeout(1800), pytest.mark.long]

HERE = Path(__file__).parent
FILES = (
    "test_valves.py",
    "test_valves_plans.py",
    "test_valves_marks.py",
    "test_valves_writers.py",
    "test_gate.py",
    "test_local_files.py",
    "test_earlier_checkpoints.py",
    "test_graph_valves.py",
    "test_document_state.py",
    "test_interruption.py",
    "test_spreading.py",
)
# PySpark 4.1 cannot redistribute state.
DOCUMENTS = "test_driver_repartition.py::test_more_and_fewer_partitions_are_exact"
MORE = {"4.2.0": ("test_program_repartition.py", DOCUMENTS)}


@pytest.mark.parametrize("version", environments.VERSIONS)
def test_valves_with_another_pyspark(version: str) -> None:
    try:
        python = environments.for_tests(version).python
    except environments.NotServed as missing:
        pytest.skip(f"NOT TESTED WITH PYSPARK {version}: {missing}")
    assert python is not None
    shown = subprocess.run(
        [python, "-c", "import pyspark; print(pyspark.__version__)"], capture_output=True, text=True
    )
    assert shown.stdout.strip() == version
    # PySpark 4.1 leaves sockets of its own to the garbage collector.
    options = ["-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestUnraisableExceptionWarning"]
    command = [
        python,
        "-m",
        "pytest",
        *options,
        *(str(HERE / name) for name in (*FILES, *MORE.get(version, ()))),
    ]
    ran = subprocess.run(command, cwd=environments.ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout[-8000:] + ran.stderr[-2000:]
    assert "skipped" not in ran.stdout.splitlines()[-1], ran.stdout[-2000:]
    print(f"OUTCOME {version}: {ran.stdout.splitlines()[-1]}")
