"""A plan that Spark does not follow: the rescale is brought about by the next rung, and its record says why.

The job lets an optimizer rule of Spark's work that merges repartitions, so the valve of its source goes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.acceptance.deployment import Deployment, counting, deployed
from tests.numbers import unending

pytestmark = pytest.mark.timeout(600)

MERGE = 'conf.set("spark.sql.optimizer.excludedRules", "")'
PLAIN = f"""
def plain(rows):
    rows.sparkSession.{MERGE}
    return rows.select("value")
"""
PROGRAM = f"""
from pyspark.sql import SparkSession

def write(rows, batch):
    rows.sparkSession.{MERGE}
    rows.collect()

spark = SparkSession.builder.getOrCreate()
numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 100).load()
query = numbers.writeStream.foreachBatch(write).trigger(processingTime="250 milliseconds").start()
query.awaitTermination()
"""


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployed(tmp_path_factory.mktemp("not-followed")) as made:
        made.start(with_points=False)
        yield made


def rescaled(
    deployment: Deployment, document: dict[str, Any], text: str, *changes: dict[str, int]
) -> list[Any]:
    """The records of the rescales to these numbers of a job that is submitted at 2."""
    graph = {**document, "name": "not followed"}
    files = {
        "graph": ("graph.json", json.dumps(graph).encode(), "application/json"),
        "files": ("merged.py", text.encode(), "application/octet-stream"),
    }
    response = deployment.call("POST", "/jobs", files=files)
    assert response.is_success, response.text
    deployment.job_id = response.json()["jobid"]
    deployment.await_settled()
    assert all(one["message"] is None for one in deployment.history()), deployment.history()
    records = []
    for number, to in enumerate(changes):
        response = deployment.put({name: (1, upper) for name, upper in to.items()}, f"change-{number}")
        assert response.is_success, response.text
        deployment.await_settled()
        records.append(deployment.history()[0])
    assert deployment.call("PATCH", f"/jobs/{deployment.job_id}?mode=cancel").is_success
    deployment.await_status("CANCELED")
    return records


def test_the_queries_of_a_graph_are_restarted(deployment: Deployment) -> None:
    whole = counting(deployment.directory)
    numbers, plain, _, store = whole["vertices"]
    numbers["source"] = unending(1000, parts=2)
    del plain["sql"]
    plain["python"] = "merged:plain"
    store |= {"inputs": ["plain"], "sink": {"format": "noop"}}
    document = {**whole, "artifacts": ["merged.py"], "vertices": [numbers, plain, store]}
    record, other, again = rescaled(
        deployment,
        document,
        PLAIN,
        {"numbers": 1, "plain": 3, "store": 3},
        {"numbers": 1, "plain": 2, "store": 2},
        {"numbers": 2, "plain": 4, "store": 4},
    )
    assert record["rung"] == "query-restart"
    why = "Vertex numbers does not run as 1 task(s): Spark has removed its valve from the plan."
    assert record["message"] == (
        f"{why} So its queries are restarted. The restart has not changed this: {why}"
    )
    assert other["rung"] == "in-place", "it is not of the vertex that does not follow"
    assert again["rung"] == "query-restart"
    assert again["message"].startswith(
        "Vertex numbers is not rescaled in place: Spark did not run it as its plan said."
    )


@pytest.mark.long
def test_the_queries_of_a_program_are_restarted(deployment: Deployment) -> None:
    bounds = {name: {"lowerBound": 1, "upperBound": 2} for name in ("rate-micro-batch", "foreachBatch")}
    document = {
        "script": "merged.py",
        "artifacts": ["merged.py"],
        "bounds": bounds,
        "config": {
            name: value
            for name, value in counting(deployment.directory)["config"].items()
            if "batch" not in name
        },
    }
    to = {"rate-micro-batch": 1, "foreachBatch": 3}
    (record,) = rescaled(deployment, document, PROGRAM, to)
    assert record["rung"] == "query-restart"
    assert record["message"].startswith(
        "Vertex rate-micro-batch does not run as 1 task(s): Spark has removed its valve from the plan. "
        "So its queries are restarted."
    )
