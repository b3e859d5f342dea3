"""What a driver needs of the environment that it runs in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from app.driver.process import started_at

ROOT = Path(__file__).resolve().parents[3]
_IMPORT = """
import sys
allowed = sys.stdlib_module_names | {"app", "pyspark", "py4j"}
class Bare:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in allowed and not name.startswith("_"):
            raise ModuleNotFoundError(f"not in a bare environment: {name}", name=name)
sys.meta_path.insert(0, Bare())
sys.path.insert(0, sys.argv[1])
import app.driver.process
import app.driver.appcds
"""


def test_a_driver_needs_pyspark_and_the_standard_library_only() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _IMPORT, str(ROOT)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


def test_pyspark_is_imported_while_the_jvm_starts_and_not_before() -> None:
    code = "import sys; sys.path.insert(0, sys.argv[1]); import app.driver.process; print('pyspark' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code, str(ROOT)], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.strip() == "False"


def test_the_start_of_a_process_is_what_psutil_says() -> None:
    assert started_at() == pytest.approx(psutil.Process().create_time(), abs=0.001)
