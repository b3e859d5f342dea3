"""Spark's own sinks in graph documents: rescaled in place, stopped between batches, killed, redistributed; exact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.documents.graph import parse_document
from app.driver.checkpoints import newest_in_sink
from tests.integration.driver.harness import Bench, wait_for
from tests.outputs import files_of, rows_of

pytestmark = pytest.mark.timeout(600)

CODE = "def once(rows): return rows.select('value').dropDuplicates()"


@pytest.fixture(autouse=True)
def code(rig: Bench) -> None:
    (rig.artifacts_dir / "code.py").write_text(CODE, encoding="utf-8")


def numbers(sink: dict[str, Any], *, rows: int | None, partitions: int = 4) -> dict[str, Any]:
    """Numbers, each once."""
    options = {"rowsPerSecond": "4000"} | ({} if rows is None else {"rowCount": str(rows)})
    return {
        "name": "numbers",
        "type": "STREAMING",
        "artifacts": ["code.py"],
        "vertices": [
            {"name": "made", "source": {"format": "rate", "options": options}, "parallelism": 8},
            {
                "name": "once",
                "inputs": ["made"],
                "python": "code:once",
                "stateful": True,
                "parallelism": partitions,
                "maxParallelism": partitions,
            },
            {
                "name": "twice",
                "inputs": ["once"],
                "sql": "SELECT value, 2 * value AS twice FROM once",
                "parallelism": 8,
            },
            {"name": "stored", "inputs": ["twice"], "parallelism": 8, "sink": sink},
        ],
    }


def orc_in(rig: Bench) -> dict[str, Any]:
    return {"format": "orc", "path": str(rig.directory / "out"), "options": {"compression": "zstd"}}


def values_of(folder: Path) -> list[int]:
    return sorted(row["value"] for row in rows_of(folder))


def end_soon(rig: Bench, document: dict[str, Any]) -> int:
    """Let a source that has not ended end behind what is stored, and behind the batch that is planned, and say how many
    rows there are at least."""
    rows = len(values_of(rig.directory / "out")) + 20_000
    document["vertices"][0]["source"]["options"]["rowCount"] = str(rows)
    return rows


def check_all_once(rig: Bench, at_least: int) -> None:
    found = values_of(rig.directory / "out")
    assert len(found) >= at_least
    assert found == list(range(len(found)))


def test_a_plan_change_between_batches_is_in_place_and_a_stop_leaves_no_batch_half_done(rig: Bench) -> None:
    """And the folder is no other query's from then on."""
    document = numbers(orc_in(rig), rows=None)
    ids = {vertex.name: vertex.id for vertex in parse_document(document).vertices}
    driver = rig.start(document, {"made": 2, "once": 2, "twice": 2, "stored": 2})
    first = rig.wait_batches(3)[0]
    wanted = {"made": 3, "once": 4, "twice": 1, "stored": 3}
    rig.change_plan(document, 1_000, wanted)
    batch = wait_for(
        "a batch at the plan",
        lambda: [b for b in rig.control_plane.batches if b["plan_version"] == 1_000 and b["whole_plan"]],
    )[0]
    found = {v["vertex_id"]: (v["parallelism"], v["tasks"]) for v in batch["vertices"]}
    assert found == {ids[name]: (number, number) for name, number in wanted.items()}
    assert batch["run_id"] == first["run_id"]
    stored = next(v for v in batch["vertices"] if v["vertex_id"] == ids["stored"])
    assert stored["records_in"] == batch["input_rows"] > 0
    rig.control_plane.order(stop="boundary")
    assert wait_for("the stop", lambda: rig.control_plane.of_type("stopped"))[0]["driver_alive"]
    logged = newest_in_sink(rig.directory / "out")

    rows = len(values_of(rig.directory / "out"))
    rig.control_plane.reports.clear()
    driver.assign(rig.spec(document, {"once": 1}))
    again = rig.wait_batches(1)[0]
    assert (again["query_id"], again["batch_id"]) == (first["query_id"], logged + 1)
    assert not again["reprocessed"], "nothing of a batch that was stopped before it began runs twice"
    rig.control_plane.order(stop="drain")
    assert wait_for("the end", lambda: rig.control_plane.of_type("stopped"))[0]["drained"]
    assert driver.exit_status() == 0, driver.log
    check_all_once(rig, rows + 1)

    logged, before = newest_in_sink(rig.directory / "out"), files_of(rig.directory / "out")
    failed = failure_of(rig, document, checkpoint_dir=str(rig.directory / "other"))
    assert f"the log of another query has batches up to {logged}" in failed["error"], failed
    assert not failed["recoverable"]
    assert files_of(rig.directory / "out") == before


@pytest.mark.long
def test_a_killed_driver_is_replaced_and_the_state_redistributed(rig: Bench) -> None:
    document = numbers(orc_in(rig), rows=None)
    for attempt in range(2):
        rig.start(document, {"once": 2 + attempt})
        rig.wait_batches(len(rig.control_plane.batches) + 3)
        rig.drivers[-1].kill()
    # Spark's log is made shorter every tenth batch, and has to have the redistribution then.
    rig.start(numbers(orc_in(rig), rows=None, partitions=6), {"once": 6}, repartition=True)
    rig.wait_batches(len(rig.control_plane.batches) + 12)
    rig.drivers[-1].kill()
    document = numbers(orc_in(rig), rows=None, partitions=6)
    rows = end_soon(rig, document)
    last = rig.start(document, {"once": 3})
    wait_for("the end", lambda: rig.control_plane.of_type("finished") or rig.control_plane.of_type("failed"))
    assert rig.control_plane.of_type("finished"), rig.control_plane.of_type("failed")
    assert last.exit_status() == 0, last.log
    check_all_once(rig, rows)
    assert not [vertex for vertex in rig.control_plane.of_type("failed")]


def failure_of(rig: Bench, document: dict[str, Any], **changes: Any) -> dict[str, Any]:
    rig.control_plane.reports.clear()
    rig.start(document, **changes)
    found: dict[str, Any] = wait_for("the failure", lambda: rig.control_plane.of_type("failed"))[0]
    return found


@pytest.mark.long
def test_rows_that_do_not_fit_a_sink_of_spark_are_refused(rig: Bench) -> None:
    text = numbers({"format": "text", "path": str(rig.directory / "text")}, rows=3_000)
    failed = failure_of(rig, text, checkpoint_dir=str(rig.directory / "third"))
    assert "Text" in failed["error"], failed

    # What only Spark knows of a sink: it adds to files, and nothing else.
    updated = numbers({**orc_in(rig), "outputMode": "update"}, rows=3_000)
    failed = failure_of(rig, updated, checkpoint_dir=str(rig.directory / "fourth"))
    assert "orc" in failed["error"] and "update" in failed["error"].lower(), failed
    assert failed["vertex"] is not None and not failed["recoverable"], failed


@pytest.mark.long
def test_the_console_is_stopped_between_two_batches_and_gets_every_result(rig: Bench) -> None:
    sink = {"format": "console", "outputMode": "complete", "options": {"numRows": "3"}}
    document = numbers(sink, rows=None)
    once = document["vertices"][1]
    del once["python"]
    once["sql"] = "SELECT value % 7 AS value, count(*) AS n FROM made GROUP BY value % 7"
    driver = rig.start(document, {"once": 2})
    rig.wait_batches(2)
    rig.change_plan(document, 1_000, {"made": 2, "once": 4})
    wait_for("the plan", lambda: [b for b in rig.control_plane.batches if b["plan_version"] == 1_000])
    rig.control_plane.order(stop="boundary")
    wait_for("the stop", lambda: rig.control_plane.of_type("stopped"))
    assert not rig.control_plane.of_type("failed")
    driver.kill()
