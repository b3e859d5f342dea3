"""Of several queries one fails: it is held, and started again when that is ordered, while the others run on."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from app.documents.graph import parse_document
from tests.integration.driver.documents import KEYS, counting, expected_counts, stored_counts
from tests.integration.driver.harness import Bench, wait_for

pytestmark = pytest.mark.timeout(600)

ROWS = 40_000


def two_sinks(rig: Bench, *, rows: int | None = ROWS) -> dict[str, Any]:
    """The counting job, and beside it all numbers through a function that fails while a file says so."""
    (rig.artifacts_dir / "code.py").write_text(
        "import pathlib\n"
        "from pyspark.sql import functions as F\n"
        "from pyspark.sql.types import LongType\n"
        f"broken = {str(flag(rig))!r}\n"
        "def f(x):\n"
        "    def same(n):\n"
        "        if pathlib.Path(broken).exists():\n"
        "            raise RuntimeError('the flag is up')\n"
        "        return n\n"
        "    return x.withColumn('value', F.udf(same, LongType())('value')).select('value')\n",
        encoding="utf-8",
    )
    document = counting(rig.directory, rows=rows, rows_per_second=4_000, ours=True)
    document["artifacts"] = ["code.py"]
    document["vertices"] += [
        {"name": "mapped", "inputs": ["numbers"], "python": "code:f", "parallelism": 8},
        {
            "name": "raw",
            "inputs": ["mapped"],
            "parallelism": 8,
            "sink": {
                "format": "sqlite",
                "path": str(rig.directory / "raw.db"),
                "outputMode": "append",
                "options": {"table": "raw", "mode": "append"},
            },
        },
    ]
    return document


def flag(rig: Bench) -> Path:
    return rig.directory / "broken"


def key_of(document: dict[str, Any], name: str) -> str:
    return next(vertex.id for vertex in parse_document(document).vertices if vertex.name == name)


def runs_of(rig: Bench, name: str, document: dict[str, Any]) -> list[str]:
    """The run ids of a sink's query, in the order of their first batches."""
    key = key_of(document, name)
    found = (batch["run_id"] for batch in rig.control_plane.batches if key in parallel_vertices(batch))
    return list(dict.fromkeys(found))


def parallel_vertices(batch: dict[str, Any]) -> set[str]:
    return {vertex["vertex_id"] for vertex in batch["vertices"]}


def raw_numbers(rig: Bench) -> list[int]:
    connection = sqlite3.connect(rig.directory / "raw.db")
    try:
        return sorted(value for (value,) in connection.execute("SELECT value FROM raw"))
    finally:
        connection.close()


def staging_areas(rig: Bench) -> list[Path]:
    """The directories in which batches are written before they are committed."""
    found = rig.directory.rglob("staging/*")
    return [path for path in found if path.is_dir() and path.parent.name == "staging"]


def failed_queries(rig: Bench, count: int) -> list[dict[str, Any]]:
    def enough() -> list[dict[str, Any]] | None:
        assert not rig.control_plane.of_type("failed"), rig.control_plane.of_type("failed")
        found = rig.control_plane.of_type("query-failed")
        return found if len(found) >= count else None

    found: list[dict[str, Any]] = wait_for(f"failure {count} of the query", enough)
    return found


def test_only_the_query_that_failed_is_restarted_and_nothing_is_lost_or_doubled(rig: Bench) -> None:
    # Without an end: on a slow machine all rows would be due before the failure is mended.
    document = two_sinks(rig, rows=None)
    driver = rig.start(document, local_failover=True)
    wait_for("a batch of each query", lambda: len({each["query_id"] for each in rig.wait_batches(2)}) == 2)
    flag(rig).touch()
    (first,) = failed_queries(rig, 1)
    assert first["query"] == key_of(document, "raw") and first["run"] == 1
    assert "RuntimeError: the flag is up" in first["error"] and first["recoverable"] is True
    assert "code.py:8" in first["error"], first
    assert first["user_error"] == "RuntimeError at code.py:8" and first["batch_id"] >= 0
    assert first["query_id"] in {batch["query_id"] for batch in rig.control_plane.batches}

    # Without an order it is held, and the other query goes on.
    (other,) = runs_of(rig, "store", document)
    done = len(of_run(rig, other))
    wait_for("more batches of the other query", lambda: len(of_run(rig, other)) >= done + 2)
    assert len(rig.control_plane.of_type("query-failed")) == 1

    rig.control_plane.order(restarts={first["query"]: 1})
    second = failed_queries(rig, 2)[1]
    assert (second["run"], second["batch_id"]) == (2, first["batch_id"])
    assert second["longest_batch_ms"] >= first["longest_batch_ms"] > 0
    assert second["run_id"] != first["run_id"]

    flag(rig).unlink()
    rig.control_plane.order(restarts={first["query"]: 2})
    (recovered,) = wait_for("its recovery", lambda: rig.control_plane.of_type("query-recovered"))
    assert (recovered["query"], recovered["run"]) == (first["query"], 2)
    assert recovered["run_id"] not in (first["run_id"], second["run_id"])
    assert len(staging_areas(rig)) <= 2, "one for each batch in flight, and none that restarts have left"

    rig.control_plane.order(stop="drain")
    wait_for("the end", lambda: rig.control_plane.of_type("stopped"))
    assert driver.exit_status() == 0
    assert staging_areas(rig) == []
    counts, raw = stored_counts(rig.directory), raw_numbers(rig)
    assert counts == expected_counts(sum(number for number, _ in counts.values()))
    assert raw and raw == list(range(len(raw)))
    assert runs_of(rig, "store", document) == [other], "the other query was never restarted"
    assert recovered["run_id"] in runs_of(rig, "raw", document)


def of_run(rig: Bench, run_id: str) -> list[dict[str, Any]]:
    return [batch for batch in rig.control_plane.batches if batch["run_id"] == run_id]


@pytest.mark.long
def test_a_plan_that_comes_meanwhile_is_applied_once_the_query_runs_at_it_too(rig: Bench) -> None:
    document = two_sinks(rig, rows=None)
    flag(rig).touch()
    rig.start(document, local_failover=True)
    (failed,) = failed_queries(rig, 1)
    version = rig.control_plane.of_type("running")[0]["plan_version"]
    rig.change_plan(document, version + 1, {"numbers": 2, "counts": 2, "store": 2, "mapped": 2, "raw": 2})
    wait_for(
        "the other query at the new plan",
        lambda: any(batch["plan_version"] == version + 1 for batch in rig.control_plane.batches),
    )
    assert not [each for each in rig.control_plane.of_type("plan-applied") if each["plan_version"] > version]
    flag(rig).unlink()
    rig.control_plane.order(restarts={failed["query"]: 1})
    wait_for(
        "the plan in force everywhere",
        lambda: [
            each for each in rig.control_plane.of_type("plan-applied") if each["plan_version"] > version
        ],
    )
    (recovered,) = wait_for("its recovery", lambda: rig.control_plane.of_type("query-recovered"))
    # Also the batch that was planned at the plan before.
    assert {batch["plan_version"] for batch in of_run(rig, recovered["run_id"])} == {version + 1}


@pytest.mark.long
def test_a_boundary_stop_and_a_kill_do_not_wait_for_a_query_that_is_held(rig: Bench) -> None:
    document = two_sinks(rig)
    flag(rig).touch()
    driver = rig.start(document, local_failover=True)
    failed_queries(rig, 1)
    rig.control_plane.order(stop="boundary")
    (stopped,) = wait_for("the stop", lambda: rig.control_plane.of_type("stopped"))
    assert stopped["driver_alive"] is True
    flag(rig).unlink()
    # The same process runs the next attempt, with both queries.
    driver.assign(rig.spec(document, local_failover=True))
    wait_for("the end", lambda: rig.control_plane.of_type("finished"))
    assert raw_numbers(rig) == list(range(ROWS))
    assert stored_counts(rig.directory) == expected_counts(ROWS)
    assert len(stored_counts(rig.directory)) == KEYS


@pytest.mark.long
@pytest.mark.parametrize("several", [True, False])
def test_without_leave_or_with_one_query_the_attempt_fails(rig: Bench, several: bool) -> None:
    document = two_sinks(rig)
    flag(rig).touch()
    if not several:
        document["vertices"] = [v for v in document["vertices"] if v["name"] in ("numbers", "mapped", "raw")]
    driver = rig.start(document, local_failover=not several)
    (failed,) = wait_for("the failure", lambda: rig.control_plane.of_type("failed"))
    assert failed["user_error"] == "RuntimeError at code.py:8" and failed["batch_id"] >= 0
    assert driver.exit_status() == 4
    assert not rig.control_plane.of_type("query-failed")


@pytest.mark.long
def test_a_name_in_the_chain_of_a_task_makes_it_final(rig: Bench) -> None:
    document = two_sinks(rig)
    flag(rig).touch()
    rig.start(document, local_failover=True, final_exceptions=["builtins.RuntimeError"])
    (failed,) = wait_for("the failure", lambda: rig.control_plane.of_type("failed"))
    assert failed["recoverable"] is False
    assert failed["why"] == (
        "It is final because slotwise.failure.final-exceptions names builtins.RuntimeError."
    )
