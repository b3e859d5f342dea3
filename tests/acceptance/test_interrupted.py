"""A rescale waits for a long batch, which is interrupted: the record says so, with the rows that were read again."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.acceptance.deployment import Deployment, deployed, wait_for
from tests.outputs import rows_of

pytestmark = pytest.mark.timeout(600)

ROWS = 600
SLOW = """
import time
from pyspark.sql import functions as F

def work(rows):
    return rows.select(F.udf(lambda v: (time.sleep(0.05), v)[1], "long")("v").alias("v"))
"""


@pytest.fixture
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployed(tmp_path_factory.mktemp("interrupted")) as made:
        made.start(with_points=False)
        yield made


def test_a_long_batch_is_interrupted_and_the_record_has_its_rows(deployment: Deployment) -> None:
    source, out = deployment.directory / "in", deployment.directory / "out"
    source.mkdir()
    for file in range(20):
        lines = [json.dumps({"v": v}) + "\n" for v in range(file, ROWS, 20)]
        (source / f"{file}.json").write_text("".join(lines), encoding="utf-8")
    document = {
        "name": "interrupted",
        "type": "STREAMING",
        "artifacts": ["slow.py"],
        "config": {"slotwise.rescale.max-wait": "3 s"},
        "vertices": [
            {"name": "files", "source": {"format": "json", "path": str(source), "schema": "v LONG"}},
            {"name": "work", "inputs": ["files"], "python": "slow:work"},
            {"name": "store", "inputs": ["work"], "sink": {"format": "parquet", "path": str(out)}},
        ],
    }
    files = {
        "graph": ("graph.json", json.dumps(document).encode(), "application/json"),
        "files": ("slow.py", SLOW.encode(), "application/octet-stream"),
    }
    response = deployment.call("POST", "/jobs", files=files)
    assert response.is_success, response.text
    deployment.job_id = response.json()["jobid"]
    checkpoint = deployment.data_dir / "jobs" / deployment.job_id / "checkpoint"
    wait_for("the batch", lambda: list(checkpoint.glob("*/slotwise-begun")))
    response = deployment.put(dict.fromkeys(("files", "work", "store"), (1, 4)), "more")
    assert response.is_success, response.text
    deployment.await_settled()
    record = deployment.history()[0]
    assert (record["rung"], record["reprocessedRecords"]) == ("batch-interrupted", ROWS), record
    assert record["terminalState"] == "COMPLETED" and record["reason"] == "more"
    assert record["message"].startswith("A batch of store that had run for ")
    assert record["message"].endswith(" tasks done, was interrupted and ran again at the new parallelism.")
    exceptions = deployment.get(f"/jobs/{deployment.job_id}/exceptions")
    assert exceptions["exceptionHistory"]["entries"] == [], "it is no failure"
    assert sorted(row["v"] for row in rows_of(out)) == list(range(ROWS))
    deployment.check_ends()
