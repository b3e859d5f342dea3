"""The environment variables of a program on a cluster: its tasks, and Java in its executors, have them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.acceptance.clusters import on_cluster
from tests.acceptance.deployment import Deployment
from tests.acceptance.programs import cli

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]

SCRIPT = """
import json, os, sys

NAMES = ["TOPIC", "OF_TASKS", "OF_THE_PROGRAM", "TOO_LATE"]
os.environ["OF_THE_PROGRAM"] = os.environ["TOPIC"] + " of the program"

from pyspark.sql import SparkSession, functions as F

spark = SparkSession.builder.getOrCreate()
os.environ["TOO_LATE"] = "1"
of_task = F.udf(lambda _: json.dumps([os.environ.get(name) for name in NAMES]))
of_java = [F.expr(f"java_method('java.lang.System', 'getenv', '{name}')") for name in NAMES]
driver = [os.environ.get(name) for name in NAMES]
task, java = spark.range(0, 1, 1, 1).select(of_task("id"), F.to_json(F.array(*of_java))).first()
with open(sys.argv[1], "w") as file:
    json.dump({"task": json.loads(task), "java": json.loads(java), "driver": driver}, file)
"""


def found(deployment: Deployment, directory: Path) -> dict[str, list[str | None]]:
    script, out = directory / "job.py", directory / "found.json"
    script.write_text(SCRIPT, encoding="utf-8")
    options = ("--batch", "--env", "TOPIC=words", "--conf", "spark.executorEnv.OF_TASKS=1")
    deployment.job_id = cli(deployment, "submit", *options, str(script), "--", str(out)).split()[-1]
    deployment.await_status("FINISHED")
    return json.loads(out.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def test_executors_have_what_the_job_and_its_program_set_before_the_session(tmp_path: Path) -> None:
    with on_cluster(tmp_path / "slotwise") as (deployment, _):
        assert found(deployment, tmp_path) == {
            "task": ["words", "1", "words of the program", None],
            "java": ["words", "1", "words of the program", "null"],
            "driver": ["words", None, "words of the program", "1"],
        }
