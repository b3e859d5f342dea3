"""A driver that reads files by Spark's own sources: as many tasks as the plan says, and an end when it is asked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import orc, parquet

from app.documents.graph import parse_document
from tests.integration.driver.harness import Bench, wait_for
from tests.outputs import rows_of

pytestmark = pytest.mark.timeout(900)

SCHEMA = "id BIGINT, name STRING"


def as_table(ids: range) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [f"n{n}" for n in ids]})


WRITERS: dict[str, Callable[[Path, range], Any]] = {
    "csv": lambda file, ids: file.write_text("".join(f"{n},n{n}\n" for n in ids)),
    "json": lambda file, ids: file.write_text(
        "".join(json.dumps({"id": n, "name": f"n{n}"}) + "\n" for n in ids)
    ),
    "parquet": lambda file, ids: parquet.write_table(as_table(ids), file, row_group_size=50),
    "orc": lambda file, ids: orc.write_table(as_table(ids), file),
    "text": lambda file, ids: file.write_text("".join(f"{n}\n" for n in ids)),
}


def put(folder: Path, kind: str, ids: range) -> None:
    """A file of its own; it appears whole."""
    hidden = folder / kind / f".{ids.start}"
    WRITERS[kind](hidden, ids)
    hidden.rename(folder / kind / f"{ids.start:05}.{kind}")


def document(directory: Path, kinds: tuple[str, ...], **options: str) -> dict[str, Any]:
    """A query for each kind: from its files into a file."""
    vertices: list[dict[str, Any]] = []
    for kind in kinds:
        (directory / kind).mkdir()
        source: dict[str, Any] = {"format": kind, "path": str(directory / kind), "options": options}
        if kind != "text":
            source["schema"] = SCHEMA
        columns = "CAST(value AS BIGINT) AS id" if kind == "text" else "id, name"
        vertices += [
            {"name": f"read_{kind}", "source": source},
            {"name": f"as_{kind}", "inputs": [f"read_{kind}"], "sql": f"SELECT {columns} FROM read_{kind}"},
            {
                "name": f"store_{kind}",
                "inputs": [f"as_{kind}"],
                "sink": {"format": "json", "path": str(directory / f"out-{kind}")},
            },
        ]
    return {"name": "files", "type": "STREAMING", "vertices": vertices}


def ids_in(folder: Path) -> list[int]:
    return sorted(row["id"] for row in rows_of(folder))


def test_each_file_is_read_by_as_many_tasks_as_the_plan_says(rig: Bench) -> None:
    kinds = tuple(WRITERS)
    graph = document(rig.directory, kinds)
    vertices = parse_document(graph).vertices
    readers = {vertex.name: vertex.id for vertex in vertices if vertex.is_source}
    driver = rig.start(graph, dict.fromkeys(readers, 2))
    for turn, wanted in enumerate((2, 5, 1, 7, 3)):
        version = 1_000 + turn
        rig.change_plan(graph, version, dict.fromkeys(readers, wanted))
        wait_for(
            "the plan",
            lambda version=version: any(
                r["plan_version"] == version for r in rig.control_plane.of_type("plan-applied")
            ),
        )
        for kind in kinds:
            put(rig.directory, kind, range(1_000 * turn, 1_000 * turn + 300))
        batches = wait_for(
            "a batch of each",
            lambda version=version: (
                found
                if len(
                    found := {
                        b["query_id"]: b
                        for b in rig.control_plane.batches
                        if b["plan_version"] == version and b["input_rows"]
                    }
                )
                == len(kinds)
                else None
            ),
        )
        for batch in batches.values():
            told = {v["vertex_id"]: (v["parallelism"], v["tasks"]) for v in batch["vertices"]}
            (reader,) = [told[vertex_id] for vertex_id in readers.values() if vertex_id in told]
            assert reader == (wanted, wanted), (turn, batch)
    rig.control_plane.order(stop="drain")
    wait_for("the end", lambda: rig.control_plane.of_type("stopped"))
    assert driver.exit_status() == 0, driver.log
    expected = [number for turn in range(5) for number in range(1_000 * turn, 1_000 * turn + 300)]
    for kind in kinds:
        assert ids_in(rig.directory / f"out-{kind}") == expected, kind
    last = {batch["query_id"]: batch["backlog_rows"] for batch in rig.control_plane.batches}
    assert len(last) == len(kinds) and set(last.values()) == {0}


def test_a_job_that_takes_what_is_available_now_is_finished_then(rig: Bench) -> None:
    graph = document(rig.directory, ("csv", "json"), maxFilesPerTrigger="1")
    for number in range(3):
        put(rig.directory, "csv", range(10 * number, 10 * number + 10))
    put(rig.directory, "json", range(7))
    driver = rig.start(graph, available_now=True)
    wait_for("the end", lambda: rig.control_plane.of_type("finished"))
    assert driver.exit_status() == 0, driver.log
    assert not rig.control_plane.of_type("failed")
    assert sorted(b["input_rows"] for b in rig.control_plane.batches) == [7, 10, 10, 10]
    assert (ids_in(rig.directory / "out-csv"), ids_in(rig.directory / "out-json")) == (
        [*range(30)],
        [*range(7)],
    )
    # Another run of it has nothing to do, and says so.
    rig.start(graph, available_now=True)
    wait_for("the end of the next", lambda: len(rig.control_plane.of_type("finished")) == 2)
