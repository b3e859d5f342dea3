"""Airflow's own operator for Livy, unmodified: a program that succeeds, and one that fails."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.deployment import deployed

PROVIDER = "apache-airflow-providers-apache-livy==4.6.4"
DAG = Path(__file__).with_name("airflow_dag.py")
TOKEN = "airflow-token-of-the-test"
PROGRAM = """\
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
rows = spark.range(1000).repartition(4).selectExpr("id % 10 AS k").groupBy("k").count().count()
print("groups:", rows)
if sys.argv[1:] == ["--fail"]:
    raise ValueError("no such day")
"""

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the provider."""
    directory = tmp_path_factory.mktemp("airflow")
    subprocess.run([sys.executable, "-m", "venv", str(directory)], check=True)
    python = directory / "bin" / "python"
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", PROVIDER], check=True)
    return python


def test_the_operator_runs_a_program_and_reports_one_that_fails(airflow: Path, tmp_path: Path) -> None:
    programs = tmp_path / "programs" / "jobs"
    programs.mkdir(parents=True)
    (programs / "rows.py").write_text(PROGRAM)
    tokens = tmp_path / "tokens"
    tokens.write_text(f"airflow:{TOKEN}\n")
    tokens.chmod(0o600)
    settings = {"livy_files_dir": str(programs.parent), "token_file": str(tokens)}
    (tmp_path / "slotwise").mkdir()
    with deployed(tmp_path / "slotwise", settings=settings) as deployment:
        deployment.start(with_points=False)
        port = int((deployment.data_dir / "address").read_text().strip().rpartition(":")[2])
        home = tmp_path / "airflow"
        connection = {
            "conn_type": "livy",
            "host": "127.0.0.1",
            "port": port,
            "login": "airflow",
            "password": TOKEN,
        }
        environment = {
            **{
                name: value
                for name, value in os.environ.items()
                if not name.startswith(("AIRFLOW", "PYTHON"))
            },
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_FOLDER": str(DAG.parent),
            "AIRFLOW_CONN_LIVY_DEFAULT": json.dumps(connection),
        }
        home.mkdir()
        for command in (["-m", "airflow", "db", "migrate"], [str(DAG)]):
            told = subprocess.run(
                [str(airflow), *command],
                env=environment,
                cwd=home,
                capture_output=True,
                text=True,
                timeout=900,
            )
            output = told.stdout + told.stderr
            assert told.returncode == 0, output[-4000:]
        match = re.search(r"^RESULT (.*)$", output, re.MULTILINE)
        assert match is not None, output[-4000:]
        assert json.loads(match[1]) == {
            "ends_well_polled": "success",
            "ends_well_deferred": "success",
            "ends_badly_polled": "failed",
            "ends_badly_deferred": "failed",
        }
        # What the program printed, and why it failed, are in the logs of the tasks.
        assert output.count("groups: 10") >= 4, output[-4000:]
        assert "is FAILED" in output and "ValueError: no such day" in output
        headers = {"Authorization": f"Bearer {TOKEN}"}
        batches = deployment.call("GET", "/batches", headers=headers).json()["sessions"]
        assert [one["id"] for one in batches] == [1, 2, 3, 4]
        assert sorted((one["name"], one["state"], one["owner"]) for one in batches) == [
            *[("badly", "dead", "airflow")] * 2,
            *[("well", "success", "airflow")] * 2,
        ]
